"""TensorRT-LLM's rules: a share of what is free once the model has loaded and a full batch has run."""

from kvroom.engines.tensorrt_llm.engine import answer
from kvroom.engines.tensorrt_llm.flags import attention_groups
from kvroom.engines.tensorrt_llm.start_rules import START_RULES

__all__ = ["START_RULES", "answer", "attention_groups"]

"""TensorRT-LLM's rules: a share of what is free once the model has loaded and a full batch has run."""

from kvroom.engines.tensorrt_llm.answer import answer

__all__ = ["answer"]

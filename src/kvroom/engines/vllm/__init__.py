"""vLLM's own rules, from 0.8.5 to 0.33.0: what it finds, cuts into blocks, prints and refuses."""

from kvroom.engines.vllm.answer import answer

__all__ = ["answer"]

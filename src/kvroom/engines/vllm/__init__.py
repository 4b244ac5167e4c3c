"""vLLM's own rules, from 0.8.5 to 0.33.0: what it finds, cuts into blocks, prints and refuses."""

from kvroom.engines.vllm.engine import answer

SHARED_EXPERTS = True
"""Data-parallel ranks of a mixture of experts step together, and cut its experts over all of them."""

__all__ = ["SHARED_EXPERTS", "answer"]

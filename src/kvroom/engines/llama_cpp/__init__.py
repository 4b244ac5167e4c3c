"""llama.cpp's rules, and what its relatives ollama and ik_llama.cpp make of them.

Memory is taken once, at the start: so many slots of so many cells. Nothing grows and nothing is evicted
to make room; what does not fit a GPU lies in host memory.
"""

from kvroom.engines.llama_cpp.answer import CacheSizes, answer, cache_sizes
from kvroom.engines.llama_cpp.setup import prepare

__all__ = ["CacheSizes", "answer", "cache_sizes", "prepare"]

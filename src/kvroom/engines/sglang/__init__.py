"""SGLang's own rules, from 0.4.10 to 0.5.23: its static share, its pools, its request limit."""

from kvroom.engines.sglang.answer import answer
from kvroom.engines.sglang.models import taken

__all__ = ["answer", "taken"]

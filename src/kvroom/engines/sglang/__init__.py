"""SGLang's own rules, from 0.4.10 to 0.5.23: its static share, its pools, its request limit."""

from kvroom.engines.sglang.engine import answer
from kvroom.engines.sglang.flags import attention_groups
from kvroom.engines.sglang.models import taken
from kvroom.engines.sglang.start_rules import START_RULES

__all__ = ["START_RULES", "answer", "attention_groups", "taken"]

"""How a checkpoint stores its weights: which tensors are narrowed, to what, and what stays 16-bit.

``named`` gives the usual checkpoint of a ``weight_dtype``, ``from_config`` what a config says of its
own. Either answers ``dtype_of(tensor, layer)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.models.quantization.base import Quantisation, rule_in
from kvroom.models.quantization.names import WEIGHT_DTYPES, named

__all__ = ["WEIGHT_DTYPES", "Quantisation", "from_config", "named"]


def from_config(config: Mapping[str, Any]) -> Quantisation | None:
    """What the config's ``quantization_config`` says; None for a checkpoint at its own width.

    Also where it is nested (``text_config``) or called ``compression_config``. An unknown method is
    taken at the bits that it states, else as 16-bit, with a warning. Raises KvroomError naming the
    key for what cannot be read.
    """
    found = rule_in(config)
    if found is None:
        return None
    from kvroom.models.quantization import configs

    return configs.read(*found)

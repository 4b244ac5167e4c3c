"""How a checkpoint stores its weights: which tensors are narrowed, to what, and what stays 16-bit.

``named`` gives the usual checkpoint of a ``weight_dtype``, ``from_config`` what a config says of its
own. Either answers ``dtype_of(tensor, layer)``.
"""

from kvroom.models.quantisation.base import Quantisation
from kvroom.models.quantisation.configs import from_config
from kvroom.models.quantisation.names import WEIGHT_DTYPES, named

__all__ = ["WEIGHT_DTYPES", "Quantisation", "from_config", "named"]

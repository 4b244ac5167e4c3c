"""kvroom: you are not renting the weights, you are renting the cache."""

__version__ = "0.1.0"

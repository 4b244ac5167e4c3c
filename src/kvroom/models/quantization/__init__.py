"""How a checkpoint stores its weights: which tensors are narrowed, to what, and what stays 16-bit.

``base`` has the Quantisation that answers ``dtype_of(tensor, layer)``, ``configs`` reads what a config says
of its own; the usual checkpoint of a ``weight_dtype`` is in ``models.weight_dtypes``.
"""

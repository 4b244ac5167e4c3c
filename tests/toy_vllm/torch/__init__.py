"""As much of torch as asking an engine touches."""

import sys
import types
from contextlib import nullcontext

bfloat16 = "bfloat16"


class device(nullcontext):
    def __init__(self, name):
        super().__init__()
        self.type = name


class Tensor:
    pass


cuda = types.SimpleNamespace()
library = types.SimpleNamespace(register_fake=lambda name, function=None: function)
_ops = types.ModuleType("torch._ops")
_ops._OpNamespace = type("_OpNamespace", (), {"__getattr__": lambda self, name: None})
overrides = types.ModuleType("torch.overrides")
overrides.TorchFunctionMode = type("TorchFunctionMode", (nullcontext,), {})
sys.modules.update({"torch._ops": _ops, "torch.overrides": overrides})

"""What stands in for a card, its driver and its compiled kernels, in the Python of an installed engine.

Loaded there by path (``observe/installed/child.py``) for the engines' own scripts, which ask an engine that
runs no model: nothing of its making is computed with. Standard library only, torch where it is called.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import re
import sys
import tempfile
import types
from collections.abc import Callable
from contextlib import nullcontext
from math import prod
from pathlib import Path
from typing import Any

LARGE_BYTES = 2**26
"""A table of so many bytes is not laid out whole."""


class Absent:
    """What stands in for a kernel: it has any attribute, and tells that it supports what it is asked. Nothing
    of its making is a number, a size or a tensor."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return absent(f"{self.name}.{name}")

    def __or__(self, other: object) -> object:
        return other  # in annotations

    __ror__ = __or__

    def __mro_entries__(self, bases: object) -> tuple[()]:
        return ()

    def __get_pydantic_core_schema__(self, *_: object) -> Any:
        """A field of pydantic's models that takes anything."""
        return importlib.import_module("pydantic_core").core_schema.any_schema()

    def __call__(self, *_: object, **__: object) -> Any:
        """True of what tells whether something is supported, else another of its kind."""
        return True if "support" in self.name or "available" in self.name else Absent(self.name)


class AbsentError(Exception):
    """What a kernel's package would raise."""


class AbsentType:
    """A kernel's class, of which there is nothing."""


TYPES = frozenset(("JITFunction", "Autotuner"))
"""Classes of Triton's that others ask of what they have."""


def absent(name: str) -> Any:
    """What stands in for ``name``: an exception's class where it reads like one."""
    if name in TYPES:
        return AbsentType
    return AbsentError if "Error" in name else Absent(name)


class AbsentQueue:
    """What stands in for a card's stream or event: nothing is on its way there."""

    def __init__(self, *_: object, **__: object) -> None:
        self.device = None

    def wait_stream(self, other: object) -> None:
        """Nothing to wait for."""

    wait_event = record = wait = synchronize = wait_stream


class AbsentModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports compiled modules (``compiled``), and packages that are not installed (``packages``), as
    modules of ``Absent``."""

    def __init__(self, compiled: re.Pattern[str], packages: re.Pattern[str]) -> None:
        self.compiled, self.packages = compiled, packages

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """As importlib asks."""
        package = self.packages.fullmatch(name)
        if not (self.compiled.fullmatch(name) or (package and self.lacks(package[1]))):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def lacks(self, package: str) -> bool:
        """Whether ``package`` is not installed; a folder without modules is none."""
        parent = sys.modules.get(package.rpartition(".")[0])
        for path in sys.path if parent is None else parent.__path__:
            spec = importlib.machinery.PathFinder.find_spec(package, [path])
            if spec is not None and spec.loader is not None:
                return False
        return True

    def exec_module(self, module: types.ModuleType) -> None:
        """As importlib asks."""

        def get(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return absent(name)

        module.__getattr__ = get  # type: ignore[method-assign]
        module.__version__ = "0"  # type: ignore[attr-defined]


class TritonConfig:
    """A kernel's launch configuration, which modules read at their import."""

    def __init__(
        self, kwargs: Any = None, num_warps: int = 4, num_stages: int = 2, **_: Any
    ) -> None:
        self.kwargs, self.num_warps, self.num_stages = kwargs or {}, num_warps, num_stages


def stand_in_for_driver(card: dict[str, Any]) -> None:
    """Let torch tell of a card that is not there, to modules that ask it and not their engine's platform."""
    import torch

    capability = tuple(map(int, card["capability"].split(".")))
    facts = types.SimpleNamespace(
        name=card["name"],
        total_memory=card["memory_bytes"],
        multi_processor_count=card.get("multiprocessors") or 132,
        major=capability[0],
        minor=capability[1],
        is_integrated=bool(card.get("unified")),
        shared_memory_per_block_optin=228 * 1024,
        L2_cache_size=50 * 2**20,
        warp_size=32,
    )
    told: dict[str, Callable[..., Any]] = {
        "get_device_capability": lambda *_: capability,
        "get_device_properties": lambda *_: facts,
        "get_device_name": lambda *_: card["name"],
        "device_count": lambda: card["count"],
        "current_device": lambda: 0,
        "Stream": AbsentQueue,
        "Event": AbsentQueue,
        "current_stream": lambda *_: AbsentQueue(),
        "stream": lambda *_: nullcontext(),
        "set_device": lambda *_: None,
        "empty_cache": lambda: None,
        "synchronize": lambda *_: None,
        "graph_pool_handle": lambda: (0, 0),
    }
    for name, value in told.items():
        setattr(torch.cuda, name, value)
    program, listed = (
        Path("nvidia-smi").absolute(),
        card.get("listed_bytes") or card["memory_bytes"],
    )
    program.write_text(f"#!/bin/sh\necho {listed // 2**20}\n")
    program.chmod(0o755)
    os.environ["PATH"] = f"{program.parent}{os.pathsep}{os.environ.get('PATH', '')}"


def stand_in_for_kernels(compiled: str, packages: str, spaces: tuple[str, ...]) -> None:
    """Let modules import that name kernels which are not there: ``compiled`` modules, ``packages`` that a
    server's environment has (patterns; a package is the first group), operators of torch whose name space
    begins with one of ``spaces``."""
    import torch

    ops: Any = importlib.import_module("torch._ops")
    sys.meta_path.insert(0, AbsentModules(re.compile(compiled), re.compile(packages)))
    namespace: Any = ops._OpNamespace
    known, fake = namespace.__getattr__, torch.library.register_fake

    def get(self: Any, name: str) -> Any:
        try:
            return known(self, name)
        except AttributeError:
            own = str(self.name).startswith(spaces)
            if name.startswith("__") or not own:
                raise
            return Absent(name)

    def register(name: Any, function: Any = None, /, **more: Any) -> Any:
        def registered(function: Any) -> Any:
            try:
                return fake(name, function, **more)
            except RuntimeError:
                return function  # of a kernel that is not there

        return registered if function is None else registered(function)

    namespace.__getattr__ = get
    torch.library.register_fake = register


def on_meta() -> Any:
    """A torch mode in which what would be laid onto a card has a shape and no bytes."""
    return _placed(lambda _: "meta")


def off_card() -> Any:
    """A torch mode in which numbers that would be laid onto a card lie in main memory, and what else would
    (weights, caches) has a shape and no bytes."""
    import torch

    read = (None, torch.bool, torch.int32, torch.int64, torch.uint64)
    return _placed(lambda dtype: "cpu" if dtype in read else "meta")


def _placed(place: Callable[[Any], str]) -> Any:
    """A torch mode that puts what is made for a card to ``place`` of its dtype."""
    import torch

    mode: Any = importlib.import_module("torch.overrides").TorchFunctionMode

    def named(value: object) -> bool:
        return isinstance(value, str | torch.device) and str(value).startswith("cuda")

    class OffCard(mode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            kwargs.pop("pin_memory", None)
            device = kwargs.get("device")
            if named(device) or (isinstance(device, int) and not isinstance(device, bool)):
                kwargs["device"] = place(kwargs.get("dtype"))
            args = tuple(place(None) if named(arg) else arg for arg in args)
            if func in (torch.zeros, torch.empty) and kwargs.get("device") == "cpu":
                return _sparse(func, args, kwargs)
            return func(*args, **kwargs)

    return OffCard()


def _sparse(func: Any, args: Any, kwargs: Any) -> Any:
    """A tensor of zeros; a large one lies in a file without a name, and takes as much as is written to it."""
    import torch

    shape = tuple(args[0] if args and isinstance(args[0], tuple | list) else args or kwargs["size"])
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    count = prod(shape)
    if count * dtype.itemsize < LARGE_BYTES:
        return func(*args, **kwargs)
    with tempfile.NamedTemporaryFile(dir=".") as file:
        made = torch.from_file(file.name, shared=True, size=count, dtype=dtype)
    return made.view(shape)

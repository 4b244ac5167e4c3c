"""``dataclass`` as the standard library has it, but quick to define.

Python 3.11 compiles six methods of a frozen dataclass when the class is made, about half a millisecond
each time: with some 170 classes a third of what a plan costs in all. Here ``__init__`` is compiled when
it is first looked up, and the others are plain functions over the fields. ``fields``, ``replace`` and
``asdict`` work on these classes, and type checkers see the standard decorator. A class and those that
inherit from it use the same decorator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from dataclasses import MISSING, FrozenInstanceError, fields
    from dataclasses import dataclass as standard
    from operator import attrgetter
    from reprlib import recursive_repr

    def dataclass(cls=None, /, *, frozen=False, eq=True, slots=False, kw_only=False, repr=True):  # noqa: A002
        """The class with what ``dataclasses.dataclass`` would give it."""

        def made(cls):
            own = vars(cls)
            hashed = own.get("__hash__") is not None
            mutable = own.get("__hash__", MISSING) is None and "__eq__" not in own
            if not cls.__doc__:
                cls.__doc__ = cls.__name__  # else the standard one writes a signature, at length
            made = standard(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
            if "__init__" not in own:
                made.__init__ = _LateInit(made, frozen)
            if repr and "__repr__" not in own:
                made.__repr__ = _repr
            if eq:
                _compare(made, "__eq__" in own, frozen, hashed or mutable)
            if frozen:
                made.__setattr__, made.__delattr__ = _refuse_set, _refuse_delete
                if slots:
                    made.__setstate__ = _restore
            return made

        return made if cls is None else made(cls)

    class _LateInit:
        """Stands for ``__init__`` until somebody looks it up."""

        def __init__(self, cls, frozen):
            self._cls, self._frozen = cls, frozen

        def __get__(self, instance, owner=None):
            init = self._cls.__init__ = _init(self._cls, self._frozen)
            return init.__get__(instance, owner)

    def _init(cls, frozen):
        """The ``__init__`` of ``cls``: a parameter a field, defaults and factories as declared."""
        names = {"_set": object.__setattr__, "_missing": MISSING}
        parameters, named, body = [], [], []
        for field in fields(cls):
            value = field.name
            if field.default_factory is not MISSING:
                names[f"_new_{field.name}"] = field.default_factory
                value = f"_new_{field.name}()"
                default = "=_missing"
                if field.init:
                    value += f" if {field.name} is _missing else {field.name}"
            elif field.default is not MISSING:
                names[f"_default_{field.name}"] = field.default
                default = f"=_default_{field.name}"
            else:
                default = ""
            if field.init:
                (named if field.kw_only else parameters).append(field.name + default)
            elif field.default_factory is MISSING:
                continue
            body.append(
                f" _set(self, {field.name!r}, {value})"
                if frozen
                else f" self.{field.name} = {value}"
            )
        if hasattr(cls, "__post_init__"):
            body.append(" self.__post_init__()")
        head = ", ".join(["self", *parameters, *(["*", *named] if named else [])])
        exec(f"def __init__({head}):\n" + "\n".join(body or [" pass"]), names)
        init = names["__init__"]
        init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
        init.__annotations__ = {field.name: field.type for field in fields(cls) if field.init} | {
            "return": None
        }
        return init

    def _compare(cls, has_eq, frozen, has_hash):
        """``==`` by the fields that are compared, and the hash that goes with it."""
        compared = _values([field.name for field in fields(cls) if field.compare])
        hashed = _values(
            [
                field.name
                for field in fields(cls)
                if (field.compare if field.hash is None else field.hash)
            ]
        )

        def __eq__(self, other):
            if other.__class__ is self.__class__:
                return compared(self) == compared(other)
            return NotImplemented

        def __hash__(self):
            return hash(hashed(self))

        if not has_eq:
            cls.__eq__ = __eq__
        if not has_hash:
            cls.__hash__ = __hash__ if frozen else None

    def _values(names):
        """What gives the fields ``names`` of an instance as a tuple."""
        if len(names) > 1:
            return attrgetter(*names)
        return lambda self: tuple(getattr(self, name) for name in names)

    @recursive_repr()
    def _repr(self):
        shown = ", ".join(
            f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr
        )
        return f"{self.__class__.__qualname__}({shown})"

    def _refuse_set(self, name, _):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_delete(self, name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def _restore(self, state):
        """What pickle and copy put back."""
        for values in state:
            for name, value in (values or {}).items():
                object.__setattr__(self, name, value)

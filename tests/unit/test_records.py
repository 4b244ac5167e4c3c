"""The quick ``dataclass`` does what the standard one does."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any, ClassVar

import pytest

from kvroom import records

FLAVOURS: tuple[dict[str, Any], ...] = (
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "kw_only": True},
    {"frozen": True, "eq": False},
)


def defined(decorator: Any, flavour: dict[str, Any]) -> tuple[type[Any], type[Any]]:
    @decorator(**flavour)
    class Base:
        """A base."""

        kinds: ClassVar[int] = 3
        width: int
        names: list[str] = dataclasses.field(default_factory=list, hash=False)
        total: int = dataclasses.field(init=False, default=0, repr=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.width + len(self.names))

    @decorator(**flavour)
    class Derived(Base):
        """A derived one."""

        note: str = dataclasses.field(default="-", compare=False)
        last: int = dataclasses.field(default=7, kw_only=True)

    return Base, Derived


def outcome(call: Any) -> Any:
    try:
        return call()
    except (TypeError, AttributeError) as error:
        return type(error)


@pytest.mark.parametrize("flavour", FLAVOURS, ids=str)
def test_as_the_standard_one(flavour: dict[str, Any]) -> None:
    ours, theirs = [
        answers(*defined(d, flavour)) for d in (records.dataclass, dataclasses.dataclass)
    ]
    assert ours == theirs


def answers(base: type[Any], derived: type[Any]) -> list[Any]:
    one = derived(width=4, names=["a"], note="x")
    same, other = derived(width=4, names=["a"]), derived(width=5)
    found = [
        repr(one),
        repr(other),
        one == same,
        one == other,
        one == base(width=4, names=["a"]),
        outcome(lambda: hash(one) == hash(same)),
        outcome(
            lambda: {base(width=1): 1}[base(width=1)] if base.__eq__ is not object.__eq__ else 0
        ),
        outcome(lambda: derived(4, ["a"], "y")),
        outcome(derived),
        outcome(lambda: derived(width=1, wrong=2)),
        outcome(lambda: setattr(one, "width", 9)),
        outcome(lambda: delattr(copy.copy(one), "width")),
        outcome(lambda: setattr(one, "unknown", 9)) is None,
        copy.deepcopy(one).names,
        copy.copy(one).width,
        dataclasses.asdict(one),
        dataclasses.replace(one, names=[]).names if "total" not in derived.__match_args__ else 0,
        [f.name for f in dataclasses.fields(derived)],
        derived.__match_args__,
        [(p.name, p.kind) for p in inspect.signature(derived).parameters.values()],
        one.names is not other.names,
        hasattr(one, "__dict__"),
    ]
    return [repr(each) for each in found]


@records.dataclass(frozen=True, slots=True)
class Pair:
    left: int
    right: tuple[int, ...] = ()


@records.dataclass(frozen=True)
class Single:
    value: int

    def __hash__(self) -> int:
        return 5

    def __repr__(self) -> str:
        return "one"


def test_what_a_class_writes_itself_stays() -> None:
    assert hash(Single(3)) == 5
    assert repr(Single(3)) == "one"
    assert Single(3) == Single(3) != Single(4)


def test_frozen_slots_are_pickled() -> None:
    pair = Pair(1, (2, 3))
    assert pickle.loads(pickle.dumps(pair)) == pair
    with pytest.raises(dataclasses.FrozenInstanceError, match="left"):
        pair.left = 2  # type: ignore[misc]


def test_fields_without_a_default_come_first() -> None:
    @records.dataclass
    class Wrong:
        first: int = 1
        second: int  # type: ignore[misc]

    with pytest.raises((SyntaxError, TypeError)):
        Wrong(1, 2)

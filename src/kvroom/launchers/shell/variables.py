"""A script's variables, and what else is known of them: what a condition would have made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from kvroom.errors import KvroomError
from kvroom.records import dataclass

MAX_CHARACTERS = 200_000
Value = str | list[str]
Output = tuple[str, tuple[str, ...]]
"""What is printed, and what to know of how it came about."""


def too_long(text: str) -> KvroomError:
    """That a value grew beyond what any script means."""
    fix = "Give the part that starts the engine."
    return KvroomError("--from-command", text[:40], "grows longer than any command", fix)


@dataclass(slots=True)
class Variables:
    """``values`` by name; ``settings`` (``--set``) are those that a script starts with, and hold where what
    it assigns cannot be told; ``notes`` are what to know of a name's value; ``computed`` are names whose
    value only a program's output could tell; ``exported`` names are seen by programs. ``outputs`` tells
    what the commands of a text would print, where that can be told; ``script`` is ``$0``."""

    values: dict[str, Value] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    computed: frozenset[str] = frozenset()
    arguments: list[str] = field(default_factory=list)
    exported: frozenset[str] = frozenset()
    outputs: Callable[[str], Output | None] | None = None
    script: str = ""

    def get(self, name: str) -> Value | None:
        """The value of ``name``; None where it has none."""
        if name == "#":
            given = sum(setting.isdecimal() for setting in self.settings)
            return str(len(self.arguments) or given)
        if name in ("@", "*"):
            return list(self.arguments)
        if name == "0" and self.script:
            return self.script
        if name.isdecimal():
            at = int(name[:6])
            if 0 < at <= len(self.arguments):
                return self.arguments[at - 1]
            return self.settings.get(name)
        return self.values.get(name, self.settings.get(name))

    def text(self, name: str) -> str | None:
        """The value as one text; an array's is its first element."""
        value = self.get(name)
        if isinstance(value, list):
            return value[0] if value else ""
        return value

    def put(self, name: str, value: Value, notes: tuple[str, ...] = ()) -> None:
        """Assign ``value``; KvroomError where it grows without end."""
        size = len(value) if isinstance(value, str) else len(value) + sum(map(len, value))
        if size > MAX_CHARACTERS:
            raise too_long(name)
        self.values[name] = value
        self.computed -= {name}
        if notes:
            self.notes[name] = notes
        else:
            self.notes.pop(name, None)

    def drop(self, name: str) -> None:
        """Take the value away."""
        self.values.pop(name, None)
        self.notes.pop(name, None)
        self.exported -= {name}

    def copy(self) -> Variables:
        """The same, on its own."""
        values = {
            key: list(value) if isinstance(value, list) else value
            for key, value in self.values.items()
        }
        return Variables(
            values, self.settings, dict(self.notes), self.computed, list(self.arguments),
            self.exported, self.outputs, self.script,
        )  # fmt: skip

"""Whether a test holds: ``[ … ]``, ``test``, ``[[ … ]]``, by the values that are known."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

from kvroom.launchers.shell.arithmetic import NotKnown
from kvroom.launchers.shell.expand import Expander
from kvroom.launchers.shell.variables import Variables
from kvroom.records import dataclass

MAX_TERMS = 100
_FILE_TESTS = frozenset(f"-{c}" for c in "abcdefghkprstuwxGLNOS")
_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b, "-ne": lambda a, b: a != b, "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b, "-gt": lambda a, b: a > b, "-ge": lambda a, b: a >= b,
}  # fmt: skip
_PATTERNS = frozenset(("=", "==", "!="))


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """``holds`` is None where only a running shell could tell; ``certain`` is whether every value that was
    read is known and hangs on nothing that is not (a variable without a value counts as empty, as a shell
    has it)."""

    holds: bool | None
    certain: bool

    def negated(self) -> TestOutcome:
        """The contrary."""
        return TestOutcome(None if self.holds is None else not self.holds, self.certain)


TRUE, FALSE, UNKNOWN = TestOutcome(True, True), TestOutcome(False, True), TestOutcome(None, False)


class TestCommand:
    """The words of one test, each expanded as it is read."""

    __test__ = False  # no test of pytest's

    def __init__(self, words: list[str], variables: Variables, *, double: bool) -> None:
        self.words, self.double, self.at = words, double, 0
        self.expander = Expander(variables, empty=True)
        self.variables = variables

    def outcome(self) -> TestOutcome:
        """Whether it holds."""
        if len(self.words) > MAX_TERMS:
            return UNKNOWN
        try:
            holds = self._any() if self.words else False
        except (NotKnown, re.error, OverflowError):
            holds = None
        if self.expander.opaque:
            return UNKNOWN
        doubtful = self.expander.missing or self.expander.notes
        return TestOutcome(holds, holds is not None and not doubtful)

    def _peek(self) -> str:
        return self.words[self.at] if self.at < len(self.words) else ""

    def _take(self) -> str:
        self.at += 1
        return self.words[self.at - 1] if self.at <= len(self.words) else ""

    def _any(self, depth: int = 0) -> bool | None:
        holds = self._all(depth)
        while self._peek() in ("-o", "||"):
            self._take()
            other = self._all(depth)
            holds = True if True in (holds, other) else None if None in (holds, other) else False
        return holds

    def _all(self, depth: int) -> bool | None:
        holds = self._term(depth)
        while self._peek() in ("-a", "&&"):
            self._take()
            other = self._term(depth)
            holds = False if False in (holds, other) else None if None in (holds, other) else True
        return holds

    def _term(self, depth: int) -> bool | None:
        word = self._take()
        if depth > 12:
            raise NotKnown
        if word == "!" and self.at < len(self.words):
            holds = self._term(depth + 1)
            return None if holds is None else not holds
        if word in ("(", r"\("):
            holds = self._any(depth + 1)
            self._take()
            return holds
        following = self._peek()
        if (
            following in _PATTERNS
            or following in _NUMBERS
            or following in ("=~", "<", ">", r"\<", r"\>")
        ):
            self._take()
            return self._compared(word, following, self._take())
        if word in ("-z", "-n") and following:
            empty = not self.expander.text(self._take())
            return empty if word == "-z" else not empty
        if word == "-v" and following:
            name = self.expander.text(self._take()).partition("[")[0]
            value = self.variables.get(name)
            if value is None:
                self.expander.missing.append(name)
            return value is not None
        if word in _FILE_TESTS and following:
            self._take()
            return None
        return bool(self.expander.text(word))

    def _compared(self, left: str, sign: str, right: str) -> bool | None:
        a = self.expander.text(left)
        if sign in _NUMBERS:
            b = self.expander.text(right)
            if self.double:
                return _NUMBERS[sign](self.expander.number(a), self.expander.number(b))
            if not re.fullmatch(r"\s*[-+]?\d{1,18}\s*", a) or not re.fullmatch(
                r"\s*[-+]?\d{1,18}\s*", b
            ):
                return False  # a shell complains, and goes on as where it does not hold
            return _NUMBERS[sign](int(a), int(b))
        if sign == "=~":
            return _matches(self.expander.text(right), a)
        b = self.expander.text(right)
        if sign in _PATTERNS:
            same = pattern_matches(right, b, a) if self.double else a == b
            return same == (sign != "!=")
        return a < b if sign.endswith("<") else a > b


def pattern_matches(typed: str, pattern: str, value: str) -> bool:
    """Whether a ``case`` pattern, or that of ``[[ a == b ]]``, matches; quoted it is taken as it is."""
    if typed[:1] in "'\"" and typed[-1:] == typed[:1]:
        return pattern == value
    return fnmatch.fnmatchcase(value[:2_000], pattern)


def _matches(pattern: str, value: str) -> bool | None:
    """``=~``: None for a pattern that might take forever."""
    if len(value) > 200 or len(pattern) > 200 or re.search(r"[*+}]\)?[*+{]|\)[*+{]|\\\d", pattern):
        return None
    if pattern.count("*") + pattern.count("+") > 3:
        return None
    translated = pattern
    for name, chars in (
        ("digit", "0-9"),
        ("alpha", "A-Za-z"),
        ("alnum", "A-Za-z0-9"),
        ("space", r"\s"),
    ):
        translated = translated.replace(f"[:{name}:]", chars)
    if re.search(r"\[\[|--|&&|~~|\|\|", translated):
        return None  # what Python's sets may come to mean
    return re.search(translated, value) is not None

"""A shell's arithmetic: whole numbers of 64 bits, variables, assignments."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

MAX_DEPTH = 12
_TOKEN = re.compile(
    r"\s*(\d+#[0-9a-zA-Z]+|0[xX][0-9a-fA-F]+|\d+|[A-Za-z_]\w*"
    r"|\+\+|--|\*\*|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[-+*/%<>=!&|^~?:(),])"
)


class NotKnown(Exception):
    """What a text comes to cannot be told: ``name`` is a variable without a value, or ""."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.name = name


def _unknown() -> int:
    raise NotKnown


def _divided(a: int, b: int) -> int:
    if b == 0:
        raise NotKnown
    return -(-a // b) if (a < 0) != (b < 0) else a // b


_BINARY: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {
        "<": lambda a, b: int(a < b), ">": lambda a, b: int(a > b),
        "<=": lambda a, b: int(a <= b), ">=": lambda a, b: int(a >= b),
    },
    {"<<": lambda a, b: a << (b & 63), ">>": lambda a, b: a >> (b & 63)},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": _divided, "%": lambda a, b: a - b * _divided(a, b)},
    {"**": lambda a, b: pow(a, b, 2**64) if b >= 0 else _unknown()},
)  # fmt: skip

_LEVELS = {sign: level for level, signs in enumerate(_BINARY) for sign in signs}


def _wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


class ShellArithmetic:
    """One text's value; ``value_of`` gives a variable's text (or raises NotKnown), ``assign`` takes one."""

    def __init__(
        self, value_of: Callable[[str], str], assign: Callable[[str, str], None], depth: int = 0
    ) -> None:
        self.value_of, self.assign, self.depth = value_of, assign, depth
        self.tokens: list[str] = []
        self.at = 0

    def value(self, text: str) -> int:
        """The value of ``text``; NotKnown where it has none."""
        self.tokens, self.at, i = [], 0, 0
        text = text.strip()
        while i < len(text):
            match = _TOKEN.match(text, i)
            if match is None:
                raise NotKnown
            self.tokens.append(match[1])
            i = match.end()
        if not self.tokens:
            return 0
        value = self._comma(self.depth)
        if self.at < len(self.tokens):
            raise NotKnown
        return value

    def _peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1] if self.at <= len(self.tokens) else ""

    def _comma(self, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise NotKnown
        value = self._assignment(depth)
        while self._peek() == ",":
            self._take()
            value = self._assignment(depth)
        return value

    def _assignment(self, depth: int) -> int:
        name = self._peek()
        sign = self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else ""
        assigns = sign.endswith("=") and sign not in ("==", "!=", "<=", ">=")
        if not assigns or not name.isidentifier():
            return self._ternary(depth)
        self.at += 2
        if depth > MAX_DEPTH:
            raise NotKnown
        value = self._assignment(depth + 1)
        if sign != "=":
            level = next(level for level in _BINARY if sign[:-1] in level)
            value = _wrapped(level[sign[:-1]](self._variable(name), value))
        self.assign(name, str(value))
        return value

    def _ternary(self, depth: int) -> int:
        value = self._binary(0, depth)
        if self._peek() != "?":
            return value
        self._take()
        yes = self._comma(depth + 1)
        if self._take() != ":":
            raise NotKnown
        no = self._comma(depth + 1)
        return yes if value else no

    def _binary(self, least: int, depth: int) -> int:
        value = self._unary(depth)
        while (level := _LEVELS.get(self._peek(), -1)) >= least:
            sign = self._take()
            value = _wrapped(_BINARY[level][sign](value, self._binary(level + 1, depth)))
        return value

    def _unary(self, depth: int) -> int:
        signs: list[str] = []
        while (sign := self._peek()) in ("-", "+", "!", "~"):
            signs.append(self._take())
        if sign in ("++", "--"):
            self._take()
            name = self._take()
            value = self._variable(name) + (1 if sign == "++" else -1)
            self.assign(name, str(value))
        else:
            value = self._primary(depth)
        for sign in reversed(signs):
            value = {"-": -value, "+": value, "!": int(not value), "~": ~value}[sign]
        return _wrapped(value)

    def _primary(self, depth: int) -> int:
        token = self._take()
        if token == "(":
            value = self._comma(depth + 1)
            if self._take() != ")":
                raise NotKnown
            return value
        if token[:1].isdigit():
            return self._number(token)
        if not token.isidentifier():
            raise NotKnown
        value = self._variable(token)
        if (sign := self._peek()) in ("++", "--"):
            self._take()
            self.assign(token, str(value + (1 if sign == "++" else -1)))
        return value

    def _variable(self, name: str) -> int:
        text = self.value_of(name).strip()
        if re.fullmatch(r"-?\d{1,20}", text):
            return _wrapped(int(text))
        if not text:
            return 0
        if self.depth >= MAX_DEPTH:
            raise NotKnown
        return ShellArithmetic(self.value_of, self.assign, self.depth + 1).value(text)

    @staticmethod
    def _number(token: str) -> int:
        try:
            if "#" in token:
                base, _, digits = token.partition("#")
                return _wrapped(int(digits, int(base)))
            if token[:2].lower() == "0x":
                return _wrapped(int(token, 16))
            return _wrapped(
                int(token, 8) if token[0] == "0" and len(token) > 1 else int(token[:30])
            )
        except ValueError:
            raise NotKnown from None

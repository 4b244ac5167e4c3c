"""What a shell makes of a word: quotes, variables with their defaults, arrays, arithmetic.

What only a running shell could tell (a variable without a value, a program's output) stays as it is typed.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable

from kvroom.launchers.shell.arithmetic import NotKnown, ShellArithmetic
from kvroom.launchers.shell.braces import braced
from kvroom.launchers.shell.scan import ASSIGNMENT, METACHARACTERS, continued, past, word_end
from kvroom.launchers.shell.variables import MAX_CHARACTERS, Value, Variables, too_long

MAX_DEPTH = 12
LONGEST_PATTERN_SUBJECT = 2_000
_PARAMETER = re.compile(
    r"(?P<sign>[!#]?)(?P<name>[A-Za-z_]\w*|\d+|[@*#?$!-])(?:\[(?P<index>[^\]]*)\])?(?P<rest>.*)",
    re.DOTALL,
)
_SHORT = re.compile(r"\$([A-Za-z_]\w*|[0-9@*#?$!-])")
_DEFAULT = re.compile(r"(:?)([-=+?])(.*)", re.DOTALL)
_ALL = re.compile(r"\$\{(?:[A-Za-z_]\w*\[@\]|@)")
_SLICE = re.compile(r":(\s?-?\d{1,9})(?::(\d{1,9}))?")
_BLANK = re.compile(r"[ \t\r\n]+")
_IN_QUOTES = re.compile(r'\\([$`"\\])')
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
_NAMES = re.compile(r"\$\{?([A-Za-z_]\w*|\d+)")
_ARITHMETIC = re.compile(r"\$\(\((.*?)\)\)", re.DOTALL)
_CASES: dict[str, Callable[[str], str]] = {
    "^^": str.upper,
    ",,": str.lower,
    "^": lambda v: v[:1].upper() + v[1:],
    ",": lambda v: v[:1].lower() + v[1:],
}
LAST_STATUS = "?"


def names_in(text: str) -> tuple[str, ...]:
    """The variables that ``text``, as it was typed, would take, each once."""
    names = [m[1] for m in _NAMES.finditer(text)]
    for inner in _ARITHMETIC.finditer(text):
        names += re.findall(r"[A-Za-z_]\w*", inner[1])
    return tuple(dict.fromkeys(names))


class Expander:
    """Expands words by ``variables``.

    ``missing`` gathers the names without a value that were read, ``notes`` what to know of those that have
    one, ``opaque`` is whether a program's output was. With ``empty`` a name without a value is empty, as
    it is in a shell, and does not stay as typed; with ``literal`` every ``$`` does.
    """

    def __init__(
        self,
        variables: Variables,
        *,
        empty: bool = False,
        literal: bool = False,
        depth: int = 0,
    ) -> None:
        self.variables, self.empty, self.literal, self.depth = variables, empty, literal, depth
        self.missing: list[str] = []
        self.notes: list[str] = []
        self.opaque = False

    def fields(self, words: Iterable[str]) -> list[str]:
        """The words that ``words`` become: none, one or many of each."""
        out: list[str] = []
        for word in words:
            for part in [word] if self.literal else braced(word):
                out += self._fields(part)
        return out

    def text(self, word: str) -> str:
        """The one text that ``word`` becomes, unsplit (as in an assignment)."""
        return " ".join(self._fields(word, split=False))

    def here_document(self, body: str) -> str:
        """A here-document's body, in which quotes are characters."""
        return self._quoted(body)

    def assigned(self, word: str) -> tuple[str, Value, bool] | None:
        """(name, value, whether to append) of an assignment; None where ``word`` is none."""
        match = ASSIGNMENT.match(word)
        if match is None:
            return None
        typed = word[match.end() :]
        if typed.startswith("(") and typed.endswith(")"):
            return match[1], self.fields(_elements(typed[1:-1])), match[3] == "+"
        return match[1], self.text(typed), match[3] == "+"

    def _fields(self, word: str, *, split: bool = True) -> list[str]:
        out: list[str] = []
        current: str | None = None
        size = 0
        i, count = 0, len(word)
        while i < count:
            c, pair = word[i], word[i : i + 2]
            if c == "\\":
                after = continued(word, i)
                piece, i = ("", after) if after > i else (word[i + 1 : i + 2], i + 2)
            elif c == "'":
                end = word.index("'", i + 1)
                piece, i = word[i + 1 : end], end + 1
            elif pair == "$'":
                end = past(word, i)
                piece, i = self._ansi(word[i + 2 : end - 1]), end
            elif c == '"':
                end = past(word, i)
                values = self._quoted_fields(word[i + 1 : end - 1])
                for value in values[:-1]:
                    out.append((current or "") + value)
                    current = None
                i = end
                if not values:
                    continue
                piece = values[-1]
            elif c in "$`":
                values, i = self._dollar(word, i, split=split)
                if not values:
                    continue
                for value in values[:-1]:
                    out.append((current or "") + value)
                    current = None
                piece = values[-1]
            else:
                end = i + 1
                while end < count and word[end] not in "\\'\"$`":
                    end += 1
                piece, i = word[i:end], end
            current = (current or "") + piece
            size += len(piece)
            if size > MAX_CHARACTERS:
                raise too_long(word)
        if current is not None:
            out.append(current)
        return out

    @staticmethod
    def _ansi(text: str) -> str:
        return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), text)

    def _quoted_fields(self, body: str) -> list[str]:
        """``"${A[@]}"`` is a word an element; anything else in double quotes is one word."""
        if body == "$@":
            return list(self.variables.arguments)
        if _ALL.match(body) and past(body, 0) == len(body):
            value = self._parameter(body[2:-1], body)
            if value != body:
                return list(value) if isinstance(value, list) else [value] if value else []
            return [] if self.empty else [body]
        return [self._quoted(body)]

    def _quoted(self, body: str) -> str:
        out: list[str] = []
        i, count, size = 0, len(body), 0
        while i < count:
            c = body[i]
            if c == "\\":
                after = continued(body, i)
                if after > i and body[i + 1 : i + 2] in ("\n", "\r"):
                    piece, i = "", after
                else:
                    match = _IN_QUOTES.match(body, i)
                    piece, i = (match[1], i + 2) if match else (body[i : i + 2], i + 2)
            elif c in "$`":
                values, i = self._dollar(body, i, split=False)
                piece = " ".join(values)
            else:
                end = i + 1
                while end < count and body[end] not in "\\$`":
                    end += 1
                piece, i = body[i:end], end
            out.append(piece)
            size += len(piece)
            if size > MAX_CHARACTERS:
                raise too_long(body)
        return "".join(out)

    def _dollar(self, text: str, at: int, *, split: bool) -> tuple[list[str], int]:
        """(the words that the ``$`` or backtick at ``at`` becomes, past it)."""
        if self.literal:
            end = past(text, at) if text[at : at + 2] in ("${", "$(") else at + 1
            return [text[at:end]], end
        if text[at] == "`":
            try:
                end = past(text, at)
            except ValueError:
                return ["`"], at + 1
            inner = re.sub(r"\\([$`\\])", r"\1", text[at + 1 : end - 1])
            return self._split(self._substitution(f"$({inner})"), split), end
        pair = text[at : at + 2]
        if pair == "${":
            end = past(text, at)
            return self._split(self._parameter(text[at + 2 : end - 1], text[at:end]), split), end
        if pair == "$(":
            end = past(text, at)
            return self._split(self._substitution(text[at:end]), split), end
        match = _SHORT.match(text, at)
        if match is None:
            return ["$"], at + 1
        value = self._get(match[1])
        if value is None:
            return [] if self.empty else [match[0]], match.end()
        if isinstance(value, list) and match[1] not in ("@", "*"):
            value = value[0] if value else ""
        return self._split(value, split), match.end()

    @staticmethod
    def _split(value: Value, split: bool) -> list[str]:
        if isinstance(value, list):
            return list(value) if split else [" ".join(value)]
        if not split or value.startswith("$("):
            return [value]
        return [word for word in _BLANK.split(value) if word]

    def _get(self, name: str) -> Value | None:
        """The value of ``name``, noted; None where it has none."""
        if name == LAST_STATUS:
            self.opaque = True
            return "0"
        value = self.variables.get(name)
        self.notes += self.variables.notes.get(name, ())
        if name in self.variables.computed:
            self.opaque = True
            self.missing.append(name)
            return None
        if value is None and name not in "$!-":
            self.missing.append(name)
        return value

    def _substitution(self, typed: str) -> str:
        """``$((…))``'s value, or what programs that only print would say."""
        if typed.startswith("$((") and typed.endswith("))"):
            return self._arithmetic(typed)
        outputs = self.variables.outputs
        output = outputs(typed[2:-1]) if outputs is not None and self.depth < MAX_DEPTH else None
        if output is None:
            self.opaque = True
            return typed
        self.notes += output[1]
        return output[0]

    def _join(self, inner: Expander) -> None:
        self.missing += inner.missing
        self.notes += inner.notes
        self.opaque = self.opaque or inner.opaque

    def _arithmetic(self, typed: str) -> str:
        body = typed[3:-2]
        inner = Expander(self.variables, empty=self.empty, depth=self.depth + 1)
        if self.depth >= MAX_DEPTH:
            self.opaque = True
            return typed
        text = inner._quoted(body)
        self._join(inner)
        try:
            return str(self.number(text))
        except NotKnown:
            self.opaque = True
            return typed

    def number(self, text: str) -> int:
        """The value of an arithmetic text; NotKnown where it has none."""
        return ShellArithmetic(self._for_arithmetic, self.variables.put).value(text)

    def _for_arithmetic(self, name: str) -> str:
        value = self._get(name)
        if value is None:
            if self.empty:
                return ""
            raise NotKnown(name)
        return value if isinstance(value, str) else value[0] if value else ""

    def _parameter(self, body: str, typed: str) -> Value:
        """``${…}``: ``typed`` where it has no value."""
        match = _PARAMETER.fullmatch(body)
        if match is None or self.depth >= MAX_DEPTH:
            self.opaque = True
            return typed
        name, index, rest = match["name"], match["index"], match["rest"]
        if match["sign"] == "!":
            target = self.variables.text(name)
            return typed if target is None else self._parameter(target + rest, typed)
        if default := _DEFAULT.fullmatch(rest):
            return self._default(name, index, default, typed)
        value = self._element(name, index)
        if value is None:
            return "" if self.empty else typed
        if match["sign"] == "#":
            return str(len(value))
        if not rest:
            return value if index in ("@", "*") or name in "@*" else self._plain(value)
        if isinstance(value, list) and (cut := _SLICE.fullmatch(rest)):
            begin = int(cut[1]) - (1 if name in "@*" and int(cut[1]) > 0 else 0)
            return value[begin:] if cut[2] is None else value[begin:][: int(cut[2])]
        if isinstance(value, list):
            return [_changed(v, rest, self) for v in value]
        return _changed(value, rest, self)

    @staticmethod
    def _plain(value: Value) -> str:
        return value if isinstance(value, str) else value[0] if value else ""

    def _element(self, name: str, index: str | None) -> Value | None:
        value = self._get(name)
        if index is None or index in ("@", "*") or value is None:
            return value
        try:
            at = self.number(index)
        except NotKnown:
            return None
        values = [value] if isinstance(value, str) else value
        return values[at] if -len(values) <= at < len(values) else ""

    def _default(self, name: str, index: str | None, match: re.Match[str], typed: str) -> Value:
        before = len(self.missing)
        value = self._element(name, index)
        computed = self.opaque and len(self.missing) > before and name in self.variables.computed
        unset = value is None or (match[1] == ":" and not value)
        if match[2] == "?" or computed:  # a default is for what is not set, which this is
            return typed if value is None and not self.empty else value or ""
        del self.missing[before:]
        if match[2] == "+":
            return "" if unset else self._inner(match[3])
        if not unset and value is not None:
            return value if index in ("@", "*") else self._plain(value)
        other = self._inner(match[3])
        if match[2] == "=":
            self.variables.put(name, other)
        return other

    def _inner(self, text: str) -> str:
        inner = Expander(self.variables, empty=self.empty, depth=self.depth + 1)
        value = inner.text(text)
        self._join(inner)
        return value


def _elements(text: str) -> list[str]:
    """The raw words of an array's text."""
    words: list[str] = []
    i, count = 0, len(text)
    while i < count:
        after = continued(text, i)
        if after > i:
            i = after
        elif text[i] == "#" and (i == 0 or text[i - 1].isspace()):
            end = text.find("\n", i)
            i = count if end < 0 else end
        elif text[i] in METACHARACTERS:
            i += 1
        else:
            end = max(word_end(text, i), i + 1)
            words.append(text[i:end])
            i = end
    return words


def _changed(value: str, rest: str, expander: Expander) -> str:
    """``${name REST}``: cut, replaced, its case changed."""
    if len(value) > LONGEST_PATTERN_SUBJECT:
        return value
    if match := re.fullmatch(r"(##?|%%?)(.*)", rest, re.DOTALL):
        return _without(value, match[1], expander.text(match[2]))
    if match := re.fullmatch(r"(//?)((?:\\.|[^/])*)(?:/(.*))?", rest, re.DOTALL):
        pattern = expander.text(match[2])
        other = expander.text(match[3] or "").replace("\\", r"\\")
        finder = re.compile(fnmatch.translate(pattern)[:-2])  # not to the end
        return finder.sub(other, value, count=match[1] == "/") if pattern else value
    if match := re.fullmatch(r":(\s?-?\d{1,9})(?::(-?\d{1,9}))?", rest):
        begin = int(match[1])
        end = None if match[2] is None else int(match[2])
        cut = value[begin:]
        return cut if end is None else cut[:end]
    change = _CASES.get(rest)
    return change(value) if change else value


def _without(value: str, sign: str, pattern: str) -> str:
    """``value`` without what ``pattern`` matches at its beginning (``#``) or end (``%``)."""
    matches = re.compile(fnmatch.translate(pattern)).match
    lengths = range(len(value) + 1)
    for length in lengths if len(sign) == 1 else reversed(lengths):
        if sign[0] == "#" and matches(value[:length]):
            return value[length:]
        if sign[0] == "%" and matches(value[len(value) - length :]):
            return value[: len(value) - length]
    return value

"""The words of a shell's text: comments, line continuations, operators, variables, files written on the way.

No shell is run: what only one could tell (``$(nproc)``, a variable that the text does not set) stays as
it is typed, to be named by whoever wants its value.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from kvroom.errors import KvroomError

SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ash", "ksh", "fish"))
_HEREDOC = re.compile(
    r"(?:cat|tee)\s+(?:>\s*)?(\S+)\s*(?:>\s*/dev/null\s*)?<<-?\s*['\"]?(\w+)['\"]?[ \t]*\n"
    r"(.*?)\n\s*\2[ \t]*(?:\n|$)",
    re.DOTALL,
)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_INLINE = re.compile(r"-[a-z]*c")
_INNER = re.compile(r"\$\([^()\n]*\)")
_MARK = "\ue000"
_HIDDEN = re.compile(f"{_MARK}(\\d+){_MARK}")
_SEPARATORS = frozenset(";|&()<>\n")


def written_files(text: str) -> tuple[str, dict[str, str]]:
    """(``text`` without the files that it writes, their contents by name)."""
    return _HEREDOC.sub("\n", text), {m[1].strip("'\""): m[3] for m in _HEREDOC.finditer(text)}


def words_of(text: str) -> list[str]:
    """The shell's words; newlines and operators are words of their own.

    KvroomError where a quote is not closed.
    """
    joined = re.sub(r"[\\`^][ \t]*\r?\n", " ", _uncommented(text.replace(_MARK, "")))
    inner: list[str] = []

    def hidden(m: re.Match[str]) -> str:
        inner.append(m[0])
        return f"{_MARK}{len(inner) - 1}{_MARK}"

    lexer = shlex.shlex(
        _INNER.sub(hidden, joined), posix=True, punctuation_chars="".join(_SEPARATORS)
    )
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:
        raise KvroomError(
            "--from-command", text.strip(), "has a quote that is not closed", "Close it."
        ) from None
    return [_HIDDEN.sub(lambda m: inner[int(m[1])], word) for word in words]


def _uncommented(text: str) -> str:
    """``text`` without its comments: from a # at a word's beginning to the end of the line."""
    code: list[str] = []
    quote, before, skip = "", "\n", False
    for c in text:
        if skip:
            skip = c != "\n"
        elif quote:
            quote = "" if c == quote and before != "\\" else quote
        elif c in "'\"" and before != "\\":
            quote = c
        elif c == "#" and before.isspace():
            skip = True
        if not skip:
            code.append(c)
        before = "" if before == "\\" else c
    return "".join(code)


def simple_commands(words: Iterable[str]) -> Iterable[list[str]]:
    """The words of each simple command."""
    current: list[str] = []
    for word in words:
        if word and set(word) <= _SEPARATORS:
            if current:
                yield current
            current = []
        else:
            current.append(word)
    if current:
        yield current


def substituted(word: str, env: Mapping[str, str]) -> str:
    """``word`` with the variables that the text itself sets (or gives a default) put in."""

    def value(m: re.Match[str]) -> str:
        name = m[1] or m[3]
        if name in env:
            return env[name]
        return m[2] if m[2] is not None else m[0]

    return _VARIABLE.sub(value, word) if "$" in word else word


def inner_text(words: Sequence[str]) -> str | None:
    """What ``bash -c TEXT`` and the like hand to another shell: TEXT; None where there is none."""
    shell = False
    for word, following in pairwise(words):
        shell = shell or base_name(word) in SHELLS or word == "eval"
        if shell and (word == "eval" or _INLINE.fullmatch(word)):
            return following
    return None


def base_name(word: str) -> str:
    """A program's name without its folder; any Python is ``python``."""
    name = re.split(r"[/\\]", word)[-1]
    return "python" if re.fullmatch(r"python[\d.]*", name) else name

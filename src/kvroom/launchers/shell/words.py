"""Words without a script: of a command as text, and of what one shell hands to another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from kvroom.launchers.shell.expand import Expander
from kvroom.launchers.shell.scan import METACHARACTERS, continued, word_end
from kvroom.launchers.shell.variables import Variables

SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ash", "ksh", "fish"))
_VARIABLE = re.compile(r"\$\$|\$(?:\{(\w+)(?:(:?[-+?])([^}]*))?\}|([A-Za-z_]\w*))")
_INLINE = re.compile(r"-[a-z]*c")


def words_of(text: str) -> list[str]:
    """The words of one command as text, over however many lines; variables stay as they are typed.

    KvroomError where a quote is not closed.
    """
    words: list[str] = []
    i = 0
    while i < len(text):
        if (after := continued(text, i)) > i:
            i = after
        elif text[i] == "#" and (i == 0 or text[i - 1].isspace()):
            end = text.find("\n", i)
            i = len(text) if end < 0 else end
        elif text[i] in METACHARACTERS:
            i += 1
        else:
            end = max(word_end(text, i), i + 1)
            words += Expander(Variables(), literal=True).fields([text[i:end]])
            i = end
    return words


def substituted(word: str, env: Mapping[str, str]) -> str:
    """``word`` with the variables that ``env`` has, or that it gives a default, put in: as compose does."""

    def value(m: re.Match[str]) -> str:
        name, sign, other = m[1] or m[4], m[2] or "", m[3] or ""
        if name is None:
            return m[0]
        known = env.get(name)
        if sign.endswith("+"):
            return other if known or (known is not None and sign == "+") else ""
        if known is not None and (known or not sign.startswith(":")):
            return known
        return other if sign.endswith("-") else m[0]

    return _VARIABLE.sub(value, word) if "$" in word else word


def inner_text(words: Sequence[str]) -> str | None:
    """What ``bash -c TEXT`` and the like hand to another shell: TEXT; None where there is none."""
    shell = False
    for word, following in pairwise(words):
        shell = shell or base_name(word) in SHELLS
        if shell and _INLINE.fullmatch(word):
            return following
    return None


def base_name(word: str) -> str:
    """A program's name without its folder; any Python is ``python``."""
    name = re.split(r"[/\\]", word)[-1]
    return "python" if re.fullmatch(r"python[\d.]*", name) else name

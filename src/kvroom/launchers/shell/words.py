"""Words without a script: of a command as text, and of what one shell hands to another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

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
    count = 0
    while count < len(text):
        if (after := continued(text, count)) > count:
            count = after
        elif text[count] == "#" and (count == 0 or text[count - 1].isspace()):
            end = text.find("\n", count)
            count = len(text) if end < 0 else end
        elif text[count] in METACHARACTERS:
            count += 1
        else:
            end = max(word_end(text, count), count + 1)
            words += Expander(Variables(), literal=True).fields([text[count:end]])
            count = end
    return words


def substituted(word: str, env: Mapping[str, str]) -> str:
    """``word`` with the variables that ``env`` has, or that it gives a default, put in: as compose does."""

    def value(found_match: re.Match[str]) -> str:
        name, sign, other = (
            found_match[1] or found_match[4],
            found_match[2] or "",
            found_match[3] or "",
        )
        if name is None:
            return found_match[0]
        known = env.get(name)
        if sign.endswith("+"):
            return other if known or (known is not None and sign == "+") else ""
        if known is not None and (known or not sign.startswith(":")):
            return known
        return other if sign.endswith("-") else found_match[0]

    return _VARIABLE.sub(value, word) if "$" in word else word


def inner_text(words: Sequence[str]) -> str | None:
    """What ``bash -c TEXT`` and the like hand to another shell: TEXT; None where there is none.

    Options may stand between, ``--`` that ends them among these."""
    shell = False
    for at, word in enumerate(words, 1):
        shell = shell or base_name(word) in SHELLS
        if shell and _INLINE.fullmatch(word):
            return next((text for text in words[at:] if not text.startswith("-")), None)
    return None


def base_name(word: str) -> str:
    """A program's name without its folder; any Python is ``python``."""
    name = re.split(r"[/\\]", word)[-1]
    return "python" if re.fullmatch(r"python[\d.]*", name) else name

"""What programs that only print would say: ``echo``, ``printf``, ``seq``, ``basename``, ``tr``, ``cut`` …

Nothing is run: each is a function of its words and of the text that it reads, and what it does not know of is
not told (None).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from kvroom.launchers.shell.arithmetic import NotKnown, ShellArithmetic

MOST_LINES = 1_000
MOST_CHARACTERS = 20_000
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "0": "", "a": "", '"': '"'}
_NUMBER = re.compile(r"-?\d{1,9}")
Program = Callable[[Sequence[str], str | None], str | None]


def printed(words: Sequence[str], standard_input: str | None) -> str | None:
    """What the command says on standard output; None where only a run could tell."""
    program = _PROGRAMS.get(words[0]) if words else None
    if program is None:
        return None
    try:
        text = program(words[1:], standard_input)
    except (ValueError, NotKnown, OverflowError):
        return None
    return text if text is None or len(text) <= MOST_CHARACTERS else None


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), text)


def _echo(words: Sequence[str], _: str | None) -> str:
    end, escapes = "\n", False
    while words and re.fullmatch(r"-[neE]+", words[0]):
        end = "" if "n" in words[0] else end
        escapes = "e" in words[0] or (escapes and "E" not in words[0])
        words = words[1:]
    text = " ".join(words)
    return (_unescaped(text) if escapes else text) + end


def _printf(words: Sequence[str], _: str | None) -> str | None:
    if words[:1] == ["--"]:
        words = words[1:]
    if not words or words[0].startswith("-"):
        return None
    form, values = _unescaped(words[0]), list(words[1:])
    places = len(re.findall(r"%[-0-9.]*[sdq]", form.replace("%%", "")))
    if re.search(r"%(?!%|[-0-9.]*[sd])", form):
        return None
    text = ""
    while True:
        text += _formatted(form, values[:places])
        values = values[places:]
        if not values or not places or len(text) > MOST_CHARACTERS:
            return text


def _formatted(form: str, values: Sequence[str]) -> str:
    rest = list(values)

    def value(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        given = rest.pop(0) if rest else ""
        if re.search(r"\d{4}", match[0]):
            raise ValueError(match[0])
        return match[0] % (int(given or 0) if match[0].endswith("d") else given)

    return re.sub(r"%(?:%|[-0-9.]*[sd])", value, form)


def _seq(words: Sequence[str], _: str | None) -> str | None:
    separator, numbers, width = "\n", [], 0
    at = 0
    while at < len(words):
        word = words[at]
        if word == "-w":
            width = 1
        elif word == "-s":
            at += 1
            separator = words[at] if at < len(words) else ""
        elif word.startswith("-s"):
            separator = word[2:]
        elif _NUMBER.fullmatch(word):
            numbers.append(int(word))
        else:
            return None
        at += 1
    if not 0 < len(numbers) <= 3:
        return None
    first, last = (1, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[-1])
    step = numbers[1] if len(numbers) == 3 else 1
    if step == 0:
        return None
    values = range(first, last + (1 if step > 0 else -1), step)
    if len(values) > MOST_LINES:
        return None
    digits = max((len(str(value)) for value in values), default=0) * width
    return separator.join(f"{value:0{digits}d}" for value in values) + "\n" * bool(values)


def _basename(words: Sequence[str], _: str | None) -> str | None:
    words = [word for word in words if word != "--"]
    if not 0 < len(words) <= 2 or words[0].startswith("-"):
        return None
    name = words[0].rstrip("/").rpartition("/")[2] or "/"
    ending = words[1] if len(words) == 2 else ""
    return f"{name.removesuffix(ending) if name != ending else name}\n"


def _dirname(words: Sequence[str], _: str | None) -> str | None:
    words = [word for word in words if word != "--"]
    if len(words) != 1 or words[0].startswith("-"):
        return None
    folder, slash, _ = words[0].rstrip("/").rpartition("/")
    return f"{folder or ('/' if slash else '.')}\n"


def _expr(words: Sequence[str], _: str | None) -> str | None:
    text = " ".join(words)
    if not re.fullmatch(r"[\d\s+*/%()-]+", text):
        return None
    return f"{ShellArithmetic(lambda name: name, lambda name, value: None).value(text)}\n"


def _set_of(text: str) -> str:
    text = _unescaped(text)
    for name, chars in (
        ("[:lower:]", "abcdefghijklmnopqrstuvwxyz"), ("[:upper:]", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        ("[:digit:]", "0123456789"), ("[:space:]", " \t\n"),
    ):  # fmt: skip
        text = text.replace(name, chars)
    if "[:" in text:
        raise ValueError(text)

    def span(match: re.Match[str]) -> str:
        return "".join(map(chr, range(ord(match[1]), ord(match[2]) + 1)))

    return re.sub(r"([A-Za-z0-9])-([A-Za-z0-9])", span, text)


def _tr(words: Sequence[str], text: str | None) -> str | None:
    if text is None or not words:
        return None
    if words[0] in ("-d", "-s") and len(words) == 2:
        chars = _set_of(words[1])
        if words[0] == "-d":
            return "".join(sign for sign in text if sign not in chars)
        return re.sub(rf"([{re.escape(chars)}])\1+", r"\1", text)
    if len(words) != 2 or words[0].startswith("-"):
        return None
    before, after = _set_of(words[0]), _set_of(words[1])
    if not after:
        return None
    after += after[-1] * (len(before) - len(after))
    return text.translate(dict(zip(map(ord, before), after, strict=False)))


def _wc(words: Sequence[str], text: str | None) -> str | None:
    if text is None or len(words) != 1:
        return None
    counts = {"-l": text.count("\n"), "-w": len(text.split()), "-c": len(text.encode())}
    return f"{counts[words[0]]}\n" if words[0] in counts else None


def _cut(words: Sequence[str], text: str | None) -> str | None:
    joined = " ".join(words)
    match = re.fullmatch(r"-d\s?(.)\s+-f\s?(\d+)|-f\s?(\d+)\s+-d\s?(.)", joined)
    if match is None or text is None:
        return None
    sign, at = match[1] or match[4], int(match[2] or match[3])
    lines = []
    for line in text.splitlines():
        parts = line.split(sign)
        lines.append(line if len(parts) == 1 else parts[at - 1] if 0 < at <= len(parts) else "")
    return "".join(f"{line}\n" for line in lines)


def _lines(words: Sequence[str], text: str | None, *, first: bool) -> str | None:
    match = re.fullmatch(r"-(?:n\s?)?(\d+)", " ".join(words)) if words else None
    if text is None or (words and match is None):
        return None
    many = int(match[1]) if match else 10
    lines = text.splitlines()
    kept = lines[:many] if first else lines[max(0, len(lines) - many) :] if many else []
    return "".join(f"{line}\n" for line in kept)


def _cat(words: Sequence[str], text: str | None) -> str | None:
    return text if not words or list(words) == ["-"] else None


_PROGRAMS: dict[str, Program] = {
    "echo": _echo, "printf": _printf, "seq": _seq, "basename": _basename, "dirname": _dirname, "expr": _expr,
    "tr": _tr, "wc": _wc, "cut": _cut, "cat": _cat, "xargs": lambda words, text: None if words or text is None
    else " ".join(text.split()) + "\n",
    "head": lambda words, text: _lines(words, text, first=True),
    "tail": lambda words, text: _lines(words, text, first=False),
}  # fmt: skip
PRINTERS = frozenset(_PROGRAMS)

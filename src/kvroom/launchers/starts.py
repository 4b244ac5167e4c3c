"""Which commands start an engine: by their program, by a container's image, within other shells too."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import lru_cache
from itertools import pairwise

from kvroom.engines.command_line import CommandLine
from kvroom.engines.registry import command_lines
from kvroom.launchers.nearby import NOWHERE, Nearby
from kvroom.launchers.shell.run import Shell
from kvroom.launchers.shell.variables import Value, Variables
from kvroom.launchers.shell.words import SHELLS, base_name, inner_text, substituted
from kvroom.records import dataclass

MAX_DEPTH = 6
"""Shells within shells."""
_DOCKER_SWITCHES = """
    -d -i -t -it -ti -dit -itd -P --rm --init --privileged --detach --interactive --tty
"""
DOCKER_SWITCHES = frozenset(_DOCKER_SWITCHES.split())
"""Options of ``docker run`` that take no value: the word behind any other is its value."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PREFIXES = frozenset(("export", "env", "set", "exec", "nohup", "sudo", "time", "command"))
_SPEAKERS = frozenset(
    ("echo", "printf", "logger", "pgrep", "pkill", "grep", "which", "pip", "uv", "alias")
)
"""Programs whose words may name an engine, and start none."""

_RUNS = frozenset(("run", "create"))
"""What starts a container, of what such programs do."""

Image = tuple[int, CommandLine, str]
"""Where an engine's container image stands among the words, whose it is, its tag."""


@dataclass(frozen=True)
class Start:
    """A command that starts an engine: the ``words`` behind its ``program``; ``version`` by the image.

    ``line`` is where it stands, ``environment`` the variables then, ``files`` those written on the way,
    ``notes`` what to know of how the script came to it; ``gpu``, ``gpus`` and
    ``replicas`` what its file gives.
    """

    command: CommandLine
    program: tuple[str, ...]
    words: list[str]
    version: str | None
    line: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    gpu: str | None = None
    gpus: int | None = None
    replicas: int = 1
    machines: int = 1
    follows: bool = False

    def value_of(self, name: str) -> str | None:
        """What a flag, by the engine's name, is given; "" for one without a value, None for one that is
        not there."""
        aliases = self.command.names.aliases
        for at, word in enumerate(self.words):
            typed, equals, value = word.lstrip("-").partition("=")
            typed = typed.replace("-", "_")
            if word.startswith("-") and aliases.get(typed, typed) == name:
                following = self.words[at + 1 : at + 2]
                taken = following[0] if following and not following[0].startswith("-") else ""
                return value if equals else taken
        return None

    @property
    def is_further_machine(self) -> bool:
        """Whether it is a further machine of a start elsewhere, by its own flags."""
        rank = self.value_of(self.command.machine_flags.rank) or ""
        return (
            self.follows
            or (rank.isdecimal() and int(rank) > 0)
            or self.value_of(self.command.machine_flags.follower) is not None
        )

    @property
    def own_machines(self) -> int:
        """How many machines its own flags or its object give it."""
        count = self.value_of(self.command.machine_flags.count) or ""
        return max(self.machines, int(count) if count.isdecimal() and len(count) < 4 else 1)


def _shell(settings: Mapping[str, str], env: Mapping[str, str], nearby: Nearby) -> Shell:
    values: dict[str, Value] = dict(env)
    variables = Variables(values, settings, exported=frozenset(env), script=nearby.path)
    return Shell(variables, _wanted, read=nearby.text, cards=nearby.cards)


def script_end(text: str, settings: Mapping[str, str], nearby: Nearby) -> str:
    """The ``exit`` by which a script that starts nothing ends; "" where it ends otherwise."""
    shell = _shell(settings, {}, nearby)
    return "" if shell.run(text) else shell.ended


def script_starts(
    text: str,
    settings: Mapping[str, str],
    env: Mapping[str, str] | None = None,
    depth: int = 0,
    nearby: Nearby = NOWHERE,
) -> Iterator[Start]:
    """The commands of a shell's text that start an engine; ``settings`` are variables that hold whatever it
    assigns, ``nearby`` the files that it sources."""
    shell = _shell(settings, env or {}, nearby)
    for command in shell.run(text):
        known = dict(command.variables)
        for start in words_starts(
            command.words, known, settings, command.standard_input, depth=depth, nearby=nearby
        ):
            line = command.line + start.line - 1 if depth == 0 else command.line
            unseen = _unseen(command.hidden, start) if depth == 0 else ()
            notes = (*command.notes, *start.notes, *unseen)
            yield replace(start, line=line, files={**shell.files, **start.files}, notes=notes)


def _unseen(hidden: tuple[str, ...], start: Start) -> Iterator[str]:
    """What to know of variables that the engine would read, were they exported."""
    for name in hidden:
        if name.lower() in start.command.variables or name in start.command.harmless:
            yield f"{name} is set and not exported: {start.command.label} does not see it"


def words_starts(
    words: list[str],
    env: dict[str, str],
    settings: Mapping[str, str],
    standard_input: str | None = None,
    *,
    depth: int = 0,
    nearby: Nearby = NOWHERE,
) -> Iterator[Start]:
    """The starts of one command; variables that are set on the way go into ``env``."""
    words = _after_assignments(words, env)
    image = _container(words, env, settings, nearby)
    if image is not None and (entry := _entrypoint(words[: image[0]])) is not None:
        words, image = [*entry, *words[image[0] + 1 :]], (len(words), *image[1:])
    inner = inner_text(words)
    if inner is None and standard_input is not None and _program(words) is None:
        inner = standard_input
    if inner is not None and depth < MAX_DEPTH:
        for start in script_starts(inner, settings, env, depth + 1, nearby):
            yield replace(start, version=start.version or _version(image, start.command), line=1)
    elif (start_here := _program(words)) is not None:
        version = _version(image, start_here.command)
        yield replace(start_here, version=version, environment=env)
    elif image is not None and image[0] < len(words):
        at, line, _ = image
        version = _version(image, line)
        yield Start(line, line.programs[0], words[at + 1 :], version, environment=env)


def interpolated(words: list[str], env: Mapping[str, str]) -> list[str]:
    """A manifest's words with its variables put in."""
    return [substituted(word, env) for word in words]


def _wanted(words: list[str], standard_input: str | None) -> bool:
    """Whether a command may start an engine."""
    if base_name(words[0]) in _SPEAKERS and words[:2] != ["uv", "run"]:
        return False
    if _program(words) is not None or _container(words, {}, {}) is not None:
        return True
    inner = inner_text(words)
    if inner is None and any(base_name(word) in SHELLS or "/" in word for word in words):
        inner = standard_input
    return inner is not None and _mentions().search(inner) is not None


@lru_cache(maxsize=1)
def _mentions() -> re.Pattern[str]:
    """A text that may start an engine."""
    programs = {program[-1] for line in command_lines() for program in line.programs}
    programs |= {program[0] for line in command_lines() for program in line.programs} - {"-m"}
    return re.compile("|".join([*map(re.escape, sorted(programs)), r"vllm|sglang|\$"]))


def _after_assignments(words: list[str], env: dict[str, str]) -> list[str]:
    """The words behind the variables that are set in front, which go into ``env``."""
    at = 0
    while at < len(words) and (_ASSIGNMENT.match(words[at]) or words[at] in _PREFIXES):
        name, equals, value = words[at].partition("=")
        if equals:
            env[name] = value
        at += 1
    return words[at:]


def _entrypoint(options: list[str]) -> list[str] | None:
    """What a container runs in place of its image's own program; None where it runs that."""
    for before, word in pairwise(options):
        if before == "--entrypoint":
            return [word] if word else []
        if word.startswith("--entrypoint="):
            return [word.partition("=")[2]]
    return None


def _container(
    words: list[str], env: dict[str, str], settings: Mapping[str, str], nearby: Nearby = NOWHERE
) -> Image | None:
    """An engine's image that ``docker run`` starts; the variables handed in go into ``env``."""
    if not words or base_name(words[0]) not in ("docker", "podman", "nerdctl", "sudo"):
        return None
    if not _RUNS & set(words):
        return None
    places = [
        index
        for index, (before, word) in enumerate(pairwise(words), 1)
        if not before.startswith("-") or "=" in before or before in DOCKER_SWITCHES
    ]  # of words that are no option's value, such as a name
    for index in places:
        for command in command_lines():
            if image := command.image.search(words[index]):
                _hand_in_all(words[:index], env, settings, nearby)
                return index, command, image[1] or ""
    behind = next(index for index, word in enumerate(words) if word in _RUNS)
    own = (index for index in places if index > behind and not words[index].startswith("-"))
    _hand_in_all(
        words[: next(own, len(words))], env, settings, nearby
    )  # up to an image unknown here
    return None


def _hand_in_all(
    options: list[str], env: dict[str, str], settings: Mapping[str, str], nearby: Nearby
) -> None:
    """The variables that a container's options hand in."""
    for flag, value in pairwise(options):
        if flag == "--env-file":
            env |= nearby.variables(value)
        elif flag in ("-e", "--env"):
            _hand_in(value, env, settings)


def _hand_in(value: str, env: dict[str, str], settings: Mapping[str, str]) -> None:
    """A container's variable: ``NAME=VALUE``, or ``NAME`` of the shell that starts it."""
    name, equals, text = value.partition("=")
    if equals and _ASSIGNMENT.match(value):
        env[name] = text
    if name in settings:
        env[name] = settings[name]


def _version(image: Image | None, command: CommandLine) -> str | None:
    """The release that the image's tag names."""
    if image is None or image[1] is not command:
        return None
    release = re.match(r"v?(\d+\.\d+(?:\.\d+)?(?:\.post\d+)?(?:[.-]?(?:rc|dev)\d*)?)", image[2])
    return release[1] if release else None


def _program(words: list[str]) -> Start | None:
    """The first program of an engine among the words."""
    for index, word in enumerate(words):
        for command in command_lines():
            for program in command.programs:
                end = index + len(program)
                if base_name(word) == program[0] and tuple(words[index + 1 : end]) == program[1:]:
                    if words[end : end + 1] == [command.optional_word]:
                        end += 1
                    return Start(command, program, words[end:], None)
    return None

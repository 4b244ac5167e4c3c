"""The names of an engine's flags, read from ``flags.ini`` beside the engine: one name a line.

``[elsewhere]`` are used, though not for memory (adapters, drafts, scheduling); ``[passed over]`` are known
and not used: those that only serve (HARMLESS) say nothing, the others are named. ``[aliases]`` are other
spellings (``name = flag``). ``[switches]``, ``[valued]``, ``[lists]`` tell apart how a command line writes
them where the name does not. ``[releases]`` are the first and the last release of those that not every
release has (``name = 0.11.1..`` or ``..0.10.2``), as ``tools/flag_releases.py`` reads them from sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from importlib import import_module
from pathlib import Path

from kvroom.engines.flags import plain_name
from kvroom.engines.releases import published
from kvroom.records import dataclass

HARMLESS = (  # compiled when it is first searched for
    r"(^|_)(host|port|ip|url|address|addr|rpc|api|key|token|tokenizer|auth|cors|origins|headers|methods|"
    r"credentials|ssl|tls|log|logs|logging|logger|verbose|verbosity|trace|traces|metrics|metric|"
    r"observability|telemetry|stats|prometheus|otlp|profiler|profile|timing|perf|chat|template|parser|"
    r"jinja|reasoning|tool|name|alias|path|dir|file|files|download|revision|code|offline|version|help|"
    r"seed|temp|top|min|repeat|penalty|presence|frequency|mirostat|dry|xtc|typical|sampler|samplers|"
    r"grammar|json|timeout|retry|health|warmup|root|media|domains|trust|response|prompt|middleware|"
    r"served|allow|allowed|color|threads|t|buckets|sleep|slots|webui|ui|signal|ws|wait|debug|crash|"
    r"dump|random|bench|fake|dummy|backlog|keep|keepalive|watchdog|request|requests|shutdown)(_|$)"
)
"""Words in the names of flags that bear on serving, logging and sampling alone."""
BEARING = re.compile(r"kv|cache|mem|offload|parallel|quant|swap|tier|moe|expert|graph|attention")
"""Parts of names that bear on memory or speed, whatever else is in them."""
ADDRESSES = re.compile(r"_(port|address|addr|ip|url|path|dir|metrics|metrics_sample|key)$")


def only_serves(name: str) -> bool:
    """Whether a flag of that name changes neither memory nor speed."""
    if ADDRESSES.search(name):
        return True
    return bool(re.search(HARMLESS, name)) and not BEARING.search(name)


@dataclass(frozen=True, slots=True)
class FlagNames:
    """Names with underscores, by what is done with them."""

    elsewhere: frozenset[str] = frozenset()
    passed_over: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)
    switches: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()
    releases: Mapping[str, str] = field(default_factory=dict)

    @property
    def others(self) -> frozenset[str]:
        """All that the reader of memory flags passes over."""
        return self.elsewhere | self.passed_over

    def unused(self, args: Iterable[str]) -> tuple[str, ...]:
        """What is to be said of those of ``args`` that are known and not used."""
        names = map(plain_name, args)
        return tuple(
            f"{name} is not used: it may change speed or memory"
            for name in names
            if name in self.passed_over and not only_serves(name)
        )

    def span(self, name: str) -> tuple[str, str]:
        """(the first release that has a flag, the last); "" where that is before or after all known."""
        first, _, last = self.releases.get(self.aliases.get(name, name), "..").partition("..")
        return first, last

    def lacks(self, name: str, version: str | None) -> str:
        """Why a release has no flag of that name, as a clause; "" where it has, or where ``version`` is
        no release as they are published."""
        first, last = self.span(name)
        release, since, until = published(version), published(first), published(last)
        if release is not None and since is not None and release < since:
            return f"came with {first}"
        if release is not None and until is not None and release > until:
            return f"went after {last}"
        return ""

    def gone(self, args: Iterable[str], version: str | None) -> tuple[str, ...]:
        """What is to be said of those of ``args`` that the newest releases lack, where none is named."""
        if version is not None and version.strip():
            return ()
        names = (plain_name(name) for name in args)
        return tuple(
            f"{name} went after {last}, and no version is given (--engine-version)"
            for name in names
            if (last := self.span(name)[1])
        )


def _sections(text: str) -> dict[str, dict[str, str]]:
    """The names below each ``[section]`` with what stands behind ``=``; ``#`` begins a comment."""
    found: dict[str, dict[str, str]] = {}
    names: dict[str, str] = {}
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            names = found.setdefault(line[1:-1], {})
        elif line and line[0] not in "#;":
            name, _, value = line.partition("=")
            names[name.strip()] = value.strip()
    return found


def flag_names(package: str, file: str = "flags.ini") -> FlagNames:
    """Those of the engine in ``package``."""
    sections = _sections((Path(import_module(package).__path__[0]) / file).read_text("utf-8"))

    def section(name: str) -> frozenset[str]:
        return frozenset(sections.get(name, ()))

    return FlagNames(
        elsewhere=section("elsewhere"),
        passed_over=section("passed over"),
        aliases=sections.get("aliases", {}),
        switches=section("switches"),
        valued=section("valued"),
        lists=section("lists"),
        releases=sections.get("releases", {}),
    )

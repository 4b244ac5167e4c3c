"""The names of an engine's flags, read from ``flags.ini`` beside the engine: one name a line.

``[elsewhere]`` are used, though not for memory (adapters, drafts, scheduling); ``[passed over]`` are known
and change nothing that kvroom says. ``[aliases]`` are other spellings (``name = flag``). ``[switches]``,
``[valued]``, ``[lists]`` tell apart how a command line writes them where the name does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from configparser import ConfigParser
from dataclasses import dataclass, field
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class FlagNames:
    """Names with underscores, by what is done with them."""

    elsewhere: frozenset[str] = frozenset()
    passed_over: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)
    switches: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()

    @property
    def others(self) -> frozenset[str]:
        """All that the reader of memory flags passes over."""
        return self.elsewhere | self.passed_over


def flag_names(package: str, file: str = "flags.ini") -> FlagNames:
    """Those of the engine in ``package``."""
    parser = ConfigParser(allow_no_value=True, delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    parser.read_string(files(package).joinpath(file).read_text(encoding="utf-8"))

    def section(name: str) -> frozenset[str]:
        return frozenset(parser[name]) if name in parser else frozenset()

    return FlagNames(
        elsewhere=section("elsewhere"),
        passed_over=section("passed over"),
        aliases=dict(parser["aliases"]) if "aliases" in parser else {},
        switches=section("switches"),
        valued=section("valued"),
        lists=section("lists"),
    )

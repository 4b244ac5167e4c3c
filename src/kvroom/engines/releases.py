"""Releases of an engine: which one a version text means, and the rules that hold in it.

An engine keeps one table of what each release brought; ``rules_at`` adds up what came until then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

Release = tuple[int, int, int]
Changes = tuple[tuple[Release, Mapping[str, Any]], ...]
T = TypeVar("T")

_NUMBER = re.compile(r"\s*[vV]?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?")
_PUBLISHED = re.compile(
    r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:\.post(\d{1,3}))?(?:[-+](?!.*(?:rc|dev|nightly|\.nv))[\w.-]+)?"
)


def published(text: str | None) -> tuple[int, int, int, int] | None:
    """The release that ``text`` names as it was published, and its post-release; its build (``-cu126``) is
    left aside. None of a candidate or a build between releases, which may have what either has."""
    match = _PUBLISHED.fullmatch((text or "").strip())
    if match is None:
        return None
    return int(match[1]), int(match[2]), int(match[3] or 0), int(match[4] or 0)


def shown(release: Release) -> str:
    """A release as people write it."""
    return ".".join(map(str, release))


def modelled(oldest: Release, changes: Iterable[tuple[Release, Any]]) -> tuple[str, ...]:
    """The releases whose rules differ from those before them, the newest first."""
    found = {oldest, *(release for release, _ in changes)}
    return tuple(shown(release) for release in sorted(found, reverse=True) if release >= oldest)


def nearest_release(
    engine: str, text: str | None, oldest: Release, newest: Release
) -> tuple[Release, str]:
    """The modelled release nearest to ``text``, and a warning ("" where none is due)."""
    if text is None or not text.strip():
        return newest, f"no {engine} version given: {shown(newest)} assumed (--engine-version)"
    match = _NUMBER.match(text)
    if match is None:
        why = f"'{text[:40]}' is no {engine} version"
        return newest, f"{why}: the rules of {shown(newest)} are used"
    release = (int(match[1]), int(match[2]), int(match[3] or 0))
    nearest = min(max(release, oldest), newest)
    if nearest != release:
        why = f"{engine} {shown(release)} is not modelled"
        return nearest, f"{why}: the rules of {shown(nearest)} are used"
    return release, ""


def rules_at(first: T, changes: Iterable[tuple[Release, Mapping[str, Any]]], release: Release) -> T:
    """The rules that hold in ``release``: ``first`` with every change up to then."""
    rules: Any = first
    for since, changed in changes:
        if since <= release:
            rules = replace(rules, **changed)
    result: T = rules
    return result

"""How an installed engine is asked: the script that its own Python runs (``observe/installed`` runs it)."""

from __future__ import annotations

from pathlib import Path

from kvroom.records import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedScript:
    """``package`` is what an environment must have, ``path`` the script that asks it, which imports
    nothing of kvroom; ``schedules``: its scheduler may be played too. ``install`` says how one gets it,
    ``longer_variable`` the variable that lets requests be longer than the model states."""

    package: str
    path: Path
    install: str
    schedules: bool = False
    longer_variable: str = ""

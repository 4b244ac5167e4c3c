"""How an installed engine is asked: the script that its own Python runs (``observe/installed`` runs it)."""

from __future__ import annotations

from pathlib import Path

from kvroom.records import dataclass

PARTS = ("config_folder", "decode_steps", "moved", "no_card")
"""What the scripts have in common."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedScript:
    """``package`` is what an environment must have, ``path`` the script that asks it, which imports of
    kvroom its ``parts`` only; ``schedules``: its scheduler may be played too. ``install`` says how one gets
    it, ``longer_variable`` the variable that lets requests be longer than the model states."""

    package: str
    path: Path
    install: str
    schedules: bool = False
    longer_variable: str = ""
    beside: tuple[str, ...] = ()
    """Modules of the engine's folder that the script imports."""
    by_free_memory: bool = False
    """It is told the memory that is free, and takes the cache's bytes from that itself."""

    @property
    def parts(self) -> dict[str, Path]:
        """Modules that the script may import, by name: they import nothing of kvroom."""
        room, own = Path(__file__).parent, self.path.parent
        shared = {f"{__package__}.{name}": room / f"{name}.py" for name in PARTS}
        beside = {f"{__package__}.{own.name}.{name}": own / f"{name}.py" for name in self.beside}
        return shared | beside

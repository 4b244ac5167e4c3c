"""Builds a wheel whose simulator is compiled: a build hook, off unless HATCH_BUILD_HOOK_ENABLE_CUSTOM=true.

mypyc makes one library of the modules that ``pyproject.toml`` lists for it. Their Python source goes into
the wheel as ever, for tracebacks and for those who read it; Python itself takes what is compiled first.
Nothing is written into ``src``: an editable install stays what its source says.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the compiled modules beside their source, and the platform in the wheel's name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless the wheel only points to the source."""
        if version == "editable":
            return
        self._made = TemporaryDirectory()
        made = Path(self._made.name)
        for library in compiled(Path(self.root), self.config["modules"], made):
            build_data["force_include"][str(library)] = str(library.relative_to(made / "lib"))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave nothing behind."""
        if version != "editable":
            self._made.cleanup()


def compiled(root: Path, modules: list[str], made: Path) -> list[Path]:
    """The libraries that ``modules`` of ``root/src`` become, under ``made/lib``."""
    import setuptools
    from mypyc.build import mypycify

    paths = [str(root / "src" / f"{name.replace('.', '/')}.py") for name in modules]
    settings = ["--config-file", str(root / "pyproject.toml")]
    extensions = mypycify(
        [*settings, *paths],
        target_dir=str(made / "c"),
        group_name="kvroom_compiled",
        debug_level="0",
    )
    built = setuptools.Distribution({"name": "kvroom", "ext_modules": extensions})
    command = built.get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(made / "lib"), str(made / "temp")
    command.ensure_finalized()
    command.run()
    return [path for path in (made / "lib").rglob("*") if path.is_file()]

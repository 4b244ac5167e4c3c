"""Run by the Python of an installed engine: answers questions in JSON lines, by the engine's own script.

``python child.py SCRIPT [NAME=PATH …]`` reads a question a line from its standard input,
``{"ask": NAME, …}``, and writes an answer a line to what was its standard output: what the method NAME of
the script's ``ENGINE`` gives, or ``{"error": KIND, "message": …}``. KIND is ``refused`` where the engine
itself refuses, ``missing`` where what is asked for is not there, ``failed`` otherwise. What the engine prints
goes to its standard error.

Standard library only: it imports nothing of kvroom, which that Python need not have. The script may import
the modules NAME, each loaded from its PATH, and nothing else of kvroom.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import traceback
from types import ModuleType
from typing import Any

MESSAGE_CHARACTERS = 4000


class Parts(importlib.abc.MetaPathFinder):
    """Finds modules by their paths, each in packages that hold nothing else."""

    def __init__(self, paths: dict[str, str]) -> None:
        self.paths = paths
        self.packages = {
            name[:place] for name in paths for place, mark in enumerate(name) if mark == "."
        }

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """As importlib asks."""
        if name in self.paths:
            return importlib.util.spec_from_file_location(name, self.paths[name])
        if name in self.packages:
            return importlib.machinery.ModuleSpec(name, None, is_package=True)
        return None


def script_at(path: str) -> ModuleType:
    """The engine's script as a module."""
    spec = importlib.util.spec_from_file_location("asked", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["asked"] = module
    spec.loader.exec_module(module)
    return module


def failure(error: BaseException, refusals: tuple[type[BaseException], ...]) -> dict[str, Any]:
    """An error as an answer."""
    kind = "failed"
    if isinstance(error, ImportError):
        kind = "missing"
    elif isinstance(error, refusals):
        kind = "refused"
    text = " ".join(str(error).split()) or type(error).__name__
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    place = "" if where is None else f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}"
    return {
        "error": kind,
        "type": type(error).__name__,
        "message": text[:MESSAGE_CHARACTERS],
        "place": place,
    }


def main(path: str, parts: dict[str, str]) -> None:
    """Answer until the questions end."""
    sys.meta_path.insert(0, Parts(parts))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the engine prints is no answer
    sys.stdout = sys.stderr
    asked: Any = None
    refusals: tuple[type[BaseException], ...] = ()
    encode = json.JSONEncoder(separators=(",", ":"), default=str).encode
    for line in sys.stdin:
        try:
            question = json.loads(line)
            if asked is None:
                script = script_at(path)
                refusals = script.REFUSALS
                asked = script.ENGINE()
            name = question.pop("ask")
            answer = getattr(asked, name)(**question)
        except KeyboardInterrupt:
            return
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            answer = failure(error, refusals)
        answers.write(encode(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], dict(part.split("=", 1) for part in sys.argv[2:]))

"""How the house stands: ``python tools/house.py`` prints its measures, which tests hold to their limits.

Files, lines, the median and the largest module, class names that stand twice, one-letter names, names that
do not say what they hold, engines' names outside their folders, and circles of imports (those for types and
those within functions counted).
"""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

SOURCE = Path(__file__).parents[1] / "src" / "kvroom"
VAGUE = frozenset(("asked", "found", "given", "held", "kept", "known", "made", "said", "told"))
"""Participles in place of a noun: they say what was done to a thing, and not what it is."""


@dataclass(frozen=True, kw_only=True)
class House:
    """Measures of a package; ``modules`` is lines by module, the others what they say, with places."""

    modules: Mapping[str, int]
    class_twice: Mapping[str, list[str]]
    one_letter: float
    vague: float
    engine_names: list[str]
    circles: list[list[str]]
    untyped: list[str]

    def rows(self) -> Iterator[tuple[str, str]]:
        """What each measure is, in words."""
        largest = max(self.modules, key=lambda name: self.modules[name])
        yield "modules", f"{len(self.modules)}"
        yield "lines of Python", f"{sum(self.modules.values()):,}"
        yield "median module", f"{median(self.modules.values()):.0f} lines"
        yield "largest module", f"{self.modules[largest]} lines ({largest})"
        yield "class names that stand twice", _listed(self.class_twice)
        yield "one-letter names", f"{self.one_letter:.1%} of all names"
        yield "names like found, made, told", f"{self.vague:.1%} of all names"
        yield "engines' names outside engines/ and data", _listed(self.engine_names)
        yield "circles of imports", _listed([" → ".join(circle) for circle in self.circles])
        yield "Any in scenario/", _listed(self.untyped)


def _listed(places: Mapping[str, object] | list[str]) -> str:
    return f"{len(places)}" + (f" ({', '.join(list(places)[:5])})" if places else "")


def measured(source: Path = SOURCE) -> House:
    """The measures of the package at ``source``."""
    trees = {_name(path, source): ast.parse(path.read_text("utf-8")) for path in _files(source)}
    lines = {_name(path, source): path.read_text("utf-8").count("\n") for path in _files(source)}
    classes: dict[str, list[str]] = defaultdict(list)
    names = letters = vague = 0
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(module)
            name = node.id if isinstance(node, ast.Name) else getattr(node, "arg", None)
            if isinstance(node, ast.Name | ast.arg) and name is not None:
                names += 1
                letters += len(name) == 1 and name != "_"
                vague += name in VAGUE
    return House(
        modules=lines,
        class_twice={name: places for name, places in classes.items() if len(places) > 1},
        one_letter=letters / names,
        vague=vague / names,
        engine_names=_engine_names(trees, source),
        circles=_circles(
            {module: set(_imports(module, tree, trees)) for module, tree in trees.items()}
        ),
        untyped=[
            f"{module}:{node.lineno}"
            for module, tree in trees.items()
            if module.startswith("kvroom.scenario.")
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and node.id == "Any"
        ],
    )


def _files(source: Path) -> list[Path]:
    return sorted(source.rglob("*.py"))


def _name(path: Path, source: Path) -> str:
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _engine_names(trees: Mapping[str, ast.Module], source: Path) -> list[str]:
    """Where a module outside ``engines/`` holds an engine's name as a value."""
    registry = json.loads((source / "engines" / "registry.json").read_text("utf-8"))
    known = set(re.findall(r'"([a-z][a-z0-9_.-]*)"', json.dumps(registry)))
    known &= {"vllm", "sglang", "tensorrt-llm", "trtllm", "llama.cpp", "ik_llama.cpp", "ollama"}
    return [
        f"{module}:{node.lineno}"
        for module, tree in trees.items()
        if not module.startswith("kvroom.engines")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in known
    ]


def _imports(module: str, tree: ast.Module, known: Mapping[str, object]) -> Iterator[str]:
    """The package's own modules that ``module`` imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found = whole if whole in known else node.module
                if found in known and found != module:
                    yield found
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name in known and a.name != module)


def _circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(imports.get(module, ())):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            group = []
            while True:
                group.append(stack.pop())
                if group[-1] == module:
                    break
            if len(group) > 1:
                circles.append(sorted(group))

    for module in sorted(imports):
        if module not in index:
            visit(module)
    return circles


if __name__ == "__main__":
    for label, value in measured().rows():
        print(f"{label:42}{value}")

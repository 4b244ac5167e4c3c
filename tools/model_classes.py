"""Write down which model classes a release of vLLM has: ``model_classes.py VERSION SITE [VERSION SITE …]``.

SITE is where the package ``vllm`` lies. Releases are given the oldest first: a class that a release has no
longer went after the one before. Classes that cannot be split into pipeline stages (vLLM's ``SupportsPP``)
are ``unstaged``, those that could not once have the release since which they can in ``staged``. With
transformers installed in the Python that runs this, classes that came or went are asked whether they take
vLLM's attention (``carried``), and of which model type they are (``types``), for configs that name no
class.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parents[1] / "src/kvroom/engines/vllm/model_classes.json"
REGISTRY = "vllm/model_executor/models/registry.py"
MAPPINGS = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES")
"""Where transformers names the class of a model type; of two the later holds."""
OTHERS = ("_PREVIOUSLY_SUPPORTED_MODELS", "_OOT_SUPPORTED_MODELS")
"""Tables of classes that a release has not."""


STAGES = "SupportsPP"
"""The interface of classes whose layers may lie on several pipeline stages."""


def classes_in(site: Path) -> dict[str, tuple[str, str]]:
    """The model classes in a release's registry, with the module and the name of each; empty without it."""
    path = site / REGISTRY
    if not path.is_file():
        return {}
    found: dict[str, tuple[str, str]] = {}
    for node in ast.parse(path.read_text("utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        names = [each.id for each in targets if isinstance(each, ast.Name)]
        value = getattr(node, "value", None)
        if isinstance(value, ast.Dict) and any(
            name.endswith("_MODELS") and name not in OTHERS for name in names
        ):
            for key, place in zip(value.keys, value.values, strict=True):
                if isinstance(key, ast.Constant):
                    parts = ast.literal_eval(place)
                    found[str(key.value)] = (str(parts[0]), str(parts[1]))
    return found


def staged_in(site: Path, classes: Mapping[str, tuple[str, str]]) -> set[str]:
    """Those of ``classes`` that are, or inherit from, one with vLLM's interface of stages."""
    modules: dict[str, dict[str, list[tuple[str, str]]]] = {}

    def bases(module: str) -> dict[str, list[tuple[str, str]]]:
        if module not in modules:
            modules[module] = _bases(site / Path(REGISTRY).parent, module)
        return modules[module]

    def staged(start: tuple[str, str]) -> bool:
        todo, seen = [start], {start}
        while todo:
            module, name = todo.pop()
            if name == STAGES:
                return True
            fresh = set(bases(module).get(name, ())) - seen
            seen |= fresh
            todo += fresh
        return False

    return {name for name, place in classes.items() if staged(place)}


def _bases(folder: Path, module: str) -> dict[str, list[tuple[str, str]]]:
    """Of each class in a module of models: the module and the name of each base; an alias has one."""
    inside, parent = module.replace(".", "/"), module.rpartition(".")[0]
    path = folder / f"{inside}.py"
    if not path.is_file():
        path, parent = folder / inside / "__init__.py", module
    if not path.is_file():
        return {}
    tree = ast.parse(path.read_text("utf-8"))
    from_where: dict[str, tuple[str, str]] = {}
    found: dict[str, list[tuple[str, str]]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            place = (node.module or "").removeprefix("vllm.model_executor.models.")
            place = f"{parent}.{place}".strip(".") if node.level else place
            for each in node.names:
                from_where[each.asname or each.name] = (place, each.name)
        elif isinstance(node, ast.ClassDef):
            named = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
            names = [base.id for base in named if isinstance(base, ast.Name)]
            found[node.name] = [(module, name) for name in names]
    for name, (place, real) in from_where.items():
        found.setdefault(name, []).append((place, real))
    return found


def with_stages(
    table: dict[str, Any], version: str, present: Iterable[str], staged: set[str]
) -> None:
    """Note which classes of a release, the newest, can be split into stages."""
    before = set(table["unstaged"].split())
    since = sorted(before & staged)
    if since:
        table["staged"][".".join(map(str, release_of(version)))] = " ".join(since)
    table["unstaged"] = " ".join(sorted((before | set(present)) - staged))


def release_of(version: str) -> tuple[int, ...]:
    """A release as its first three numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def with_release(
    table: dict[str, Any], version: str, present: Collection[str]
) -> tuple[list[str], list[str]]:
    """Add a release to ``table``; the classes that came with it and those that went. One that is not newer
    than those known adds nothing."""
    newest = table["newest"]
    if not present or (newest and release_of(version) <= release_of(newest)):
        return [], []
    version = ".".join(map(str, release_of(version)))
    for release, names in list(
        table["last"].items()
    ):  # one span a class: what came again never went
        table["last"][release] = " ".join(name for name in names.split() if name not in present)
    gone = {name for names in table["last"].values() for name in names.split()}
    known = {name for names in table["came"].values() for name in names.split()} - gone
    came, went = sorted(set(present) - known), sorted(known - set(present))
    table["newest"] = version
    if came:
        table["came"][version] = " ".join(came)
    if went:
        table["last"][newest] = " ".join(went)
    return came, went


def ask_transformers(table: dict[str, Any], fresh: set[str]) -> None:
    """Which of the ``fresh`` classes transformers stands in for, and of which model type each class of the
    table is, where it is installed."""
    try:
        transformers: Any = importlib.import_module("transformers")
        auto: Any = importlib.import_module("transformers.models.auto.modeling_auto")
    except ImportError:
        return
    carried = {name for name in fresh if _carried(transformers, name)}
    table["carried"] = " ".join(sorted({*table["carried"].split(), *carried}))
    table["transformers"] = transformers.__version__
    lists = [*list(table["came"].values())[1:], *table["last"].values()]
    lists += [*table["staged"].values(), table["unstaged"]]
    names = {name for each in lists for name in each.split()}
    types: dict[str, str] = {}
    for mapping in MAPPINGS:
        types |= dict(getattr(auto, mapping, {}))
    # a config of text alone stands for the whole model, as its checkpoint is published
    types |= {f"{kind}_text": made for kind, made in types.items() if f"{kind}_text" in types}
    table["types"] = {kind: made for kind, made in sorted(types.items()) if made in names}


def _carried(transformers: Any, name: str) -> bool:
    made = getattr(transformers, name, None)
    return bool(
        made is not None and hasattr(made, "is_backend_compatible") and made.is_backend_compatible()
    )


def main(arguments: list[str]) -> None:
    """The command."""
    table: dict[str, Any] = {"newest": "", "transformers": "", "came": {}, "last": {}}
    table |= {"carried": "", "types": {}, "staged": {}, "unstaged": ""}
    if TABLE.is_file():
        table = json.loads(TABLE.read_text())
    fresh: set[str] = set()
    before = table["newest"]
    for version, site in zip(arguments[::2], arguments[1::2], strict=True):
        classes = classes_in(Path(site))
        known = table["newest"]
        came, went = with_release(table, version, classes)
        if table["newest"] != known:
            with_stages(table, version, classes, staged_in(Path(site), classes))
        fresh |= {*came, *went}
        print(f"{version}: {len(came)} new model classes, {len(went)} went")
    if table["newest"] != before:
        ask_transformers(table, fresh)
        TABLE.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

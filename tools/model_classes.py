"""Write down which model classes a release of vLLM has: ``model_classes.py VERSION SITE [VERSION SITE …]``.

SITE is where the package ``vllm`` lies. Releases are given the oldest first: a class that a release has no
longer went after the one before. With transformers installed in the Python that runs this, classes that came
or went are asked whether they take vLLM's attention (``carried``), and of which model type they are
(``types``), for configs that name no class.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parents[1] / "src/kvroom/engines/vllm/model_classes.json"
REGISTRY = "vllm/model_executor/models/registry.py"
MAPPINGS = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES")
"""Where transformers names the class of a model type; of two the later holds."""
OTHERS = ("_PREVIOUSLY_SUPPORTED_MODELS", "_OOT_SUPPORTED_MODELS")
"""Tables of classes that a release has not."""


def classes_in(site: Path) -> set[str]:
    """Names of the model classes in a release's registry; empty without it."""
    path = site / REGISTRY
    if not path.is_file():
        return set()
    found: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        names = [each.id for each in targets if isinstance(each, ast.Name)]
        value = getattr(node, "value", None)
        if isinstance(value, ast.Dict) and any(
            name.endswith("_MODELS") and name not in OTHERS for name in names
        ):
            found |= {str(key.value) for key in value.keys if isinstance(key, ast.Constant)}
    return found


def release_of(version: str) -> tuple[int, ...]:
    """A release as its first three numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def with_release(
    table: dict[str, Any], version: str, present: set[str]
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
    came, went = sorted(present - known), sorted(known - present)
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
    table |= {"carried": "", "types": {}}
    if TABLE.is_file():
        table = json.loads(TABLE.read_text())
    fresh: set[str] = set()
    for version, site in zip(arguments[::2], arguments[1::2], strict=True):
        came, went = with_release(table, version, classes_in(Path(site)))
        fresh |= {*came, *went}
        print(f"{version}: {len(came)} new model classes, {len(went)} went")
    if fresh:
        ask_transformers(table, fresh)
        TABLE.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Reading YAML and JSON as people paste them: manifests, values of charts, files of options.

PyYAML reads it, with the plain words of YAML 1.2 (``on`` and ``12:30`` are text, as compose files and
Kubernetes mean them). An unknown tag, such as ``!Ref``, leaves the value that it stands before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError

FIX = "Give plain YAML (helm template prints it), or the command itself."
MOST_VALUES = 200_000
"""Values of a text, those of an anchor counted wherever they stand: a small text can name billions."""
MOST_DEPTH = 100
MOST_BYTES = 1_000_000
_PLAIN = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("merge", r"<<", "<"),
)
"""Plain words that are no text: the core schema of YAML 1.2, and the merge key."""


_TEMPLATE = re.compile(
    r"\{\{-?\s*(?:[.$(]|if\b|end\b|range\b|with\b|else\b|include\b|toYaml\b|template\b)"
)
"""What a Helm chart's template holds, and YAML does not."""
TEMPLATE_FIX = "Render the chart first: helm template CHART > rendered.yaml, and give that."


class TextUnread(KvroomError):
    """A text that cannot be read; ``line`` is where."""

    def __init__(self, field: str, value: Any, message: str, fix: str, line: int = 1) -> None:
        super().__init__(field, value, message, fix)
        self.line = line


def is_template(text: str) -> bool:
    """Whether ``text`` holds what only Helm could put in."""
    return _TEMPLATE.search(text) is not None


class Lined(dict[Any, Any]):
    """A mapping that knows the ``line`` that it stands on."""

    line = 1


def yaml_documents(text: str, field: str = "--from-command", fix: str = FIX) -> Iterator[Any]:
    """Every document of ``text``; KvroomError (on ``field``) names the line that cannot be read."""
    import yaml  # where a manifest is read, and nowhere else

    loader = None
    try:
        loader = _loader()(text)
        while loader.check_node():
            node = loader.get_node()
            _check_size(node, {})
            yield loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = mark.line if mark else 0
        lines = text.splitlines()
        why = f"cannot be read: {error.problem or error.context}"
        templates = [at for at, line in enumerate(lines) if is_template(line.partition(" #")[0])]
        if templates:
            at, why, fix = templates[0], "is a Helm template, and no YAML yet", TEMPLATE_FIX
        line = lines[at].strip() if at < len(lines) else ""
        raise TextUnread(field, f"line {at + 1}: {line}", why, fix, at + 1) from None
    except KvroomError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
        why = f"is no YAML: {str(error).splitlines()[0] if str(error) else 'nested too deep'}"
        raise KvroomError(field, text.strip(), why, fix) from None
    finally:
        if loader is not None:
            loader.dispose()


def read_yaml(path: str, field: str) -> Any:
    """The first document of a YAML (or JSON) file; KvroomError on ``field``."""
    file, fix = (
        Path(path),
        "Give a YAML file with a list of models, each such as {model: qwen3-8b}.",
    )
    try:
        if not file.is_file():
            raise KvroomError(field, path, "is not a file", fix)
        with file.open("rb") as stream:
            raw = stream.read(MOST_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        if isinstance(error, KvroomError):
            raise
        raise KvroomError(field, path, "cannot be read as text", fix) from None
    if len(raw) > MOST_BYTES:
        raise KvroomError(field, path, "is larger than 1 MB", fix)
    return next(yaml_documents(text, field, fix), None)


def _check_size(node: Any, sizes: dict[int, int], depth: int = 0) -> int:
    """Values below ``node``; KvroomError where they are too many, too deep, or hold themselves."""
    import yaml

    known = sizes.get(id(node))
    if known == 0 or depth > MOST_DEPTH:
        at = node.start_mark.line + 1
        why = "holds itself" if known == 0 else "is nested too deep"
        raise KvroomError("--from-command", f"line {at}", why, FIX)
    if known is not None:
        return known
    sizes[id(node)] = 0
    size = 1
    if isinstance(node, yaml.SequenceNode):
        size += sum(_check_size(n, sizes, depth + 1) for n in node.value)
    elif isinstance(node, yaml.MappingNode):
        size += sum(_check_size(n, sizes, depth + 1) for pair in node.value for n in pair)
    if size > MOST_VALUES:
        raise KvroomError("--from-command", f"{size:,} values", "are more than any manifest's", FIX)
    sizes[id(node)] = size
    return size


@lru_cache(maxsize=1)
def _loader() -> Any:
    """PyYAML's safe loader with the words of YAML 1.2, in which unknown tags leave their value."""
    import yaml

    class Documents(yaml.SafeLoader):  # type: ignore[misc,unused-ignore]
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # PyYAML's own attribute

    for name, pattern, first in _PLAIN:
        whole = re.compile(f"(?:{pattern})$")
        starts = [*first, ""] if name == "null" else list(first)
        Documents.add_implicit_resolver(f"tag:yaml.org,2002:{name}", whole, starts)

    def untagged(loader: Any, suffix: str, node: Any) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return loader.construct_scalar(node)
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node, deep=True)
        return loader.construct_mapping(node, deep=True)

    def mapping(loader: Any, node: Any) -> Iterator[Any]:
        value = Lined()
        value.line = node.start_mark.line + 1
        yield value
        value.update(loader.construct_mapping(node))

    Documents.add_constructor("tag:yaml.org,2002:map", mapping)
    Documents.add_multi_constructor("!", untagged)
    Documents.add_multi_constructor("tag:", untagged)
    return Documents

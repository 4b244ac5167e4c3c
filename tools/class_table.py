"""Gather what ``tools/class_shapes.py`` measured into ``src/kvroom/models/hf/classes.json``.

    python tools/class_table.py FOLDER VERSION [--skip CLASS …]

A tensor of the decoder's layers is kept with the rule by which layers have it (a word of a list, an
index from a key on, every n-th); what lies beside the decoder is gathered by shape.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from math import prod
from pathlib import Path
from typing import Any

SHARED = re.compile(
    r"(^|\.)(lm_head|embed_tokens|wte|shared|wpe|\w*embed\w*|norm\w*|\w+_norm|ln_f)\b"
)
OUTSIDE = re.compile(
    r"vision|visual|audio|encoder|tower|image|speech(?!t5)|talker|depth|resampler|perceiver|qformer|connector"
    r"|projector|predictor|mtp|code2wav|token2wav|acoustic|semantic|codec|vqmodel|expert_generator|aligner"
    r"|action|protein|adapter|merger|newline|whisper|pixel|patch"
)  # fmt: skip


def entry(record: dict[str, Any]) -> dict[str, Any]:
    """One class's line of the table."""
    rows, stack = record["rows"], record["stack"]
    layers = max((max(r[3]) + 1 for r in rows if r[0].startswith(stack + ".{}")), default=0)
    level = _level(record, layers)
    switches: dict[str, Any] = {}
    when_of, extra = _switches(record, switches)
    inside, outside = [], []
    beside: dict[Any, list[str]] = defaultdict(list)
    names = [(r, when_of.get(r[0])) for r in rows] + extra
    for (full, shape, count, at), when in names:
        pattern = full.partition("#")[0]
        mine = HEAD.search(pattern) or _decoders(pattern, stack)
        if pattern.startswith(stack + ".{}."):
            name, dims = _inner(
                pattern.removeprefix(stack + ".{}."), shape, count, record["layers"]
            )
            inside.append([name, dims, _where(set(at), layers, record, level), when])
        elif "{}" in pattern or (not mine and (level or OUTSIDE.search(pattern))):
            beside[tuple(shape), json.dumps(when)].append(count)
        else:
            outside.append([pattern, shape, count, when])
    used = " ".join(
        [record["layers"]]
        + [t for n, d, w, _ in inside for t in [*d, json.dumps(w)]]
        + [t for n, d, c, _ in outside for t in [*d, c]]
        + [t for (d, _), cs in beside.items() for t in [*d, *cs]]
    )
    keys = set(re.findall(r"[a-z_A-Z][\w.]*", used))
    defaults = {k: v for k, v in record["defaults"].items() if k in keys}
    defaults.update(_scalars(record["config"], level))
    return {
        "type": record["type"],
        "prefix": level,
        "stack": stack,
        "layers": record["layers"],
        "defaults": defaults,
        "derived": {k: t for k, t in record["derived"].items() if _agrees(k, t, record["config"])},
        "lists": {
            k: _packed(v)
            for k, v in record["lists"].items()
            if k in keys or k.rpartition(".")[0] + "." == level or (not level and "." not in k)
        },
        "switches": switches,
        "fixed": _fixed(record["config"], keys),
        "inside": [[n, _near(d, level), w, c] for n, d, w, c in inside],
        "outside": [[n, _near(d, level), _near([c], level)[0], w] for n, d, c, w in outside],
        "beside": [[_near(d, level), _near([c], level)[0], w] for d, c, w in _gathered(beside)],
    }


CORE = re.compile(r"hidden_size|d_model|n_embd|vocab_size")


def _fixed(config: dict[str, Any], keys: set[str], path: str = "") -> dict[str, int]:
    """Widths that the class could be made with at their default only: no expression speaks of them."""
    found: dict[str, int] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            found.update(_fixed(value, keys, f"{path}{key}."))
        elif type(value) is int and CORE.fullmatch(key) and path + key not in keys:
            found[path + key] = value
    return found


def _inner(name: str, dims: list[str], count: str, layers: str) -> tuple[str, list[str]]:
    """A layer's tensor: its name and sizes, what is numbered inside the layer counted first."""
    if "{}" not in name:
        return name, dims
    made = [_times(count, layers), *dims]
    if "expert" in name:
        return name.replace("{}.", ""), made
    first = made[:2]
    if (len(made) == 3 or name.endswith("bias")) and not any("+" in d for d in first):
        made = ["*".join(first), *made[2:]]
    return name.replace(".{}", ""), made


def _near(texts: list[str], level: str) -> list[str]:
    """Expressions with the decoder's own level written as ``~``."""
    return [re.sub(rf"(?<![\w.]){re.escape(level)}(?=\w)", "~", t) if level else t for t in texts]


def _packed(values: list[Any]) -> Any:
    """A list as its shortest unit and how often it comes."""
    for size in range(1, len(values) // 2 + 1):
        if len(values) % size == 0 and values[:size] * (len(values) // size) == values:
            return {"unit": values[:size], "times": len(values) // size}
    return values


def _gathered(beside: dict[Any, list[str]]) -> list[Any]:
    """What lies beside: matrices of one shape together, and all vectors of a kind as one."""
    vectors: dict[str, list[str]] = defaultdict(list)
    found = []
    for (dims, when), counts in beside.items():
        count = _summed(counts)
        if len(dims) == 1 and not any("+" in t or "/" in t for t in (*dims, *count)):
            vectors[when] += [f"{c}*{dims[0]}" if c != "1" else dims[0] for c in count]
        else:
            found.append([list(dims), "+".join(count), json.loads(when)])
    found += [[["+".join(_summed(t))], "1", json.loads(w)] for w, t in vectors.items()]
    return found


HEAD = re.compile(r"(^|\.)(lm_head|embed_out|output_projection)(\.|$)")


def _level(record: dict[str, Any], layers: int) -> str:
    """The path of the decoder's level: where the number of its layers stands."""
    said = re.search(r"(?:^|[*+/])((?:[a-z_][a-z_0-9]*\.)*)[a-z_][a-z_0-9]*", record["layers"])
    if said:
        return said[1]
    paths = (
        "text_config.",
        "thinker_config.text_config.",
        "llm_config.",
        "language_config.",
        "decoder.",
    )
    for path in paths:
        at = record["config"]
        for part in path.strip(".").split("."):
            at = at.get(part) if isinstance(at, dict) else None
        if isinstance(at, dict):
            return path
    return ""


def _decoders(pattern: str, stack: str) -> bool:
    """Whether a tensor beside no index belongs to the decoder: it lies where the stack does."""
    above = stack.rpartition(".")[0]
    return (
        bool(above)
        and pattern.startswith(above + ".")
        and not OUTSIDE.search(pattern.removeprefix(above))
    )


def _summed(counts: list[str]) -> list[str]:
    """Equal counts gathered: three times ``n`` is ``3*n``."""
    found = []
    for text in dict.fromkeys(counts):
        n = counts.count(text)
        if "+" in text:
            found += [text] * n
        elif n == 1:
            found.append(text)
        else:
            found.append(f"{n}*{text}" if not text.isdigit() else str(n * int(text)))
    return found


KEPT = re.compile(
    r".*(head|experts_per|topk|top_k|window|chunk|kv|layers|rank|state|conv|expand|groups|linear|mamba|ssm|index|topk|pattern"
    r"|max_position|n_positions|hidden_size|d_model|embed_dim|emb_dim|swa|multi_query|full_attention|dense_replace|freq|step).*"
)


def _scalars(config: dict[str, Any], level: str) -> dict[str, Any]:
    """The decoder level's own numbers from which its caches and limits follow."""
    at = config
    for part in level.split("."):
        at = at.get(part, {}) if part else at
    return {
        level + k: v
        for k, v in at.items()
        if isinstance(v, int | float | str)
        and (KEPT.fullmatch(k) or (level and k == "model_type"))
        and "token" not in k
        and "rope_theta" not in k
        and not (isinstance(v, str) and k not in ("hybrid_override_pattern", "model_type"))
    }


def _agrees(key: str, text: str, config: dict[str, Any]) -> bool:
    """Whether a derived key's expression gives the class's own value."""

    def at(path: str) -> Any:
        value: Any = config
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    value = 1.0
    for part in re.findall(r"[*/]?[^*/]+", text):
        name = part.lstrip("*/")
        number = float(name) if name.isdigit() else at(name)
        if not isinstance(number, int | float) or not number:
            return False
        value = value / number if part[0] == "/" else value * number
    return value == at(key)


def _times(count: str, layers: str) -> str:
    """How many of a tensor each layer has, of ``count`` in all."""
    parts = count.split("*")
    if "+" not in count and layers in parts:
        parts.remove(layers)
        return "*".join(parts) or "1"
    keys = [p for p in re.findall(r"[a-z_A-Z][\w.]*", count) if "expert" in p]
    return keys[0] if keys else "1"


def _where(at: set[int], layers: int, record: dict[str, Any], level: str) -> list[Any] | None:
    """The rule by which ``at`` are chosen of ``layers`` layers."""
    everything = set(range(layers))
    if at == everything:
        return None
    lists = {k: v for k, v in record["lists"].items() if k.startswith(level)}
    for key, values in lists.items():
        if len(values) == layers:
            labels = {values[i] for i in at}
            if {i for i in everything if values[i] in labels} == at:
                return ["list", key, sorted(labels, key=str)]
    for key, values in lists.items():
        if set(values) & everything == at and all(isinstance(v, int) for v in values):
            return ["in", key]
        if everything - set(values) == at and all(isinstance(v, int) for v in values):
            return ["out", key]
    numbers = {
        k: v
        for k, v in record["all_numbers"].items()
        if k.startswith(level) and "." not in k.removeprefix(level)
    }
    for key, value in numbers.items():
        if (
            type(value) is int
            and 0 < value < layers
            and re.search(r"dense|first|layer|moe|shared|skip", key)
        ):
            if at == set(range(value, layers)):
                return ["from", key]
            if at == set(range(value)):
                return ["before", key]
            if value > 1:
                for offset in (1, 0):
                    if at == {i for i in everything if (i + offset) % value == 0}:
                        return ["every", key, offset]
            if at == set(range(layers - value)):
                return ["before", f"{record['layers']}+-1*{key}"]
    for first in (k for k in lists if len(lists[k]) == layers):
        for second in (k for k in lists if len(lists[k]) == layers and k > first):
            a = {lists[first][i] for i in at}
            b = {lists[second][i] for i in at}
            if {i for i in everything if lists[first][i] in a and lists[second][i] in b} == at:
                return [
                    "both",
                    ["list", first, sorted(a, key=str)],
                    ["list", second, sorted(b, key=str)],
                ]
    rest = everything - at
    if len(rest) <= 3:
        return ["not", sorted(i if i < layers // 2 else i - layers for i in rest)]
    if len(at) <= 3:
        return ["at", sorted(i if i < layers // 2 else i - layers for i in at)]
    for every in range(2, 9):
        for offset in range(every):
            if at == {i for i in everything if (i + offset) % every == 0}:
                return ["every", str(every), offset]
    low, high = min(at), max(at)
    if at == set(range(low, layers)):
        return ["from", str(low)]
    if at == set(range(high + 1)):
        return ["before", str(high + 1)]
    return ["at", sorted(at)]


def _switches(record: dict[str, Any], switches: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """What tensors need of switches, and the tensors that come with the other setting."""
    when: dict[str, dict[str, Any]] = {}
    extra = []
    by_name = {r[0]: r for r in record["rows"]}
    sizes: dict[int, str] = {}
    for pattern, dims, _, _ in record["rows"]:
        shape = record["shapes"][pattern]
        for text, size in zip(dims, shape, strict=True):
            if not text.lstrip("-").isdigit():
                sizes.setdefault(size, text)
    for flip in record["flips"]:
        key = flip["key"]
        switches[key] = flip["was"]
        for pattern in flip["gone"]:
            when.setdefault(pattern, {})[key] = flip["was"]
        for pattern, shape, count, at in flip["come"]:
            near = {}
            module = pattern.rpartition(".")[0]
            for name, row in by_name.items():
                if name.startswith(module + "."):
                    near.update(dict(zip(record["shapes"][name], row[1], strict=True)))
            if pattern in by_name and len(by_name[pattern][1]) == len(shape):
                near.update(
                    {
                        s: t
                        for s, t, old in zip(
                            shape, by_name[pattern][1], record["shapes"][pattern], strict=True
                        )
                        if s == old
                    }
                )
            if re.search(r"lm_head|embed_out|output_projection", pattern):
                table = next(
                    (
                        r
                        for n, r in by_name.items()
                        if re.search(r"embed_tokens|wte|shared|word_emb|embed_in", n)
                    ),
                    None,
                )
                if table and len(table[1]) == len(shape):
                    near.update(dict(zip(record["shapes"][table[0]], table[1], strict=True)))
                elif table:
                    near[shape[0]] = table[1][0]
            dims = [near.get(s) or _known(s, sizes) for s in shape]
            weight = f"{pattern.removesuffix('.bias')}.weight"
            if pattern.endswith(".bias") and weight in by_name and len(shape) == 1:
                rows = by_name[weight][1]
                at_rows = [
                    t for t, s in zip(rows, record["shapes"][weight], strict=True) if s == shape[0]
                ]
                dims = at_rows[:1] or dims
            text = _count(count, at, record)
            extra.append(([pattern, dims, text, at], {key: flip["now"]}))
    return when, extra


def _known(size: int, sizes: dict[int, str]) -> str:
    if size in sizes:
        return sizes[size]
    for factor in (2, 3, 4):
        if size % factor == 0 and size // factor in sizes and "+" not in sizes[size // factor]:
            return f"{factor}*{sizes[size // factor]}"
    return str(size)


def _count(count: int, at: list[int], record: dict[str, Any]) -> str:
    for row in record["rows"]:
        if row[3] == at and record["counts"][row[0]] == count:
            return str(row[2])
    return str(count)


def main() -> None:
    """The command."""
    folder, version = Path(sys.argv[1]), sys.argv[2]
    skip = set(sys.argv[4:]) if "--skip" in sys.argv else set()
    classes = {}
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        if "error" in record or record["class"] in skip or path.stem in skip:
            continue
        evaluated = _Values(record)
        record["shapes"] = {r[0]: [evaluated(t) for t in r[1]] for r in record["rows"]}
        record["counts"] = {r[0]: evaluated(r[2]) for r in record["rows"]}
        record["all_numbers"] = evaluated.numbers
        if (
            sum(prod(record["shapes"][r[0]]) * record["counts"][r[0]] for r in record["rows"])
            != record["params"]
        ):
            print("does not add up:", path.stem)
        name = record["class"]
        if name in classes and record["type"] != classes[name]["type"]:
            name = f"{record['type']}:{name}"  # one class for several types
        classes[name] = entry(record)
    out = {"source": f"transformers {version}, classes made on the meta device", "classes": classes}
    target = Path(__file__).parents[1] / "src/kvroom/models/hf/classes.json"
    text = json.dumps(out, separators=(",", ":"), sort_keys=True)
    target.write_text(text.replace('},"', '},\n"') + "\n")
    print(len(classes), "classes,", len(text), "bytes")


class _Values:
    """Expressions at a class's own values."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.numbers: dict[str, Any] = {}
        self._walk(record["config"], "")

    def _walk(self, level: dict[str, Any], path: str) -> None:
        for key, value in level.items():
            if isinstance(value, dict):
                self._walk(value, f"{path}{key}.")
            elif isinstance(value, list):
                self._walk({str(i): n for i, n in enumerate(value)}, f"{path}{key}.")
            elif isinstance(value, int | float):
                self.numbers[path + key] = value

    def __call__(self, text: str) -> int:
        total = 0.0
        for term in text.split("+"):
            value = 1.0
            for part in re.findall(r"[*/]?[^*/]+", term):
                name = part.lstrip("*/")
                number = float(name) if re.fullmatch(r"-?\d+", name) else self.numbers[name]
                value = value / number if part[0] == "/" else value * number
            total += value
        return round(total)


if __name__ == "__main__":
    main()

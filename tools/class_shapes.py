"""How the tensors of transformers' classes follow from their configs' keys.

    python tools/class_shapes.py OUT_FOLDER [CLASS …]

Makes each class on the meta device from its default config, then again with one key changed at a time
(with several where their effects meet), and writes every tensor's sizes as an expression of keys: one
file a class, which ``tools/class_table.py`` gathers into ``src/kvroom/models/hf/classes.json``. Needs
torch (CPU) and transformers, which kvroom itself does not.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import re
import sys
import time
import warnings
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers.models.auto import modeling_auto as auto  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

TASKS = {
    "causal": auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "image-text": auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    "seq2seq": auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    "speech": auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    "multimodal": auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
}
SHAPELESS = re.compile(
    r"_.*|.*token_?ids?|.*_token|.*dropout.*|.*pdrop|.*eps(ilon)?|.*_theta|.*rope.*|initializer.*"
    r"|.*_coef.*|.*_std|.*temperature.*|.*_scale|.*scaling.*|.*_factor_bias|top_[pk]|num_beams"
    r"|output_.*|return_.*|use_cache|chunk_size_feed_forward|is_encoder_decoder|.*softcap.*|.*_prob"
    r"|.*layerdrop|.*token_index|.*_multiplier|begin_.*|.*_attention_mask|problem_type|.*_range"
    r"|transformers_version|max_window_layers|sliding_window|.*loss.*|num_experts_per_tok|moe_k"
    r"|moe_topk|.*_top_?k|top_?k.*|n_group|topk_group|attention_chunk_size|max_length|min_length"
)
NULLABLE = re.compile(r".*(lora_rank|per_layer_input|num_experts)$")
OUTSIDE = re.compile(
    r"vision|visual|audio|encoder(?!_decoder)|tower|image|speech(?!t5)|talker|depth|resampler|perceiver"
    r"|qformer|connector|projector|predictor|mtp|code2wav|token2wav|acoustic|semantic|codec|vqmodel"
    r"|expert_generator|aligner|ocr_net|sam_|dit_|action|protein|conv_stem|embed_"
)
Shape = tuple[int, ...]


def tidy(config: dict[str, Any]) -> dict[str, Any]:
    """A config's dict as it may be given back to its class."""
    drop = ("transformers_version", "architectures", "torch_dtype", "id2label", "label2id")
    out = {}
    for key, value in config.items():
        if key in drop or (key in ("dtype", "_name_or_path")):
            continue
        out[key] = tidy(value) if isinstance(value, dict) else value
    return out


class Class:
    """One class, its default config, and what instances of it weigh."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind, self.name = kind, name
        self.klass = getattr(transformers, name)
        self.config_class = CONFIG_MAPPING[kind]
        self.config = tidy(json.loads(self.config_class().to_json_string(use_diff=False)))
        self.made: dict[Any, Any] = {}
        self._say_head_dim(self.config, "")

    def _say_head_dim(self, level: dict[str, Any], path: str) -> None:
        """Put a head's width where the class takes one that its config leaves unsaid."""
        for key, value in list(level.items()):
            if isinstance(value, dict):
                self._say_head_dim(value, f"{path}{key}.")
        hidden, heads = level.get("hidden_size"), level.get("num_attention_heads")
        if type(hidden) is int and type(heads) is int and heads and level.get("head_dim") is None:
            level["head_dim"] = hidden // heads
            as_is, wide = self.build({}), self.build({path + "head_dim": 2 * (hidden // heads)})
            if wide is None or wide == as_is:
                del level["head_dim"]

    def leaves(self, want: Any) -> list[str]:
        """Paths of all leaf keys whose value ``want`` accepts."""
        found: list[str] = []

        def walk(level: dict[str, Any], path: str) -> None:
            for key, value in level.items():
                if SHAPELESS.fullmatch(key):
                    continue
                if isinstance(value, dict):
                    walk(value, f"{path}{key}.")
                elif want(key, value):
                    found.append(path + key)

        walk(self.config, "")
        return found

    def at(self, path: str, config: dict[str, Any] | None = None) -> Any:
        value: Any = config or self.config
        for key in path.split("."):
            value = value[key]
        return value

    def build(self, changes: dict[str, Any]) -> Any:
        """{pattern: (shape, indices, count)} with keys changed; None where the class refuses."""
        key = tuple(sorted((k, str(v)) for k, v in changes.items()))
        if key not in self.made:
            try:
                self.made[key] = self._build(changes)
            except Exception:  # a class may refuse a config in any way
                self.made[key] = None
        return self.made[key]

    def _build(self, changes: dict[str, Any]) -> Any:
        config = copy.deepcopy(self.config)
        for path, value in changes.items():
            *above, last = path.split(".")
            level = config
            for part in above:
                level = level[part]
            old = level[last]
            level[last] = value
            if re.search(r"layers?$|depth$", last) and isinstance(value, int) and value > old > 1:
                for name, entry in level.items():
                    if isinstance(entry, list) and len(entry) == old:
                        level[name] = (entry * -(-value // old))[:value]
        config.pop("model_type", None)
        made = self.config_class(**config) if changes else self.config_class()
        with torch.device("meta"):
            model = self.klass(made)
        model.tie_weights()
        found: dict[str, tuple[Shape, set[int], int]] = {}
        shapes: dict[tuple[str, Shape], list[int]] = defaultdict(list)
        for name, p in model.named_parameters(remove_duplicate=True):
            index = re.search(r"\.(\d+)\.", name)
            pattern = re.sub(r"\.(?:expert_)?\d+(?=\.)", ".{}", name)
            shapes[pattern, tuple(p.shape)].append(int(index[1]) if index else -1)
        seen: dict[str, int] = defaultdict(int)
        for (pattern, shape), at in shapes.items():
            number = seen[pattern]
            seen[pattern] += 1
            found[f"{pattern}#{number}" if number else pattern] = (shape, set(at), len(at))
        return found


def other_values(value: float | int) -> list[Any]:
    """What a key may be changed to, first choice first."""
    if isinstance(value, float):
        return [value * 2, value / 2]
    if value == 0:
        return [1, 2]
    return [value * 2, value * 3, value + 1] + ([value // 2] if value > 1 else [])


def quantities(made: Any, base: Any) -> dict[tuple[str, int], int]:
    """Every number of a build: (pattern, axis) → size; axis −1 is the count, −2 the last index."""
    out = {}
    for pattern, (shape, at, count) in made.items():
        for axis, size in enumerate(shape):
            out[pattern, axis] = size
        out[pattern, -1] = count
        out[pattern, -2] = max(at) + 1
    return out


def expression(terms: dict[tuple[tuple[str, int], ...], Fraction]) -> str:
    """A sum of products as text: ``2*hidden_size+vocab_size/2``."""
    texts = []
    for factors, coefficient in terms.items():
        ups = [k for k, e in factors if e > 0 for _ in range(e)]
        downs = [k for k, e in factors if e < 0 for _ in range(-e)]
        if coefficient.denominator != 1:
            downs.append(str(coefficient.denominator))
        top = coefficient.numerator
        text = "*".join(([str(top)] if top != 1 or not ups else []) + ups)
        texts.append(text + "".join(f"/{d}" for d in downs))
    return "+".join(texts) or "0"


def exponent(old: Any, new: Any, before: int, after: int) -> int | None:
    """e with (new/old)^e = after/before."""
    ratio, effect = Fraction(new) / Fraction(old), Fraction(after, before)
    for e in (1, -1, 2):
        if ratio**e == effect:
            return e
    return None


def derive(c: Class) -> dict[str, Any]:
    """The record of one class."""
    base = c.build({})
    numbers = c.leaves(lambda k, v: isinstance(v, int | float) and not isinstance(v, bool))
    start = quantities(base, base)
    changed: dict[str, tuple[Any, dict[tuple[str, int], int]]] = {}
    beside: dict[str, list[str]] = {}
    """Keys that a class wants equal to another one, which change with it."""
    for path in numbers:
        for value in other_values(c.at(path)):
            made = c.build({path: value})
            if made is not None:
                changed[path] = (value, quantities(made, base))
                break
    for path in (p for p in numbers if p not in changed and c.at(p) > 64):
        equal = [p for p in numbers if c.at(p) == c.at(path)]
        for value in other_values(c.at(path))[:2]:
            made = c.build(dict.fromkeys(equal, value))
            if made is not None and not any(p in beside for p in equal):
                beside[path] = equal
                changed[path] = (value, quantities(made, base))
                break
    moved: dict[tuple[str, int], list[str]] = defaultdict(list)
    for path, (_, now) in changed.items():
        for q, size in start.items():
            if now.get(q, size) != size:
                moved[q].append(path)
    rough: list[str] = []
    cache: dict[Any, str] = {}

    def change(keys: Any) -> dict[str, Any]:
        return {p: changed[k][0] for k in keys for p in beside.get(k, [k])}

    def express(q: tuple[str, int]) -> str:
        keys = tuple(moved.get(q, ()))
        if not keys:
            return str(start[q])
        ident = (start[q], tuple((k, changed[k][1].get(q)) for k in keys))
        if ident not in cache:
            cache[ident] = _express(q, keys)
        return cache[ident]

    def _express(q: tuple[str, int], keys: tuple[str, ...]) -> str:
        size = start[q]
        powers = []
        for k in keys:
            after = changed[k][1][q]
            powers.append(exponent(c.at(k), changed[k][0], size, after) if c.at(k) else None)
        if all(p is not None for p in powers):
            whole = Fraction(size)
            for k, p in zip(keys, powers, strict=True):
                whole /= Fraction(c.at(k)).limit_denominator(1000) ** p
            if whole.denominator <= 64 and (len(keys) < 2 or _meets(q, keys, powers)):
                return expression({tuple(zip(keys, powers, strict=True)): whole})
        if len(keys) > 5:
            rough.append(f"{q[0]}[{q[1]}] by {len(keys)} keys")
            return str(size)
        values: dict[frozenset[str], int] = {}
        for n in range(len(keys) + 1):
            for some in itertools.combinations(keys, n):
                made = base if not some else c.build(change(some))
                now = None if made is None else quantities(made, base).get(q)
                if now is None:
                    rough.append(f"{q[0]}[{q[1]}] at {some}")
                    return str(size)
                values[frozenset(some)] = now
        terms: dict[tuple[tuple[str, int], ...], Fraction] = {}
        for n in range(len(keys) + 1):
            for some in itertools.combinations(keys, n):
                got = _coefficient(keys, frozenset(some), values)
                if got:
                    if got.denominator > 64:
                        rough.append(f"{q[0]}[{q[1]}] is no sum of products of {keys}")
                        return str(size)
                    terms[tuple((k, 1) for k in some)] = got
        return expression(terms)

    def _meets(q: tuple[str, int], keys: tuple[str, ...], powers: list[Any]) -> bool:
        """Whether all keys changed at once have the product of their effects."""
        made = c.build(change(keys))
        if made is None:
            return True
        now = quantities(made, base).get(q)
        want = Fraction(start[q])
        for k, p in zip(keys, powers, strict=True):
            want *= (Fraction(changed[k][0]) / Fraction(c.at(k))) ** p
        return now is None or now == want

    def _coefficient(keys: Any, some: Any, values: Any) -> Fraction:
        """Of the product of ``some`` in the multilinear function with ``values`` at the corners."""
        total = Fraction(0)
        for n in range(len(keys) + 1):
            for corner in itertools.combinations(keys, n):
                weight = Fraction(1)
                for k in keys:
                    old, new = Fraction(c.at(k)), Fraction(changed[k][0])
                    if k in some:
                        weight *= (1 if k in corner else -1) / (new - old)
                    else:
                        weight *= (-old if k in corner else new) / (new - old)
                total += weight * values[frozenset(corner)]
        return total

    def rows_of(made: Any, only: set[str], expr: Any) -> list[list[Any]]:
        rows = []
        for pattern in made:
            if pattern in only:
                shape, at, count = made[pattern]
                dims = [expr((pattern, axis)) for axis in range(len(shape))]
                rows.append([pattern, dims, expr((pattern, -1)), sorted(at)])
        return rows

    stacks: dict[str, int] = defaultdict(int)
    for pattern, (shape, _, count) in base.items():
        if "{}" in pattern:
            size = count
            for n in shape:
                size *= n
            stacks[pattern.partition(".{}")[0]] += size
    inside = {s: n for s, n in stacks.items() if not OUTSIDE.search(s)}
    if not inside:  # a decoder that is called an encoder (BERT's line)
        inside = {s: n for s, n in stacks.items() if not re.search("vision|visual|image|audio", s)}
    inside = inside or dict(stacks)
    stack = max(inside, key=lambda s: inside[s], default="")
    longest = max(
        (p for p in base if p.startswith(stack + ".{}")),
        key=lambda p: max(base[p][1]),
        default=None,
    )
    record: dict[str, Any] = {
        "class": c.name,
        "type": c.kind,
        "stack": stack,
        "layers": express((longest, -2)) if longest else "0",
        "rows": rows_of(base, set(base), express),
        "flips": [],
    }
    # Switches: what comes and goes with each.
    flags = c.leaves(lambda k, v: isinstance(v, bool))
    for path in flags:
        value = c.at(path)
        made = c.build({path: not value})
        if made is not None:
            _flip(record, base, made, path, value, not value, start, c)
    for path in c.leaves(lambda k, v: isinstance(v, int) and bool(NULLABLE.fullmatch(k)) and v):
        made = c.build({path: None})
        if made is not None:
            _flip(record, base, made, path, c.at(path), None, start, c)
    used = {k for keys in moved.values() for k in keys}
    record["defaults"] = {k: c.at(k) for k in sorted(used)}
    record["derived"] = derived(c, used)
    record["lists"] = {
        p: c.at(p)
        for p in c.leaves(lambda k, v: isinstance(v, list) and v and isinstance(v[0], str | int))
    }
    record["rough"] = sorted(set(rough))
    record["params"] = sum(_size(shape) * count for shape, _, count in base.values())
    record["config"] = c.config
    return record


def _size(shape: Shape) -> int:
    n = 1
    for side in shape:
        n *= side
    return n


def _flip(
    record: Any, base: Any, made: Any, path: str, was: Any, now: Any, start: Any, c: Class
) -> None:
    gone = [
        p for p in base if p not in made or made[p][0] != base[p][0] or made[p][2] != base[p][2]
    ]
    come = [
        p for p in made if p not in base or made[p][0] != base[p][0] or made[p][2] != base[p][2]
    ]
    if gone or come:
        record["flips"].append(
            {
                "key": path,
                "was": was,
                "now": now,
                "gone": gone,
                "come": [[p, list(made[p][0]), made[p][2], sorted(made[p][1])] for p in come],
            }
        )


def derived(c: Class, used: set[str]) -> dict[str, str]:
    """Keys that a config's class fills in from other keys where they are left out."""
    found: dict[str, str] = {}
    levels: dict[str, Any] = {"": c.config_class}
    made = c.config_class()
    for path in {p.rpartition(".")[0] for p in used if "." in p}:
        level: Any = made
        try:
            for part in path.split("."):
                level = getattr(level, part)
            levels[path + "."] = type(level)
        except AttributeError:
            continue
    for prefix, klass in levels.items():
        try:
            base = json.loads(klass().to_json_string(use_diff=False))
        except Exception:  # a level that only its parent can fill in
            continue
        powers: dict[str, dict[str, int]] = defaultdict(dict)
        for key, value in base.items():
            if type(value) is not int or value < 2 or SHAPELESS.fullmatch(key):
                continue
            try:
                after = json.loads(klass(**{key: 2 * value}).to_json_string(use_diff=False))
            except Exception:  # refused
                continue
            for other, old in base.items():
                new = after.get(other)
                if other != key and type(old) is int and old and type(new) is int and new != old:
                    e = exponent(value, 2 * value, old, new)
                    if e is not None:
                        powers[other][key] = e
        for other, by in powers.items():
            if prefix + other not in used or any(k in powers for k in by):
                continue
            whole = Fraction(base[other])
            for key, e in by.items():
                whole /= Fraction(base[key]) ** e
            if whole.denominator <= 64:
                found[prefix + other] = expression(
                    {tuple((prefix + k, e) for k, e in by.items()): whole}
                )
    return found


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    want = set(sys.argv[2:])
    seen = set()
    for kinds in TASKS.values():
        for kind, name in kinds.items():
            name = name[0] if isinstance(name, list | tuple) else name
            if (kind, name) in seen or (
                want and name not in want and f"{kind}--{name}" not in want
            ):
                continue
            seen.add((kind, name))
            path = out / f"{kind}--{name}.json"
            if path.exists():
                continue
            begun = time.time()
            try:
                record = derive(Class(kind, name))
            except Exception as e:  # a class that cannot be made is listed as such
                record = {"class": name, "type": kind, "error": f"{type(e).__name__}: {e}"[:200]}
            path.write_text(json.dumps(record))
            rough = len(record.get("rough", ()))
            print(
                f"{kind} {name} {record.get('error', '')} rough={rough} {time.time() - begun:.1f}s",
                flush=True,
            )


if __name__ == "__main__":
    main()

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
from math import prod
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


def _sizes(value: Any) -> bool:
    """Whether a value is a short list of sizes, each of which may be changed."""
    return isinstance(value, list) and 0 < len(value) <= 6 and all(type(n) is int for n in value)


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
                elif _sizes(value):
                    found.extend(f"{path}{key}.{i}" for i, n in enumerate(value) if want(key, n))

        walk(self.config, "")
        return found

    def at(self, path: str) -> Any:
        """The default at a path."""
        value: Any = self.config
        for key in path.split("."):
            value = value[int(key)] if isinstance(value, list) else value[key]
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
            level: Any = config
            for part in above:
                level = level[part]
            if isinstance(level, list):
                level[int(last)] = value
                continue
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


Quantity = tuple[str, int]


def quantities(made: Any) -> dict[Quantity, int]:
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


class Expressions:
    """How every number of a class's tensors follows from keys.

    ``changed`` holds for each key what it was changed to and every number then, ``moved`` the keys that
    move a number, ``equal`` the keys that a class wants equal and that change together.
    """

    def __init__(self, c: Class) -> None:
        self.c = c
        self.base = c.build({})
        self.start = quantities(self.base)
        self.changed: dict[str, tuple[Any, dict[Quantity, int]]] = {}
        self.equal: dict[str, list[str]] = {}
        self.rough: list[str] = []
        self._cache: dict[Any, str] = {}
        numbers = c.leaves(lambda k, v: isinstance(v, int | float) and not isinstance(v, bool))
        for path in numbers:
            self._change(path, [path], other_values(c.at(path)))
        for path in (p for p in numbers if p not in self.changed and c.at(p) > 64):
            equal = [p for p in numbers if c.at(p) == c.at(path)]
            if not any(p in self.equal for p in equal):
                self._change(path, equal, other_values(c.at(path))[:2])
        self.moved: dict[Quantity, list[str]] = defaultdict(list)
        for path, (_, now) in self.changed.items():
            for q, size in self.start.items():
                if now.get(q, size) != size:
                    self.moved[q].append(path)

    def _change(self, path: str, together: list[str], values: list[Any]) -> None:
        for value in values:
            made = self.c.build(dict.fromkeys(together, value))
            if made is not None:
                self.changed[path] = (value, quantities(made))
                if len(together) > 1:
                    self.equal[path] = together
                return

    def _with(self, keys: Any) -> dict[Quantity, int] | None:
        """Every number with ``keys`` changed at once; None where the class refuses that."""
        changes = {p: self.changed[k][0] for k in keys for p in self.equal.get(k, [k])}
        made = self.c.build(changes)
        return None if made is None else quantities(made)

    def of(self, q: Quantity) -> str:
        """The expression of one number; its value where no key moves it."""
        keys = tuple(self.moved.get(q, ()))
        if not keys:
            return str(self.start[q])
        ident = (self.start[q], tuple((k, self.changed[k][1].get(q)) for k in keys))
        if ident not in self._cache:
            self._cache[ident] = self._product(q, keys) or self._sum(q, keys)
        return self._cache[ident]

    def _product(self, q: Quantity, keys: tuple[str, ...]) -> str | None:
        """A product of keys' powers, where doubling each multiplies the number."""
        size = self.start[q]
        powers: list[int] = []
        whole = Fraction(size)
        for k in keys:
            old = self.c.at(k)
            power = exponent(old, self.changed[k][0], size, self.changed[k][1][q]) if old else None
            if power is None:
                return None
            powers.append(power)
            whole /= Fraction(old).limit_denominator(1000) ** power
        if whole.denominator > 64:
            return None
        if len(keys) > 1:
            now = (self._with(keys) or {}).get(q)
            want = Fraction(size)
            for k, p in zip(keys, powers, strict=True):
                want *= (Fraction(self.changed[k][0]) / Fraction(self.c.at(k))) ** p
            if now is not None and now != want:
                return None
        return expression({tuple(zip(keys, powers, strict=True)): whole})

    def _sum(self, q: Quantity, keys: tuple[str, ...]) -> str:
        """A sum of products of keys, by what the number is at every corner of their changes."""
        size = self.start[q]
        if len(keys) > 5:
            self.rough.append(f"{q[0]}[{q[1]}] by {len(keys)} keys")
            return str(size)
        corners: dict[frozenset[str], int] = {}
        for some in subsets(keys):
            now = (self._with(some) or {}).get(q) if some else size
            if now is None:
                self.rough.append(f"{q[0]}[{q[1]}] at {some}")
                return str(size)
            corners[frozenset(some)] = now
        terms: dict[tuple[tuple[str, int], ...], Fraction] = {}
        for some in subsets(keys):
            found = self._coefficient(keys, frozenset(some), corners)
            if found.denominator > 64:
                self.rough.append(f"{q[0]}[{q[1]}] is no sum of products of {keys}")
                return str(size)
            if found:
                terms[tuple((k, 1) for k in some)] = found
        return expression(terms)

    def _coefficient(self, keys: Any, some: frozenset[str], corners: Any) -> Fraction:
        """Of the product of ``some`` in the multilinear function with the values at ``corners``."""
        total = Fraction(0)
        for corner in subsets(keys):
            weight = Fraction(1)
            for k in keys:
                old, new = Fraction(self.c.at(k)), Fraction(self.changed[k][0])
                if k in some:
                    weight *= (1 if k in corner else -1) / (new - old)
                else:
                    weight *= (-old if k in corner else new) / (new - old)
            total += weight * corners[frozenset(corner)]
        return total


def subsets(keys: Any) -> list[tuple[str, ...]]:
    """Every selection of ``keys``, the empty one first."""
    return [s for n in range(len(keys) + 1) for s in itertools.combinations(keys, n)]


def derive(c: Class) -> dict[str, Any]:
    """The record of one class."""
    e = Expressions(c)
    base = e.base
    stack = decoder_stack(base)
    inside = [p for p in base if p.startswith(stack + ".{}")]
    longest = max(inside, key=lambda p: max(base[p][1]), default=None)
    rows = []
    for pattern, (shape, at, _) in base.items():
        dims = [e.of((pattern, axis)) for axis in range(len(shape))]
        rows.append([pattern, dims, e.of((pattern, -1)), sorted(at)])
    flips = []
    for path in c.leaves(lambda k, v: isinstance(v, bool)):
        flips += flipped(c, base, path, not c.at(path))
    for path in c.leaves(lambda k, v: isinstance(v, int) and bool(NULLABLE.fullmatch(k)) and v):
        flips += flipped(c, base, path, None)
    used = {k for keys in e.moved.values() for k in keys}
    lists = c.leaves(lambda k, v: isinstance(v, list) and v and isinstance(v[0], str | int))
    return {
        "class": c.name,
        "type": c.kind,
        "stack": stack,
        "layers": e.of((longest, -2)) if longest else "0",
        "rows": rows,
        "flips": flips,
        "defaults": {k: c.at(k) for k in sorted(used)},
        "derived": derived(c, used),
        "lists": {p: c.at(p) for p in lists},
        "rough": sorted(set(e.rough)),
        "params": sum(prod(shape) * count for shape, _, count in base.values()),
        "config": c.config,
    }


def decoder_stack(made: Any) -> str:
    """The path of the decoder's layers: of the stacks that are no tower's the one that weighs most."""
    stacks: dict[str, int] = defaultdict(int)
    for pattern, (shape, _, count) in made.items():
        if "{}" in pattern:
            stacks[pattern.partition(".{}")[0]] += count * prod(shape)
    inside = {s: n for s, n in stacks.items() if not OUTSIDE.search(s)}
    if not inside:  # a decoder that is called an encoder (BERT's line)
        inside = {s: n for s, n in stacks.items() if not re.search("vision|visual|image|audio", s)}
    inside = inside or dict(stacks)
    return max(inside, key=lambda s: inside[s], default="")


def flipped(c: Class, base: Any, path: str, now: Any) -> list[dict[str, Any]]:
    """What comes and goes with another setting of a switch: one entry, or none."""
    made = c.build({path: now})
    if made is None:
        return []

    def differs(one: Any, other: Any, p: str) -> bool:
        return p not in other or other[p][0] != one[p][0] or other[p][2] != one[p][2]

    gone = [p for p in base if differs(base, made, p)]
    come = [p for p in made if differs(made, base, p)]
    if not gone and not come:
        return []
    shapes = [[p, list(made[p][0]), made[p][2], sorted(made[p][1])] for p in come]
    return [{"key": path, "was": c.at(path), "now": now, "gone": gone, "come": shapes}]


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
    """The command."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    want = set(sys.argv[2:])
    seen = set()
    for kinds in TASKS.values():
        for kind, names in kinds.items():
            name = names if isinstance(names, str) else names[0]
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

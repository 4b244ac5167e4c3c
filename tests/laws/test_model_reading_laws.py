"""Whatever a config or a GGUF header says, it is read or refused by a key: no traceback, no long wait."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom.errors import KvroomError
from kvroom.models.dtypes import BF16
from kvroom.models.gguf import Header, Info, spec_of
from kvroom.models.load import load

CLASSES = json.loads(
    gzip.decompress((Path(__file__).parents[1] / "golden/transformers_5.24.0.json.gz").read_bytes())
)["classes"]
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**31),
    st.floats(),
    st.sampled_from(["", "auto", "4096", "full_attention", "relu2", "x" * 200]),
    st.lists(st.one_of(st.none(), st.integers(-1, 10**9), st.text(max_size=3)), max_size=60),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def paths(level, above=()):
    for key, value in level.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from paths(value, (*above, key))


def ask(spec):
    """What every plan asks of a model."""
    assert spec.params >= spec.active_params >= 0
    for kind, count in spec.stores:
        assert kind.stored_bytes(5000, BF16, 100) * count >= 0


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_config_with_odd_values_is_read_or_refused(data):
    chosen = data.draw(st.sampled_from(CLASSES))
    config = copy.deepcopy({**chosen["config"], "architectures": [chosen["class"]]})
    known = list(paths(config))
    for path in data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=5)):
        level = config
        for key in path[:-1]:
            level = level.get(key) if isinstance(level, dict) else None
        if isinstance(level, dict):
            level[path[-1]] = data.draw(ODD)
    try:
        ask(load({"config": config}))
    except KvroomError as e:
        assert e.field
        assert e.fix


KEYS = (
    "block_count", "embedding_length", "attention.head_count", "attention.head_count_kv",
    "attention.key_length", "attention.sliding_window", "attention.sliding_window_pattern",
    "attention.shared_kv_layers", "attention.kv_lora_rank", "ssm.inner_size", "ssm.state_size",
    "wkv.head_size", "shortconv.l_cache", "nextn_predict_layers", "full_attention_interval",
    "attention.causal", "expert_used_count", "context_length", "vocab_size",
)  # fmt: skip
TENSORS = (
    "token_embd.weight", "output.weight", "blk.0.attn_k.weight", "blk.3.ffn_up_exps.weight", "enc.blk.0.x"
)  # fmt: skip
SHAPES = st.lists(st.sampled_from([0, 1, 2, 64, 10**6]), max_size=5).map(tuple)


@settings(max_examples=300, deadline=None)
@given(
    arch=st.sampled_from(["llama", "qwen3next", "jamba", "gemma3", "deepseek2", "rwkv7", "sideways", ""]),
    keys=st.dictionaries(st.sampled_from(KEYS), ODD, max_size=8),
    tensors=st.dictionaries(
        st.sampled_from(TENSORS),
        SHAPES,
    ),
)  # fmt: skip
def test_a_gguf_with_odd_keys_is_read_or_refused(arch, keys, tensors):
    plain = {"block_count": 4, "embedding_length": 64, "attention.head_count": 4}
    metadata = {
        "general.architecture": arch,
        **{f"{arch}.{k}": v for k, v in {**plain, **keys}.items()},
    }
    infos = {name: Info(shape, 0, 0) for name, shape in tensors.items()}
    try:
        ask(spec_of(Header(metadata, infos), "m.gguf"))
    except KvroomError as e:
        assert e.field == "model"

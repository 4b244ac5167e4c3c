"""GGUF files of every architecture that llama.cpp's own package knows, made with that package's tables."""

from __future__ import annotations

import math

import pytest

from kvroom.errors import KvroomError
from kvroom.models import gguf_tensors
from kvroom.models.gguf import Header, Info, spec_of
from kvroom.models.kinds import ConvState, FullAttention, Latent, RecurrentState, SlidingWindow

constants = pytest.importorskip("gguf.constants")
NAMES = dict(constants.MODEL_ARCH_NAMES)
PROJECTORS = ("clip", "mmproj")

KEYS = {
    "block_count": 4,
    "embedding_length": 64,
    "feed_forward_length": 128,
    "context_length": 4096,
    "vocab_size": 320,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "expert_count": 8,
    "expert_used_count": 2,
    "expert_feed_forward_length": 32,
    "attention.kv_lora_rank": 0,
    "ssm.inner_size": 128,
    "ssm.state_size": 16,
    "ssm.conv_kernel": 4,
    "ssm.time_step_rank": 8,
    "ssm.group_count": 1,
    "shortconv.l_cache": 3,
}


def shape_of(role: str) -> tuple[int, ...]:
    """A plausible shape: what matters here is that each tensor is read and counted."""
    if role.endswith("_exps"):
        return (64, 32, 8)
    if role in ("token_embd", "output"):
        return (64, 320)
    return (64,) if "norm" in role else (64, 64)


def header(arch, name, **more):
    shapes = {}
    for tensor in constants.MODEL_TENSORS[arch]:
        role = constants.TENSOR_NAMES[tensor]
        blocks = range(4) if "{bid}" in role else [0]
        for i in blocks:
            full = role.format(bid=i)
            shapes[f"{full}.weight"] = shape_of(
                full.rpartition(".")[2] if "{bid}" in role else full
            )
    tensors = {n: Info(s, 0, 4 * math.prod(s)) for n, s in shapes.items()}
    keys = {"general.architecture": name, **{f"{name}.{k}": v for k, v in KEYS.items()}}
    return Header({**keys, **{f"{name}.{k}": v for k, v in more.items()}}, tensors)


@pytest.mark.parametrize(("arch", "name"), NAMES.items(), ids=list(NAMES.values()))
def test_every_architecture_is_read(arch, name):
    made = header(arch, name)
    if name in PROJECTORS:
        with pytest.raises(KvroomError, match="projector"):
            spec_of(made, "m.gguf")
        return
    spec = spec_of(made, "m.gguf")
    assert spec.num_layers == 4
    by_tensors = gguf_tensors.read(
        made.metadata, {n: i.shape for n, i in made.tensors.items()}, "m"
    )
    assert by_tensors.params == sum(math.prod(i.shape) for i in made.tensors.values())


def tensors(arch="new", shapes=None, **keys):
    shapes = shapes or {"token_embd.weight": (64, 320), "blk.0.attn_k.weight": (64, 32)}
    metadata = {
        "general.architecture": arch,
        **{
            f"{arch}.{k.replace('__', '.')}": v
            for k, v in {
                "block_count": 4,
                "embedding_length": 64,
                "attention.head_count": 4,
                **keys,
            }.items()
        },
    }
    return gguf_tensors.read(metadata, shapes, "m.gguf")


def kinds(spec):
    return [s for layer in spec.each_layer() for s in layer.stores]


def test_windows_follow_the_files_own_pattern():
    said = {
        "attention.sliding_window": 512,
        "attention.sliding_window_pattern": [True, True, True, False],
    }
    assert [type(s) for s in kinds(tensors(**said))] == [SlidingWindow] * 3 + [FullAttention]


def test_windows_of_a_loader_that_says_them_itself():
    found = kinds(tensors(arch="olmo2", **{"attention.sliding_window": 4096}))
    assert [type(s) for s in found] == [SlidingWindow] * 3 + [FullAttention]


def test_a_window_that_no_layer_is_named_for_is_said():
    spec = tensors(**{"attention.sliding_window": 512})
    assert {type(s) for s in kinds(spec)} == {FullAttention}
    assert any("sliding_window" in w for w in spec.warnings)


def test_shared_layers_store_nothing():
    spec = tensors(**{"attention.shared_kv_layers": 2})
    assert sum(s.stored_bytes(10, gguf_bf16()) for s in kinds(spec)) == 2 * 10 * 2 * 64 * 2


def gguf_bf16():
    from kvroom.models.dtypes import BF16

    return BF16


def test_latents_and_states():
    spec = tensors(
        **{"attention.kv_lora_rank": 32, "rope.dimension_count": 8, "attention.key_length": 24}
    )
    assert {type(s) for s in kinds(spec)} == {Latent}
    mixed = tensors(
        **{
            "attention.head_count_kv": [0, 2, 0, 2],
            "ssm.inner_size": 128,
            "ssm.state_size": 16,
            "ssm.conv_kernel": 4,
        }
    )
    assert [type(s) for s in kinds(mixed)] == [RecurrentState, ConvState, FullAttention] * 2


def test_llama_cpps_recurrent_bytes():
    """RWKV keeps a state of embedding × head and as many shifted tokens as the file says, in FP32."""
    spec = tensors(**{"attention.head_count_kv": 0, "wkv.head_size": 16, "token_shift_count": 2})
    state, conv = kinds(spec)[:2]
    assert (state.entry_bytes(gguf_bf16()), conv.entry_bytes(gguf_bf16())) == (
        64 * 16 * 4,
        2 * 64 * 4,
    )


def test_an_encoder_keeps_nothing():
    assert not kinds(tensors(**{"attention.causal": False}))

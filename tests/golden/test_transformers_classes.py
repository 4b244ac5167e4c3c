"""Every causal, image-text, seq2seq, speech and multimodal class of transformers, from its default config.

What the classes hold was recorded on the meta device (``transformers_5.24.0.json.gz`` says with which
versions): parameters of the default config and of one with several keys changed, and what is cached
after 16 tokens. Where transformers and torch are installed, the installed classes are tried too.
"""

from __future__ import annotations

import gzip
import json
import os
import warnings
from collections import Counter
from pathlib import Path

import pytest

from kvroom.errors import KvroomError
from kvroom.models.kinds import (
    ConvState,
    CrossAttention,
    HeadedAttention,
    Latent,
    RecurrentState,
    SharedCache,
    TiedWindow,
)
from kvroom.models.load import load
from kvroom.models.spec import ModelSpec

RECORDED = json.loads(
    gzip.decompress((Path(__file__).parent / "transformers_5.24.0.json.gz").read_bytes())
)["classes"]
TOKENS = 16
WANTED = 0.97
ELSEWHERE = {
    "DeepseekV2ForCausalLM": "its default routes a token to no number of experts",
    "Glm4MoeForCausalLM": "its default's 96 heads do not divide 4,096",
    "Glm4vMoeForConditionalGeneration": "its default's 96 heads do not divide 4,096",
    "LongcatFlashForCausalLM": "it allocates weights for experts that compute nothing",
    "MllamaForCausalLM": "the decoder alone: its config is that of the whole",
}
"""Classes whose default config is refused or counted otherwise, and why."""
OTHER_CACHES = {
    "CpmAntForCausalLM": "its prompt's 32 tokens are cached with the 16",
    "DeepseekV4ForCausalLM": "keys are values: transformers stores them twice",
    "DiaForConditionalGeneration": "recorded with one token",
    "Florence2ForConditionalGeneration": "recorded with one token",
    "GPTNeoForCausalLM": "its local layers read 256 tokens; transformers stores all",
    "MiniMaxForCausalLM": "its linear states lie outside the recorded cache",
    "MistralLarge4ForConditionalGeneration": "two layers keep no rotary part",
    "UnlimitedOcrForConditionalGeneration": "recorded with no tokens",
    "ZayaForCausalLM": "one vector of the token before beside the convolutions",
}


def read(config: dict, name: str) -> ModelSpec:
    return load({"config": {**config, "architectures": [name], "transformers_version": "5.24.0"}})


def changed(config: dict, changes: dict) -> dict:
    """``config`` with keys replaced by their paths, its lists of layers made as long."""
    made = json.loads(json.dumps(config))
    for path, value in changes.items():
        *above, last = path.split(".")
        level = made
        for key in above:
            level = level[key]
        old = level.get(last)
        level[last] = value
        if (
            last.endswith(("layers", "layer", "depth"))
            and type(value) is int
            and old
            and value > old > 1
        ):
            for key, entry in level.items():
                if isinstance(entry, list) and len(entry) == old:
                    level[key] = (entry * -(-value // old))[:value]
    return made


def test_defaults_are_answered_and_right():
    found: Counter[str] = Counter()
    odd = []
    for recorded in RECORDED:
        try:
            params = read(recorded["config"], recorded["class"]).params
        except KvroomError:
            found["refused"] += 1
            odd.append(recorded["class"])
            continue
        right = params == recorded["params"]
        found["right" if right else "wrong"] += 1
        if not right:
            odd.append(recorded["class"])
    answered = found["right"] + found["wrong"]
    assert answered >= WANTED * len(RECORDED)
    assert found["right"] >= WANTED * answered
    assert set(odd) <= set(ELSEWHERE)


def test_changed_configs_are_right():
    """The table's expressions hold for other widths, layers, experts and biases than the default's.

    What differs is mostly how an encoder-decoder unties its tables, and biases that no published
    checkpoint of a reader's type has.
    """
    ratios = []
    for recorded in RECORDED:
        if "varied" not in recorded:
            continue
        config = changed(recorded["config"], recorded["varied"]["changes"])
        try:
            params = read(config, recorded["class"]).params
        except KvroomError:
            continue  # heads that do not share KV heads evenly: refused, as engines do
        ratios.append(params / recorded["varied"]["params"])
    assert len(ratios) > 250
    assert sum(r == 1 for r in ratios) >= 0.83 * len(ratios)
    assert sum(abs(r - 1) < 0.05 for r in ratios) >= 0.94 * len(ratios)


def elements(spec: ModelSpec) -> tuple[int, int, int]:
    """(attention, state, convolution) elements after ``TOKENS`` tokens, as transformers stores them:
    a latent once, a convolution's kernel whole."""
    attention = state = convolution = 0
    for layer in spec.each_layer():
        for kind in layer.stores:
            match kind:
                case SharedCache() | CrossAttention():
                    pass
                case Latent():
                    attention += TOKENS * (kind.latent_dim + kind.rope_dim)
                case TiedWindow():
                    attention += kind.entries(TOKENS) * kind.kv_heads * kind.k_dim
                case HeadedAttention():
                    attention += kind.entries(TOKENS) * kind.kv_heads * (kind.k_dim + kind.v_dim)
                case RecurrentState():
                    state += kind.heads * kind.head_elements
                case ConvState():
                    convolution += kind.width * (kind.columns + 1)
    return attention, state, convolution


def test_caches_are_as_measured():
    wrong = []
    tried = 0
    for recorded in RECORDED:
        if "cache" not in recorded or recorded["class"] in ELSEWHERE:
            continue
        tried += 1
        spec = read(recorded["config"], recorded["class"])
        windows = Counter(
            str(s.window)
            for layer in spec.each_layer()
            for s in layer.stores
            if not isinstance(s, SharedCache) and getattr(s, "window", None)
        )
        chunks = Counter(
            str(s.chunk) for layer in spec.each_layer() for s in layer.stores if hasattr(s, "chunk")
        )
        near = recorded.get("windows", {})
        if elements(spec) != tuple(recorded["cache"]) or near not in (dict(windows), dict(chunks)):
            wrong.append(recorded["class"])
    assert tried > 240
    assert set(wrong) <= set(OTHER_CACHES)


def test_installed_classes():
    """The transformers of this environment, whatever its version."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.models.auto import modeling_auto as auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    tasks = ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
    names = {
        (kind, name if isinstance(name, str) else name[0])
        for task in tasks
        for kind, name in getattr(auto, f"MODEL_FOR_{task}_MAPPING_NAMES").items()
    }
    found: Counter[str] = Counter()
    for kind, name in sorted(names):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                config = CONFIG_MAPPING[kind]()
                with torch.device("meta"):
                    made = getattr(transformers, name)(config)
                made.tie_weights()
        except Exception:  # a class that its own default cannot make
            continue
        params = sum(p.numel() for p in made.parameters())
        said = json.loads(config.to_json_string(use_diff=False))
        try:
            found["right" if read(said, name).params == params else "wrong"] += 1
        except KvroomError:
            found["refused"] += 1
    answered = found["right"] + found["wrong"]
    assert answered >= WANTED * found.total()
    assert found["right"] >= WANTED * answered

"""What SGLang takes a model for: the families that its rules tell apart, by the class a config names."""

from __future__ import annotations

from dataclasses import replace

from kvroom.engines.sglang.flags import SglangFlags
from kvroom.engines.sglang.versions import GPT_OSS, LLAMA4, SglangRules
from kvroom.memo import Memo
from kvroom.models.kinds import (
    FullAttention,
    HeadedAttention,
    LayerKind,
    RecurrentState,
    SharedCache,
)
from kvroom.models.spec import ModelSpec, Vision
from kvroom.records import dataclass

ARCHITECTURES = {
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "deepseek_v4": "DeepseekV4ForCausalLM",
    "falcon_h1": "FalconH1ForCausalLM",
    "gemma3": "Gemma3ForConditionalGeneration",
    "gemma3n": "Gemma3nForConditionalGeneration",
    "gemma4": "Gemma4ForConditionalGeneration",
    "gemma4_text": "Gemma4ForCausalLM",
    "glm4v_moe": "Glm4vMoeForConditionalGeneration",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "gpt_oss": GPT_OSS,
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "kimi_k25": "KimiK25ForConditionalGeneration",
    "kimi_k3": "KimiK3ForConditionalGeneration",
    "kimi_linear": "KimiLinearForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "llama4": LLAMA4,
    "llava": "LlavaForConditionalGeneration",
    "minimax_m3": "MiniMaxM3SparseForCausalLM",
    "mimo_v2_flash": "MiMoV2FlashForCausalLM",
    "mistral3": "Mistral3ForConditionalGeneration",
    "mllama": "MllamaForConditionalGeneration",
    "nemotron_h": "NemotronHForCausalLM",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration",
    "step3p5": "Step3p5ForCausalLM",
    "step3p7": "Step3p7ForConditionalGeneration",
    "whisper": "WhisperForConditionalGeneration",
}
"""The class of a ``model_type`` whose config names none, where SGLang has rules of its own for it."""
RENAMED = {
    "MiniMaxM3ForCausalLM": "MiniMaxM3SparseForCausalLM",
    "Step3p7FlashForCausalLM": "Step3p5ForCausalLM",
}
"""Classes that SGLang knows under another name."""

TEXT_UNLESS_ASKED = frozenset(
    {
        "Gemma3ForConditionalGeneration",
        LLAMA4,
        "Step3VLForConditionalGeneration",
        "InklingForConditionalGeneration",
    }
)
"""Models with towers that run as text models unless ``enable_multimodal`` says otherwise."""
SEEING = frozenset(
    {
        "CLIPModel",
        "DeepseekOCRForCausalLM",
        "DeepseekVL2ForCausalLM",
        "DotsOCRForCausalLM",
        "DotsVLMForCausalLM",
        "InternVLChatModel",
        "LlavaLlamaForCausalLM",
        "LlavaMistralForCausalLM",
        "LlavaQwenForCausalLM",
        "MiniCPMO",
        "MiniCPMV",
        "MultiModalityCausalLM",
        "NemotronH_Nano_VL_V2",
        "NemotronH_Omni_Reasoning_V3",
        "POINTSV15ChatModel",
        "Phi4MMForCausalLM",
    }
)
"""Multimodal classes beside those called ``…ForConditionalGeneration``."""
TEXT_ONLY = frozenset({"T5ForConditionalGeneration", "BartForConditionalGeneration"})

VISION_DEFAULTS = {
    "gemma3": Vision(12, 768),
    "gemma3n": Vision(None, 2048),
    "gemma4": Vision(16, 768),
    "kimi_k25": Vision(27, 1152),
    "llama4": Vision(34, 768),
    "mistral3": Vision(24, 1024),
    "mllama": Vision(32, 1280),
    "qwen2_5_vl": Vision(None, 3584),
    "qwen2_vl": Vision(None, 3584),
    "qwen3_5": Vision(None, 1152),
    "qwen3_5_moe": Vision(None, 1152),
    "qwen3_vl": Vision(None, 1152),
    "qwen3_vl_moe": Vision(None, 1152),
    "step3p7": Vision(None, None),
}
"""What the classes fill in where ``vision_config`` (or all of it) is left out of the file."""

DEEPSEEK_FAMILY = frozenset(
    {
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "KimiK25ForConditionalGeneration",
        "MistralLarge3ForCausalLM",
        "PixtralForConditionalGeneration",
        "GlmMoeDsaForCausalLM",
        "LongcatFlashForCausalLM",
    }
)
"""Latent attention that Blackwell's own kernels are chosen for."""
DRAFTS_UNCOUNTED = frozenset(
    {"Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"}
)
"""Prediction layers that SGLang does not find in the config, so that it charges nothing for them."""
GATED_DELTA = frozenset(
    {
        "Qwen3NextForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The families a model belongs to, under one release's rules and the flags."""

    architecture: str
    latent: bool
    sparse: bool
    compressed: bool
    state: bool
    kda: bool
    windows: bool
    """Its windows may have a pool of their own (the attention kernel may still rule it out)."""
    multimodal: bool
    asymmetric: bool
    vision: Vision | None


ATTENTION_ONLY = frozenset({"jamba"})
"""Hybrids that are no model of SGLang: it would count each of their layers as attention."""
_TAKEN: Memo[ModelSpec] = Memo(16)


def taken(model: ModelSpec) -> ModelSpec:
    """The model as SGLang would size it, with a warning where that is not what it is."""
    kinds = [kind for kind, _ in model.stores if isinstance(kind, FullAttention)]
    if model.model_type not in ATTENTION_ONLY or not kinds:
        return model

    def make() -> ModelSpec:
        runs = tuple(
            replace(run, layer=replace(run.layer, stores=(kinds[0],))) for run in model.layers
        )
        said = (
            f"{model.model_type} is no model of SGLang, which has no state for it: sized as "
            f"{model.num_layers} layers of plain attention"
        )
        return replace(model, layers=runs, warnings=(*model.warnings, said))

    return _TAKEN.get((model,), (), make)


def traits_of(model: ModelSpec, rules: SglangRules, flags: SglangFlags) -> Traits:
    """The Traits of ``model``."""
    architecture = model.architecture or ARCHITECTURES.get(model.model_type, "")
    architecture = RENAMED.get(architecture, architecture)
    kinds = [kind for kind, _ in model.stores]
    names = {kind.kind for kind in kinds}
    latent = "latent" in names
    headed = [attention_of(kind) for kind in kinds]
    near = bool(names & {"window", "chunked"})
    listed = architecture in rules.window_archs
    if architecture == LLAMA4 and rules.llama4_ratio:
        listed = bool(flags.llama4_ratio)
    return Traits(
        architecture=architecture,
        latent=latent,
        sparse=latent and "indexer" in names,
        compressed="compressed" in names,
        state=bool(names & {"state", "conv"}),
        kda=any(isinstance(kind, RecurrentState) and kind.form == "kda" for kind in kinds),
        windows=near and listed and flags.windows,
        multimodal=_multimodal(model, architecture, flags),
        asymmetric=any(kind is not None and kind.k_dim != kind.v_dim for kind in headed),
        vision=_vision(model),
    )


def attention_of(kind: LayerKind) -> HeadedAttention | None:
    """The attention with heads that ``kind`` is, or shares (SGLang keeps shared layers' caches too)."""
    inner = kind.of if isinstance(kind, SharedCache) else kind
    return inner if isinstance(inner, HeadedAttention) else None


def _multimodal(model: ModelSpec, architecture: str, flags: SglangFlags) -> bool:
    able = architecture in SEEING or (
        architecture.endswith("ForConditionalGeneration") and architecture not in TEXT_ONLY
    )
    if flags.multimodal is not None:
        return able and flags.multimodal
    return able and architecture not in TEXT_UNLESS_ASKED


def _vision(model: ModelSpec) -> Vision | None:
    """The tower's sizes as SGLang reads them, its class's defaults filled in."""
    default = VISION_DEFAULTS.get(model.model_type)
    said = model.vision
    if said is None or default is None:
        return said or default
    return Vision(
        said.num_hidden_layers or default.num_hidden_layers,
        said.hidden_size or default.hidden_size,
    )

"""LongCat-Flash: two latent attentions and two dense blocks in a layer, experts beside them.

A layer caches both latents. Of its router's choices ``zero_expert_num`` compute nothing: they have a row of
the router and no weights (arXiv 2509.01322, 2.1; transformers allocates some for them, which the published
files do not hold).
"""

from __future__ import annotations

from kvroom.models import parts
from kvroom.models.config import MAX_LAYERS, Config
from kvroom.models.hf.common import INNER, LAYERS, model, two_norms
from kvroom.models.hf.experts import check_active
from kvroom.models.hf.latent import latent_sizes
from kvroom.models.spec import Layer, ModelSpec


def longcat_flash(config: Config) -> ModelSpec:
    """LongCat-Flash and its Thinking, 560B of which about 27B are used."""
    config = config.of_class(
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
        kv_lora_rank=512,
        q_lora_rank=1536,
        zero_expert_num=256,
        moe_topk=12,
        max_position_embeddings=131072,
    )
    m = latent_sizes(config)
    count = config.integer("n_routed_experts", "num_experts", high=100_000)
    zero = config.integer("zero_expert_num", low=0, high=100_000)
    chosen = check_active(
        config, count + zero, config.integer("moe_topk", high=100_000), ("moe_topk",)
    )
    inner = config.integer("expert_ffn_hidden_size", "moe_intermediate_size")
    half = (
        *two_norms(m.hidden),
        *m.tensors(bias=config.flag("attention_bias")),
        *parts.mlp(m.hidden, config.integer(*INNER), name="mlps"),
    )
    # A token's choices fall on experts that compute in the share that these have of all.
    active = max(1, round(chosen * count / (count + zero)))
    layer = Layer(
        stores=(m.kept(), m.kept()),
        tensors=(
            *half,
            *half,
            *parts.router(m.hidden, count + zero, name="mlp.router.classifier"),
            *parts.experts(m.hidden, inner, count, min(active, count)),
        ),
    )
    layers = config.integer(*LAYERS, high=MAX_LAYERS)
    return model(
        config,
        [layer] * layers,
        hidden=m.hidden,
        vocab=config.integer("vocab_size"),
        q_heads=m.heads,
        kv_heads=1,  # the latent: one for all heads
    )

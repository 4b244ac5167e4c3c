"""What a tensor is, told by its name and shape: its part of the model and how ranks cut it."""

from __future__ import annotations

import re
from math import prod

from kvroom.models.tensors import Part, Split, Tensor

_EMBEDDING = (
    r"(^|\.)(embed_tokens|wte|wpe|w|\w*embeddings?|shared|embed_\w+|tok_embeddings|\w*_embed)(\.|$)"
)
_HEAD = (
    r"(^|\.)(lm_head|head|output_projection|embed_out|output_layer|pred_layer|predictions)(\.|$)"
)
_ROUTER = r"router|(mlp|moe|ffn|block_sparse_moe|feed_forward)\.(gate|classifier|wg)(\.|$)"
_PARTS: tuple[tuple[str, Part], ...] = (
    (_EMBEDDING, "embedding"),
    (_HEAD, "head"),
    (r"shared_expert_gate|shared_mlp_gate", "router"),
    (r"shared_?(expert|mlp)", "shared_expert"),
    (r"(^|\.)experts?(\.|$|_)", "expert"),
    (_ROUTER, "router"),
    (r"norm|ln_|(^|\.)ln\d?(\.|$)|scale$|lambda", "norm"),
    (r"mamba|mixer|linear_attn|conv|recurrent|ssm|rwkv|lstm|A_log|dt_|time_", "state"),
    (r"attn|attention|attend|(^|\.)[qkvo]_proj", "attention"),
    (r"", "mlp"),
)
_KV = re.compile(
    r"(^|[._])(k|v|key|value|kv|k_proj|v_proj|qkv\w*|Wqkv|query_key_value|c_attn)(_proj)?(\.|$)"
)
_OUT = re.compile(
    r"(^|\.)(o_proj|out_proj|out_lin|down_proj|fc2|wo|w2|c_proj|dense_4h_to_h|dense|lin2|o|fc_out|linear_2"
    r"|output_linear|ff2|o_lin)(\.|$)"
)
_COLUMN = re.compile(
    r"(^|\.)(q\w*|query|gate_proj|up_proj|gate_up_proj|fc1|wi\w*|w1|w3|c_fc|dense_h_to_4h|lin1|in_proj\w*"
    r"|input_linear|fc_in|linear_1|ff1)(\.|$)"
)


def tensor_of(name: str, sizes: list[int], active: int = 0) -> Tensor:
    """The Tensor of that name inside its layer, as its class shapes it.

    Three dimensions are stacked experts, of which a token uses ``active``, or a convolution, which
    nobody narrows: a vector to everything downstream.
    """
    name = name.removesuffix(".weight")
    part = next(p for pattern, p in _PARTS if re.search(pattern, name))
    count = 1
    if part == "expert" and (len(sizes) == 3 or (len(sizes) == 2 and name.endswith("bias"))):
        count, sizes = max(1, sizes[0]), sizes[1:]
    if len(sizes) > 2 or (part == "state" and "conv" in name):
        sizes = [prod(sizes)]
    sizes = sizes or [1]
    rows, columns = (sizes[0], 1) if len(sizes) == 1 else (sizes[0], sizes[1])
    if part == "expert":
        split: Split = "expert"
    elif part in ("embedding", "head"):
        split = "vocab" if columns > 1 or part == "head" else "replicated"
    else:
        split = _split(name, columns)
    chosen = min(active, count) if part == "expert" else 0
    return Tensor(
        name=name, rows=rows, columns=columns, count=count, part=part, split=split, active=chosen
    )


def _split(name: str, columns: int) -> Split:
    bias = name.endswith(".bias")
    module = name.removesuffix(".bias")
    if _OUT.search(module):
        return "replicated" if bias or columns == 1 else "row"
    if _KV.search(module):
        return "kv"
    return "column" if _COLUMN.search(module) else "replicated"

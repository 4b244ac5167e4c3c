"""The parts that transformer layers are made of, as weight tensors.

Every function returns a tuple of tensors for one layer. Module names are those of the published
checkpoints. Shapes are (out, in): a matrix times a column of inputs.
"""

from __future__ import annotations

from kvroom.models.tensors import Part, Split, Tensor

Tensors = tuple[Tensor, ...]


def linear(
    name: str,
    out: int,
    into: int,
    *,
    part: Part,
    split: Split = "replicated",
    bias: bool = False,
    units: int = 0,
) -> Tensors:
    """A linear layer ``out`` × ``into`` and, with ``bias``, its vector (cut as the output is)."""
    matrix = Tensor(name=name, rows=out, columns=into, part=part, split=split, units=units)
    if not bias:
        return (matrix,)
    cut: Split = "replicated" if split == "row" else split
    return (matrix, Tensor(name=f"{name}.bias", rows=out, part=part, split=cut, units=units))


def norm(name: str, size: int, *, bias: bool = False) -> Tensors:
    """A norm's scale and, with ``bias`` (LayerNorm), its shift."""
    return (Tensor(name=name, rows=size * (2 if bias else 1), part="norm"),)


def vector(name: str, size: int, *, part: Part = "norm", split: Split = "replicated") -> Tensors:
    """Any other vector of ``size`` parameters."""
    return (Tensor(name=name, rows=size, part=part, split=split),)


def embedding(rows: int, columns: int, name: str = "embed_tokens") -> Tensors:
    """A table of ``rows`` looked-up vectors."""
    return (Tensor(name=name, rows=rows, columns=columns, part="embedding", split="vocab"),)


def positions(rows: int, columns: int, name: str = "embed_positions") -> Tensors:
    """A table of learned positions, which every rank keeps whole."""
    return (Tensor(name=name, rows=rows, columns=columns, part="embedding"),)


def lm_head(vocab: int, hidden: int, *, bias: bool = False, name: str = "lm_head") -> Tensors:
    """The projection onto the vocabulary (leave it out where it is tied to the embedding)."""
    return linear(name, vocab, hidden, part="head", split="vocab", bias=bias)


def attention(
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    v_dim: int | None = None,
    qkv_bias: bool = False,
    k_bias: bool | None = None,
    o_bias: bool = False,
    name: str = "self_attn",
    names: tuple[str, str, str, str] = ("q_proj", "k_proj", "v_proj", "o_proj"),
    part: Part = "attention",
    q_gate: bool = False,
) -> Tensors:
    """Query, key, value and output projections of (grouped, multi-query) attention.

    ``names`` are the four modules' own; a fused projection names the same module for all it holds.
    ``k_bias`` is for keys that differ from queries and values (Whisper's have none). With ``q_gate``
    the query projection also makes a gate of its own width for the output (Qwen3-Next).
    """
    q_rows = heads * head_dim * (2 if q_gate else 1)
    v_dim = head_dim if v_dim is None else v_dim
    k_bias = qkv_bias if k_bias is None else k_bias
    q, k, v, o = (f"{name}.{module}" for module in names)
    return (
        *linear(q, q_rows, hidden, part=part, split="column", bias=qkv_bias, units=heads),
        *linear(k, kv_heads * head_dim, hidden, part=part, split="kv", bias=k_bias, units=kv_heads),
        *linear(v, kv_heads * v_dim, hidden, part=part, split="kv", bias=qkv_bias, units=kv_heads),
        *linear(o, hidden, heads * v_dim, part=part, split="row", bias=o_bias, units=heads),
    )


def mlp(
    hidden: int,
    inner: int,
    *,
    gated: bool = True,
    bias: bool = False,
    name: str = "mlp",
    names: tuple[str, ...] | None = None,
    part: Part = "mlp",
) -> Tensors:
    """A feed-forward block: (gate,) up and down; ``names`` are the modules' own, down last."""
    if names is None:
        names = ("gate_proj", "up_proj", "down_proj") if gated else ("up_proj", "down_proj")
    *up, down = (f"{name}.{module}" if name else module for module in names)
    return (
        *(t for u in up for t in linear(u, inner, hidden, part=part, split="column", bias=bias)),
        *linear(down, hidden, inner, part=part, split="row", bias=bias),
    )


def experts(
    hidden: int,
    inner: int,
    count: int,
    active: int,
    *,
    gated: bool = True,
    bias: bool = False,
    name: str = "mlp.experts",
    names: tuple[str, ...] | None = None,
) -> Tensors:
    """``count`` routed experts, of which a token goes through ``active``; ``names`` as in ``mlp``."""
    if names is None:
        names = ("gate_proj", "up_proj", "down_proj") if gated else ("up_proj", "down_proj")
    shapes = [(f"{name}.{one_name}", inner, hidden) for one_name in names[:-1]]
    shapes.append((f"{name}.{names[-1]}", hidden, inner))
    tensors = []
    for module, rows, columns in shapes:
        tensors.append(
            Tensor(
                name=module,
                rows=rows,
                columns=columns,
                count=count,
                active=active,
                part="expert",
                split="expert",
            )
        )
        if bias:
            tensors.append(
                Tensor(
                    name=f"{module}.bias",
                    rows=rows,
                    count=count,
                    active=active,
                    part="expert",
                    split="expert",
                )
            )
    return tuple(tensors)


def router(hidden: int, count: int, *, bias: bool = False, name: str = "mlp.gate") -> Tensors:
    """The linear layer that scores experts."""
    return linear(name, count, hidden, part="router", bias=bias)

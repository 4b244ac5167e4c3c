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
    With ``q_gate`` the query projection also makes a gate of its own width for the output.
    ``k_bias`` is for keys that differ from queries and values (Whisper's have none).
    """
    v_dim = head_dim if v_dim is None else v_dim
    k_bias = qkv_bias if k_bias is None else k_bias
    q, k, v, o = (f"{name}.{module}" for module in names)
    return (
        *linear(
            q,
            heads * head_dim * (2 if q_gate else 1),
            hidden,
            part=part,
            split="column",
            bias=qkv_bias,
            units=heads,
        ),
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
    part: Part = "mlp",
    names: tuple[str, ...] | None = None,
) -> Tensors:
    """A feed-forward block: (gate,) up and down; ``names`` as in ``experts``."""
    *up, (down, *_) = _feed_forward(hidden, inner, gated, names)
    prefix = f"{name}." if name else ""
    return (
        *(
            t
            for u, rows, columns in up
            for t in linear(f"{prefix}{u}", rows, columns, part=part, split="column", bias=bias)
        ),
        *linear(f"{prefix}{down}", hidden, inner, part=part, split="row", bias=bias),
    )


def _feed_forward(
    hidden: int, inner: int, gated: bool, names: tuple[str, ...] | None
) -> list[tuple[str, int, int]]:
    if names is None:
        names = ("gate_proj", "up_proj", "down_proj") if gated else ("up_proj", "down_proj")
    *up, down = names
    rows = 2 * inner if gated and len(up) == 1 else inner
    return [*((u, rows, hidden) for u in up), (down, hidden, inner)]


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
    """``count`` routed experts, of which a token goes through ``active``.

    ``names`` are their names where they differ (``w1 w3 w2``); a gated block of only two keeps gate
    and up in one matrix.
    """
    made = []
    for short, rows, columns in _feed_forward(hidden, inner, gated, names):
        module = f"{name}.{short}"
        made.append(
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
            made.append(
                Tensor(
                    name=f"{module}.bias",
                    rows=rows,
                    count=count,
                    active=active,
                    part="expert",
                    split="expert",
                )
            )
    return tuple(made)


def router(hidden: int, count: int, *, bias: bool = False, name: str = "mlp.gate") -> Tensors:
    """The linear layer that scores experts."""
    return linear(name, count, hidden, part="router", bias=bias)

"""What an engine refuses as it starts: rules with their source, one table an engine; and the widths of
weights and cache that its ``Support`` says it has none of.

A rule looks at one question and says why the engine would refuse it and what would do instead, or nothing.
Rules that several engines share (their loaders come from one another) are here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, NamedTuple

from kvroom.answer.verdict import Reason
from kvroom.engines.flags import plain_args, switch
from kvroom.engines.releases import Release, shown
from kvroom.engines.support import Support, weights_need
from kvroom.models.dtypes import cache_dtype
from kvroom.models.tensors import Tensor
from kvroom.models.weight_dtypes import named
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.layout import shape_on_rank

FAR: Release = (9999, 9999, 9999)
GROUPED_NAMES = ("int4", "gptq", "awq")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRefusal:
    """Why an engine would refuse to start: ``rule`` names it, ``fix`` is what would do instead, ``source``
    where that is known from, ``args`` flags that would do. ``unsupported``: it does not run so at all.
    ``key``: the Scenario key that it is about, where it is about one."""

    rule: str
    message: str
    fix: str
    source: str
    unsupported: bool = False
    args: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""

    @property
    def reason(self) -> Reason:
        """It as a verdict tells it."""
        return Reason(rule=self.rule, message=self.message, fix=self.fix, source=self.source)


class Against(NamedTuple):
    """What a rule says against a question: the message, what would do, and the flags that would."""

    message: str
    fix: str
    args: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRule:
    """One thing that an engine refuses.

    ``why`` takes the engine's own question (its Setup, or a Deployment) and says what is against it, or
    nothing. It holds in releases ``since`` and before ``until``. ``unsupported``: no flag would help.
    ``key``: the Scenario key that it is about, where it is about one.
    """

    name: str
    why: Callable[[Any], Against | None]
    source: str
    since: Release = (0, 0, 0)
    until: Release = FAR
    unsupported: bool = False
    key: str = ""


def refusals(
    rules: Iterable[StartRule], question: Any, release: Release = (0, 0, 0)
) -> Iterator[StartRefusal]:
    """What of ``rules`` refuses ``question`` in ``release``, in the table's order."""
    for rule in rules:
        if rule.since <= release < rule.until and (found := rule.why(question)) is not None:
            yield StartRefusal(
                rule=rule.name,
                message=found.message,
                fix=found.fix,
                args=found.args,
                source=rule.source,
                unsupported=rule.unsupported,
                key=rule.key,
            )


def capability(deployment: Deployment) -> float | None:
    """The card's CUDA compute capability; None where it has none, or does not say."""
    if deployment.device.vendor.lower() != "nvidia":
        return None
    try:
        return float(deployment.device.compute_capability or "")
    except ValueError:
        return None


def cache_type(deployment: Deployment, known: Iterable[str] | None) -> Against | None:
    """A cache type that is none of the engine's ``known`` ones, nor the model's own."""
    if known is None:
        return None
    names = tuple(known)
    own = (deployment.weights.quantisation.kv_dtype, deployment.model.dtype)
    stored = deployment.kv.name.split("/")  # keys and values apart
    if deployment.kv_asked == "auto" or deployment.kv_asked in own or set(stored) <= set(names):
        return None
    alike = [name for name in names if cache_dtype(name).bits == deployment.kv.bits]
    wide = f"kv_dtype {alike[0]}, as wide, or " if alike else "kv_dtype "
    others = [name for name in ("auto", *names) if name not in alike[:1]]
    return Against(
        f"{deployment.engine} has no cache type {deployment.kv_asked}", f"{wide}{', '.join(others)}"
    )


def length_refusals(
    deployment: Deployment, label: str, flag: str, variable: str
) -> Iterator[StartRefusal]:
    """Requests longer than the model states, which an engine called ``label`` refuses (its ``flag`` for them)
    unless ``variable`` is set."""
    asked, limit = deployment.context_tokens, deployment.model.max_context_tokens
    given = plain_args(deployment.args).get(variable.lower(), False)
    if limit is None or asked <= limit or switch(f"engine_args.{variable}", given):
        return
    yield StartRefusal(
        rule="context_limit",
        message=f"{label} refuses {asked:,} tokens, as the model states {limit:,}",
        fix=f"{flag} {limit}, or {variable}=1 where answers beyond it will do",
        source=f"{label}'s check of its longest request",
        args={variable: 1},
        key="context_tokens",
    )


def width_refusals(deployment: Deployment, support: Support, label: str) -> Iterator[StartRefusal]:
    """Widths asked for that an engine called ``label`` has none of, or not on this card and release."""
    against = weight_type(deployment, support.weight_types, label)
    if against is not None:
        yield StartRefusal(
            rule="weight_type",
            message=against.message,
            fix=against.fix,
            source=f"the checkpoints that {label} loads",
            unsupported=True,
            key="weight_dtype",
        )
    rule, version, device = deployment.weights.quantisation, deployment.version, deployment.device
    need = weights_need(support.weights, rule.name)
    if need is not None and need.refuses and (why := need.refusal(label, version, device)):
        yield StartRefusal(
            rule="weights_on_card",
            message=f"{label} runs no {rule.name} weights here: {why}",
            fix=f"{need.chips}, or wider weights",
            source=need.source,
            unsupported=True,
            key="weight_dtype",
        )
    asked = deployment.kv_asked if deployment.kv_asked == "auto" else deployment.kv.name
    need = support.cache.get(asked)
    if need is None or by_auto(deployment):
        return
    older = need.too_old(label, version)
    if why := older or (need.refusal(label, version, device) if need.refuses else None):
        later = f"{label} {shown(need.since)} or later, or " if older and need.since else ""
        yield StartRefusal(
            rule="cache_on_card",
            message=f"{label} keeps no {asked} cache here: {why}",
            fix=f"{later}kv_dtype auto",
            source=need.source,
            key="kv_dtype",
        )


def by_auto(deployment: Deployment) -> bool:
    """Whether the cache width that is asked for is the one that is taken unasked: the model's own."""
    own = deployment.weights.quantisation.kv_dtype
    return own is None and deployment.kv.name == deployment.model.dtype


def drafting_refusals(
    deployment: Deployment, support: Support, label: str
) -> Iterator[StartRefusal]:
    """A way of drafting that the release of an engine called ``label`` does not have."""
    method = deployment.speculation.method if deployment.speculation else ""
    need = support.drafting.get(method)
    if need is not None and (why := need.too_old(label, deployment.version)):
        later = f"{label} {shown(need.since)} or later" if need.since else "a later release"
        yield StartRefusal(
            rule="drafting",
            message=f"{label} has no {method} drafting here: {why}",
            fix=f"{later}, or no speculation",
            source=need.source,
            key="speculation",
        )


def weight_type(deployment: Deployment, known: Iterable[str] | None, label: str) -> Against | None:
    """Weights asked for in a width of which the engine loads no checkpoint; the model's own is taken for
    granted, since people convert it."""
    rule = deployment.weights.quantisation
    if known is None or deployment.weights_asked is None or rule.name in (names := tuple(known)):
        return None
    alike = [name for name in names if named(name).linear.bits == rule.linear.bits]
    return Against(
        f"{label} loads no {rule.name} weights",
        f"weight_dtype {' or '.join(alike[:3] or names[:3])}",
    )


def too_old(deployment: Deployment, least: float | None, engine: str) -> Against | None:
    """A card of NVIDIA's below the ``least`` compute capability."""
    found = capability(deployment)
    if found is None or least is None or found >= least:
        return None
    return Against(
        f"{engine} needs compute capability {least} and {deployment.device.name} has {found}",
        "another card, or llama.cpp",
    )


MERGED = ("q_proj", "k_proj", "v_proj", "qkv_proj", "gate_proj", "up_proj", "gate_up_proj")
"""Matrices that engines load as parts of one."""


def cut_blocks(
    deployment: Deployment, *, merged: bool = True, experts: bool = True
) -> Against | None:
    """Tensor parallel cuts block-quantised weights within a block.

    A block's scale holds for so many rows and columns; a rank that holds part of one has no scale of its
    own. Layers cut over ranks are looked at, ``merged`` ones too, and ``experts`` over all the ranks that
    share one.
    """
    linear = deployment.weights.quantisation.linear
    if linear.group_rows <= 1 or linear.bits != 8:
        return None
    block = linear.group_rows
    for tensor, size, ranks in _cut_sides(deployment, experts=experts):
        if tensor.part != "expert" and not merged and tensor.name.endswith(MERGED):
            continue
        if size % block:
            return Against(
                f"{tensor.name} has {size:,} columns a rank on {ranks} ranks, no multiple of the "
                f"quantisation block of {block}",
                _wider(deployment, tensor, block),
            )
    return None


def cut_groups(deployment: Deployment) -> Against | None:
    """The same for groups of four-bit weights, along what goes in; experts' kernels fall back."""
    linear = deployment.weights.quantisation.linear
    if linear.bits != 4 or linear.group <= 1 or not linear.name.startswith(GROUPED_NAMES):
        return None
    for tensor, size, ranks in _cut_sides(deployment, experts=False):
        if tensor.split == "row" and size % linear.group:
            return Against(
                f"{tensor.name} takes {size:,} numbers a rank on {ranks} ranks, no multiple of the "
                f"quantisation group of {linear.group}",
                _wider(deployment, tensor, linear.group),
            )
    return None


def uneven_mlp(deployment: Deployment) -> Against | None:
    """Tensor ranks that an MLP's width cannot be dealt out to."""
    tp = deployment.layout.tp
    for run in deployment.model.layers:
        for tensor in run.layer.tensors:
            if tensor.part not in ("mlp", "shared_expert") or not tensor.is_matrix:
                continue
            width = {"column": tensor.rows, "row": tensor.columns}.get(tensor.split)
            if width is not None and width % tp:
                fits = [n for n in (1, 2, 4, 8, 16) if width % n == 0]
                return Against(
                    f"{tensor.name} is {width:,} wide, which {tp} tensor ranks do not divide",
                    f"tp {' or '.join(map(str, fits))}",
                )
    return None


def _cut_sides(
    deployment: Deployment, *, experts: bool = True
) -> Iterator[tuple[Tensor, int, int]]:
    """(a narrowed matrix, its cut side on one rank, the ranks it is cut over)."""
    layout, rule = deployment.layout, deployment.weights.quantisation
    first = 0
    for run in deployment.model.layers:
        for tensor in run.layer.tensors:
            ranks = layout.expert_cut if tensor.part == "expert" else layout.tp
            if ranks == 1 or not tensor.is_matrix or (tensor.part == "expert" and not experts):
                continue
            if rule.dtype_of(tensor, first).name != rule.linear.name:
                continue
            rows, columns, _ = shape_on_rank(tensor, layout)
            if tensor.part == "expert":
                hidden = deployment.model.hidden_size
                inner = tensor.rows if tensor.columns == hidden else tensor.columns
                yield tensor, inner // ranks if inner % ranks == 0 else inner, ranks
            elif tensor.split in ("column", "kv"):
                yield tensor, rows, ranks
            elif tensor.split == "row":
                yield tensor, columns, ranks
        first += run.count


def _wider(deployment: Deployment, tensor: Tensor, block: int) -> str:
    """Layouts of fewer ranks a matrix that keep whole blocks."""
    if tensor.part == "expert":
        hidden = deployment.model.hidden_size
        width = tensor.rows if tensor.columns == hidden else tensor.columns
        fits = [
            n for n in (8, 4, 2, 1) if n < deployment.layout.expert_cut and width % (n * block) == 0
        ]
        said = f"tp {fits[0]}, or " if fits else ""
        return f"{said}expert parallel (whole experts on each rank)"
    width = tensor.columns if tensor.split == "row" else tensor.rows
    fits = [n for n in (8, 4, 2, 1) if n < deployment.layout.tp and width % (n * block) == 0]
    return f"tp {fits[0]}" if fits else "weights without blocks"

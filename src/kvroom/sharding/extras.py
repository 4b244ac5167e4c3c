"""What else is loaded: adapters and draft models, each as bytes on every pipeline stage.

They stand beside the model's own weights: ``Extras`` is what an engine takes off before it counts cache,
and which cache layers a draft adds to the model's. How large each is: ``adapters``, ``drafts``. What
encoders take while they run is no part of it (the engine's own).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from kvroom.answer.plan import Account
from kvroom.models.spec import Layer
from kvroom.records import dataclass
from kvroom.sharding.layout import Rank, WeightMap, stores_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """One account of this kind: ``stages`` are the bytes on one GPU of each pipeline stage.

    ``low`` and ``high`` are the ends of its band, as shares of the bytes.
    """

    name: str
    stages: tuple[int, ...]
    source: str = "engine rule"
    low: float = 1.0
    high: float = 1.0

    def account(self, stage: int) -> Account:
        """It as an account of a GPU of ``stage``."""
        size = self.stages[stage]
        return Account(
            name=self.name,
            bytes=size,
            low_bytes=round(size * self.low),
            high_bytes=round(size * self.high),
            source=self.source,
        )


@dataclass(frozen=True, kw_only=True)
class Extras:
    """All of a deployment's, and the layers by which a draft's cache adds to the model's.

    The draft's layers lie on the last stage, after the model's own. ``draft`` is the draft as it runs,
    with the head that it may share with the model.
    """

    parts: tuple[Extra, ...] = ()
    draft_layers: tuple[Layer, ...] = ()
    draft: WeightMap | None = field(default=None, compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)

    def loaded_bytes(self, stage: int) -> int:
        """What lies beside the weights on a GPU of ``stage`` once the model is loaded."""
        return sum(part.stages[stage] for part in self.parts)

    def accounts(self, stage: int) -> tuple[Account, ...]:
        """The accounts of ``stage``; none of nothing."""
        return tuple(part.account(stage) for part in self.parts if part.stages[stage])

    def unmeasured(self, known: Mapping[str, int]) -> Extras:
        """Zero bytes where the weights were measured: that measurement includes what is loaded beside
        them."""
        return replace(self, parts=()) if "weights" in known else self

    def on(self, ranks: Sequence[Rank], tp: int) -> tuple[Rank, ...]:
        """``ranks`` with the draft's layers and cache on the last."""
        if not self.draft_layers:
            return tuple(ranks)
        *rest, last = ranks
        held = range(last.layers.start, last.layers.stop + len(self.draft_layers))
        stores = dict(last.stores)
        for kind, count in stores_of(self.draft_layers, tp):
            stores[kind] = stores.get(kind, 0) + count
        return (*rest, replace(last, layers=held, stores=tuple(stores.items())))


NONE = Extras()


def together(extras: Iterable[Extras]) -> Extras:
    """Several Extras as one."""
    listed = list(extras)
    return Extras(
        parts=tuple(part for e in listed for part in e.parts),
        draft_layers=tuple(draft_layer for e in listed for draft_layer in e.draft_layers),
        draft=next((e.draft for e in listed if e.draft is not None), None),
        warnings=tuple(warning for e in listed for warning in e.warnings),
    )

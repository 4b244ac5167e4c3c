"""Speculation in time: what a step verifies, what drafting takes, how many tokens come of it.

A step computes the next token of each request and checks k drafted ones: k + 1 tokens a request in one
pass, weights and cache read once. Of drafts each kept with chance α, given all before it were,
(1 − α^(k+1)) / (1 − α) tokens a step are expected, the model's own one included (Leviathan et al., arXiv
2211.17192, equation 1). The draft runs k times before, one token a request each: prediction layers
and heads read their few layers and the vocabulary's head, a draft model all of itself; looking up what
the text repeats costs the GPU nothing. So speculation pays while steps wait for memory, and loses where
they wait for arithmetic: k + 1 tokens are then computed to keep fewer.

A simulator draws which drafts are kept (``engines/draft_tokens.py``); ``StepClock`` (``clock.py``) times its
steps, drafting and verifying included.
"""

from __future__ import annotations

from dataclasses import replace
from math import log

from kvroom.latency.traffic import Traffic
from kvroom.latency.work import Work
from kvroom.records import dataclass
from kvroom.scenario.speculation import drafted_at
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.extras import Extras

ASSUMED_WITHIN = 0.15
"""How far the chance that a draft is kept may lie from an assumed one."""


def expected_tokens(drafted: int, acceptance: float) -> float:
    """Tokens that a request gains by a step which verifies ``drafted`` ones: 1 … ``drafted`` + 1."""
    return float(sum(acceptance**index for index in range(drafted + 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """A request's drafts in a step: ``kept`` is, by position, the chance that it and all before it are kept
    (``assumed``: nobody said it); ``schedule`` as in ``Speculation``; ``work`` is what one pass of the draft
    does, None where none runs on the GPU."""

    kept: tuple[float, ...]
    assumed: bool
    work: Work | None
    schedule: tuple[tuple[int, int], ...] = ()

    @property
    def drafted(self) -> int:
        """Tokens drafted."""
        return len(self.kept)

    @property
    def expected_tokens(self) -> float:
        """Tokens that a request gains by a step."""
        return sum((1.0, *self.kept))

    def of(self, drafted: int) -> Drafting | None:
        """The same with only ``drafted`` tokens; None where there are none."""
        return replace(self, kept=self.kept[:drafted]) if drafted else None

    def at(self, requests: float) -> Drafting | None:
        """How a step of so many requests drafts."""
        return self.of(drafted_at(self.drafted, self.schedule, requests))

    @property
    def spread(self) -> float:
        """Half the width (logarithm) of what an assumed chance leaves open of the tokens gained."""
        if not self.assumed:
            return 0.0
        most, least = (
            expected_tokens(self.drafted, min(1.0, max(0.0, self.kept[0] + by)))
            for by in (ASSUMED_WITHIN, -ASSUMED_WITHIN)
        )
        return log(most / least) / 2


def drafting_of(deployment: Deployment) -> Drafting | None:
    """How ``deployment`` speculates; None where it does not."""
    asked = deployment.speculation
    if asked is None:
        return None
    alone = draft_of(deployment)
    return Drafting(
        kept=asked.kept,
        assumed=asked.acceptance_assumed,
        schedule=asked.schedule,
        work=None if alone is None else Work.of(alone),
    )


def draft_of(deployment: Deployment) -> Deployment | None:
    """The draft of ``deployment`` as a deployment of its own, on the ranks of one stage; None where there is
    none, or none that can be read."""
    weights = deployment.extras.draft
    if weights is None:
        return None
    layout = replace(deployment.layout, pp=1)
    return replace(
        deployment,
        model=weights.model,
        weights=weights,
        layout=layout,
        ranks=weights.ranks(layout),
        extras=Extras(),
        speculation=None,
    )


def at_batch(deployment: Deployment, requests: float) -> Deployment:
    """``deployment`` as it drafts in steps of so many requests (whole deployment)."""
    speculation = deployment.speculation
    if speculation is None or not speculation.schedule:
        return deployment
    tokens = drafted_at(speculation.tokens, speculation.schedule, requests / deployment.layout.dp)
    return replace(deployment, speculation=replace(speculation, tokens=tokens) if tokens else None)


def traffic_of(deployment: Deployment) -> Traffic:
    """What the steps of ``deployment`` move and compute, speculation included."""
    draft = draft_of(deployment) if deployment.speculation else None
    return Traffic(
        model=deployment.model,
        layout=deployment.layout,
        ranks=deployment.own_ranks,
        kv=deployment.kv,
        encoder_tokens=deployment.encoder_tokens,
        drafted=deployment.speculation.tokens if deployment.speculation else 0,
        draft=None if draft is None else traffic_of(draft),
    )

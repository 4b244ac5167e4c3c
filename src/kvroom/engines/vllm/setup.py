"""One question to vLLM: the deployment, with its release's rules, its flags and its device."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from kvroom.engines import flags as read
from kvroom.engines.releases import Release, nearest_release
from kvroom.engines.vllm.first_engine import first_engine_for
from kvroom.engines.vllm.flags import KNOWN_FLAGS, VllmFlags, positive, read_flags
from kvroom.engines.vllm.platform import VllmPlatform, platform_of
from kvroom.engines.vllm.versions import VllmRules, parse_release, rules_of
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.layout import most_experts

FAR: Release = (9999, 9999, 9999)


PAIR_LINKS = ("NVLink bridge", "NVLink bridge (pair)", "NVLink bridge (cut)")
"""Links of the catalogue that join two cards."""


@dataclass(frozen=True)
class VllmSetup:
    """What every rule is asked with."""

    d: Deployment
    rules: VllmRules
    flags: VllmFlags
    platform: VllmPlatform

    @property
    def context(self) -> int:
        """The most tokens that one request may hold (max_model_len)."""
        return self.d.context_tokens

    @cached_property
    def release(self) -> Release:
        """The release asked about, though its rules be a later one's."""
        if not (self.d.version or "").strip():
            return self.rules.release
        found, unread = nearest_release("vLLM", self.d.version, (0, 0, 0), FAR)
        return self.rules.release if unread else found

    @cached_property
    def first_engine(self) -> bool:
        """Whether vLLM's first engine (V0) runs, whose batch and baseline are others."""
        return bool(self.first_engine_for)

    @cached_property
    def first_engine_for(self) -> str:
        """Why it does; "" where it does not."""
        return first_engine_for(self.d, self.release)

    @cached_property
    def experts(self) -> bool:
        """Whether the model routes tokens to experts."""
        return most_experts(self.d.model) > 0

    @cached_property
    def number_bytes(self) -> int:
        """Bytes of a number that the model computes with (``dtype``)."""
        named = next(
            (value for key, value in self.d.args.items() if read.plain_name(key) == "dtype"), None
        )
        return 4 if str(named).lower() in ("float32", "float", "fp32") else 2

    @property
    def linked(self) -> bool:
        """Whether the GPUs reach each other's memory directly; a bridge joins two cards, not four."""
        link = self.d.device.scale_up
        return link is not None and not (self.d.layout.gpus > 2 and link.name in PAIR_LINKS)

    @property
    def gathered(self) -> int:
        """Data-parallel ranks whose tokens each rank's slices of experts work on at once."""
        return self.d.layout.expert_dp if self.d.layout.ep == 1 else 1


def setup(deployment: Deployment) -> tuple[VllmSetup, tuple[str, ...]]:
    """The VllmSetup of ``deployment``, and a warning where its version is not one that is modelled."""
    release, note = parse_release(deployment.version)
    made = VllmSetup(
        deployment,
        rules_of(release),
        read_flags(deployment.args, deployment.layout),
        platform_of(deployment.device),
    )
    if not made.rules.chunks_told and not made.first_engine:
        made = replace(made, flags=replace(made.flags, chunked_prefill=True))
    unused = read.unknown("vLLM", {**positive(deployment.args)}, KNOWN_FLAGS)
    return made, ((note,) if note else ()) + unused

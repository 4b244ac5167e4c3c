"""One question to vLLM: the deployment, with its release's rules, its flags and its device."""

from __future__ import annotations

from dataclasses import dataclass

from kvroom.engines.vllm.flags import Flags, read_flags
from kvroom.engines.vllm.platform import Platform, platform_of
from kvroom.engines.vllm.versions import Rules, parse_release, rules_of
from kvroom.sharding.deployment import Deployment


@dataclass(frozen=True)
class Setup:
    """What every rule is asked with."""

    d: Deployment
    rules: Rules
    flags: Flags
    platform: Platform

    @property
    def context(self) -> int:
        """The most tokens that one request may hold (max_model_len)."""
        return self.d.context_tokens


def setup(d: Deployment) -> tuple[Setup, tuple[str, ...]]:
    """The Setup of ``d``, and a warning where its version is not one that is modelled."""
    release, note = parse_release(d.version)
    made = Setup(d, rules_of(release), read_flags(d.args, d.layout), platform_of(d.device))
    return made, (note,) if note else ()

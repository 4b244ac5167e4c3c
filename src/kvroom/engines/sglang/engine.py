"""SGLang: all that it is, behind one Engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvroom.answer.plan import EngineCapacity
from kvroom.engines.adapters import Adapters
from kvroom.engines.asked import AskedScript
from kvroom.engines.base import Engine, EngineAnswer, Era
from kvroom.engines.limits import LimitFlags
from kvroom.engines.releases import modelled, nearest_release, shown
from kvroom.engines.serving_rules import ServingRules
from kvroom.engines.sglang.adapters import adapters_of
from kvroom.engines.sglang.answer import answer, own_bytes
from kvroom.engines.sglang.command import COMMAND
from kvroom.engines.sglang.drafting import SglangDraftFlags
from kvroom.engines.sglang.flags import attention_groups
from kvroom.engines.sglang.log import LOG
from kvroom.engines.sglang.metrics import METRICS
from kvroom.engines.sglang.models import taken
from kvroom.engines.sglang.resolved_args import settings_of
from kvroom.engines.sglang.serving import serving_rules
from kvroom.engines.sglang.share import static_share
from kvroom.engines.sglang.start_rules import START_RULES
from kvroom.engines.sglang.support import SUPPORT
from kvroom.engines.sglang.versions import CHANGES, NEWEST, OLDEST, rules_of
from kvroom.models.spec import ModelSpec
from kvroom.sharding.deployment import Deployment


class Sglang(Engine):
    """SGLang from 0.4.10 to the newest release that is modelled."""

    def as_served(self, model: ModelSpec) -> ModelSpec:
        """The model as its own classes take it."""
        return taken(model)

    def memory(self, deployment: Deployment) -> EngineAnswer:
        """Pools, printed tokens and a verdict, by the release's rules."""
        return answer(deployment)

    def attention_groups(self, args: Mapping[str, Any], tp: int) -> int:
        """Those of data-parallel attention."""
        return attention_groups(args, tp)

    def scheduler_rules(self, deployment: Deployment, capacity: EngineCapacity) -> ServingRules:
        """Its own scheduler, a radix tree below it."""
        return serving_rules(deployment, capacity)

    def free_at_start(self, deployment: Deployment, others_bytes: int) -> int:
        """What it measures before it loads: its own context and links are there."""
        free = super().free_at_start(deployment, others_bytes)
        return max(0, free - own_bytes(deployment))

    def memory_share(self, deployment: Deployment) -> tuple[str, float] | None:
        """The static share, as it follows from the card and the flags."""
        release, _ = nearest_release(self.label, deployment.version, OLDEST, NEWEST)
        share = static_share(settings_of(deployment, rules_of(release)))
        return self.limits.share, share.fraction

    def adapters(
        self, version: str | None, args: Mapping[str, Any], model: ModelSpec
    ) -> Adapters | None:
        """The adapters that the flags make room for."""
        return adapters_of(args)


SGLANG = Sglang(
    name="sglang",
    label="SGLang",
    benchmarks=("sglang",),
    newest=shown(NEWEST),
    releases=modelled(OLDEST, CHANGES),
    support=SUPPORT,
    limits=LimitFlags(
        batch_tokens="chunked_prefill_size",
        share="mem_fraction_static",
        sequences="max_running_requests",
        share_values=(0.92,),
    ),
    draft_flags=SglangDraftFlags(),
    command=COMMAND,
    log=LOG,
    metrics=METRICS,
    account_flags={
        "visible": "--gpu",
        "weights": "--quantization, --tp-size",
        "activations": "--chunked-prefill-size",
        "runtime": "",
        "graphs": "--cuda-graph-max-bs, --disable-cuda-graph",
        "kv": "--mem-fraction-static, --max-total-tokens",
    },
    start_rules=START_RULES,
    known_adapters=True,
    takes_overrides=True,
    asked=AskedScript(
        package="sglang",
        path=Path(__file__).with_name("asked.py"),
        beside=("played",),
        install="pip install sglang",
        schedules=True,
        by_free_memory=True,
        longer_variable="SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
    ),
    eras=(Era((0, 4), "old", "the scheduler did not overlap with the card"),),
    tuning_flags=dict.fromkeys(
        (
            "stream_interval",
            "disable_radix_cache",
            "num_continuous_decode_steps",
            "chunked_prefill_size",
            "max_prefill_tokens",
        )
    ),
    intake_flag="scheduler_recv_interval",
    ahead_since=(0, 4),
    ahead_flags={"disable_overlap_schedule": False},
)

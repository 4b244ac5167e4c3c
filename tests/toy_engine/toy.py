"""Toy: half of the card's visible memory holds weights and, in blocks of 32 tokens, the cache."""

import re
from dataclasses import replace

from kvroom.answer.plan import EngineCapacity
from kvroom.engines.base import Engine, EngineAnswer, account
from kvroom.engines.command_line import CommandLine
from kvroom.engines.flag_names import flag_names
from kvroom.engines.flags import check_known, count, plain_args, share
from kvroom.engines.limits import FlagTrial, LimitFlags
from kvroom.engines.log_reader import LogReader
from kvroom.engines.log_shapes import Shape
from kvroom.engines.metric_names import MetricNames
from kvroom.engines.start_rules import Against, StartRule
from kvroom.sharding.ledger import binding_rank
from kvroom.units import ceil_div

BLOCK_TOKENS = 32
USUAL_SHARE = 0.5
NAMES = flag_names("toy_engine")
READERS = {"share": ("share", share), "requests": ("requests", count)}
KNOWN_FLAGS = frozenset(READERS) | NAMES.others


class Toy(Engine):
    """Every rule of it."""

    def memory(self, deployment):
        args = plain_args(deployment.args)
        check_known(self.label, args, KNOWN_FLAGS)
        gpu = deployment.known_bytes.get("visible", deployment.device.engine_bytes)
        taken = int(gpu * share("engine_args.share", args.get("share", USUAL_SHARE)))
        rank = binding_rank(deployment, taken)
        cache = max(0, taken - rank.weight_bytes)
        length = ceil_div(deployment.context_tokens, BLOCK_TOKENS) * BLOCK_TOKENS
        each = rank.request_bytes(length, deployment.kv, 0)
        room = cache / each
        return EngineAnswer(
            rank=rank,
            gpu_bytes=gpu,
            accounts=(
                account("weights", rank.weight_bytes, "config"),
                account("kv", cache, "engine rule"),
                account("unused", gpu - rank.weight_bytes - cache, "engine rule"),
            ),
            kv_bytes=cache,
            capacity=EngineCapacity(
                num_blocks=int(room * length) // BLOCK_TOKENS,
                block_tokens=BLOCK_TOKENS,
                kv_tokens=int(room * length),
                max_concurrency=room,
                max_running_requests=count("engine_args.requests", args.get("requests", 100)),
            ),
            starts=room >= 1,
            reason="" if room >= 1 else "its half of the card does not hold one request",
        )

    def memory_share(self, deployment):
        return "share", USUAL_SHARE


def stages(deployment):
    if deployment.layout.pp == 1:
        return None
    return Against("Toy has no pipeline stages", "use tensor ranks")


class ToyLog(LogReader):
    """`toy: weights 15.0 GiB` and the like."""

    def figures(self, record):
        names = ("weights_bytes", "kv_available_bytes", "kv_tokens", "total_gpu_bytes")
        return {n: record.last(n) for n in names if n in record.figures}

    def question(self, record):
        return {"engine": "toy", "model": record.last("model"), "gpu": record.last("gpu")}


TOY = Toy(
    name="toy",
    label="Toy",
    limits=LimitFlags(
        share="share",
        usual_share=USUAL_SHARE,
        share_values=(0.8,),
        sequences="requests",
        trials=(FlagTrial(flag="requests", value=200, words="200 at once", family="sequences"),),
    ),
    start_rules=(StartRule(name="stages", why=stages, source="Toy's manual"),),
    command=CommandLine(
        engine="toy",
        label="Toy",
        programs=(("toy-serve",),),
        image=re.compile(r"(?:^|/)toy(?::v?([\w.]+))?$"),
        default_image="example/toy",
        keys={"tp": ("ranks",), "pp": ("stages",), "context_tokens": ("length",)},
        names=replace(NAMES),
        readers=READERS,
        known=KNOWN_FLAGS,
        model_flag="model",
    ),
    log=ToyLog(
        engine="toy",
        shapes=(
            Shape("toy: loads", r"toy: loads {model} on {gpu}$", opens=True),
            Shape("toy: weights", r"toy: weights {weights_bytes}"),
            Shape("toy: cache", r"toy: cache {kv_available_bytes}, {kv_tokens} tokens"),
        ),
        scales=True,
    ),
    metrics=MetricNames(
        engine="toy",
        prefix="toy:",
        gauges={"kv_usage": ("cache_used",), "running": ("running",)},
        counters={"preemptions": ("preempted_total",)},
        histograms={},
        info=(),
        fix="It always tells them.",
    ),
    account_flags={"weights": "--ranks", "kv": "--share"},
)

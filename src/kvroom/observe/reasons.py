"""Why a printed figure differs from the prediction, and the flag that would change it.

Reasons are read off what the log and the plan state; where none of them holds, that is said.
"""

from __future__ import annotations

from collections.abc import Callable

from kvroom.answer.plan import Account
from kvroom.engines.log_reader import PrintedStart
from kvroom.engines.registry import engine_of
from kvroom.observe.logs.startup_log import StartupLog
from kvroom.planner.plan import Workings
from kvroom.records import dataclass
from kvroom.units import MIB, show_gib

FEW = 64
"""Below so many sequences far fewer graphs are captured than the estimate is fitted to."""
PRINT_STEP = round(0.0051 * 2**30)
"""Two digits of GiB leave this much open."""


@dataclass(frozen=True)
class Facts:
    """What reasons are read off."""

    log: StartupLog
    w: Workings

    @property
    def engine(self) -> str:
        """The engine's name."""
        return self.w.plan.scenario.engine

    def of_engine(self, account: str, predicted: int, printed: int) -> list[str]:
        """What the engine's own rules say of an account."""
        reader = engine_of(self.engine).log
        if reader is None:
            return []
        start = PrintedStart(
            version=self.log.version,
            figures=self.log.printed,
            predicted_bytes=predicted,
            printed_bytes=printed,
            args=self.w.plan.scenario.engine_args,
            model=self.w.deployment.model,
        )
        return reader.reasons(account, start)

    def ranks_differ(self, figure: str) -> str:
        """The spread between ranks in words, or nothing."""
        low, high = self.log.spread.get(figure, (0, 0))
        if high - low <= PRINT_STEP:
            return ""
        return f"ranks print {show_gib(low)} to {show_gib(high)}"


def reason_for(
    name: str, predicted: int, printed: int | None, account: Account | None, facts: Facts
) -> tuple[str, str]:
    """(the likely reason, the flag) of one account."""
    flag = engine_of(facts.engine).account_flags.get(name, "")
    if printed is None:
        return "the log does not print it", flag
    off = printed - predicted
    if abs(off) <= max(PRINT_STEP, abs(printed) // 500):
        return "agrees to the digits that are printed", flag
    reasons = _RULES[name](predicted, printed, account, facts) if name in _RULES else []
    if account is not None and account.low_bytes < account.high_bytes:
        inside = account.low_bytes <= printed <= account.high_bytes
        reasons.append(
            f"{'inside' if inside else 'outside'} the estimate's band, "
            f"{show_gib(account.low_bytes)} to {show_gib(account.high_bytes)}"
        )
    return "; ".join(reasons) or "no rule that kvroom knows explains it", flag


def _visible(predicted: int, printed: int, account: Account | None, facts: Facts) -> list[str]:
    if abs(printed / predicted - 1) < 0.03:
        return ["the card's memory as this driver shows it"]
    return ["another card than the one named, or a share of it"]


def _weights(predicted: int, printed: int, account: Account | None, facts: Facts) -> list[str]:
    ratio = printed / predicted if predicted else 0.0
    ranks = facts.ranks_differ("weights_bytes")
    reasons = [ranks] if ranks else []
    if 1 < ratio < 1.05:
        reasons.append("buffers, scales and padding that loading adds")
    elif 0.95 < ratio < 1:
        reasons.append("parts that the engine leaves out or shares (tied head, unused tower)")
    elif ratio >= 1.5:
        reasons.append(
            "the checkpoint is wider than assumed (--weight-dtype), or fewer ranks share it"
        )
    elif ratio <= 0.7:
        reasons.append(
            "the checkpoint is narrower than assumed (--weight-dtype), or more ranks share it"
        )
    elif ratio > 1:
        reasons.append("adapters, a draft model or a tower that is not in the config")
    return reasons


def _activations(predicted: int, printed: int, account: Account | None, facts: Facts) -> list[str]:
    return facts.of_engine("activations", predicted, printed)


def _runtime(predicted: int, printed: int, account: Account | None, facts: Facts) -> list[str]:
    reasons = []
    ranks = facts.ranks_differ("non_torch_bytes")
    if ranks:
        reasons.append(ranks)
    if facts.w.deployment.layout.gpus > 1:
        reasons.append("NCCL's buffers, which grow with the ranks and links")
    if facts.w.deployment.device.unified_memory:
        reasons.append("the system shares this memory, and its use is counted in")
    if printed > 3 * predicted and not reasons:
        reasons.append("another process on the card while it was measured")
    return reasons


def _graphs(predicted: int, printed: int, account: Account | None, facts: Facts) -> list[str]:
    real = facts.log.printed.get("cuda_graph_bytes")
    if "cuda_graph_estimate_bytes" in facts.log.printed and real is not None:
        return [f"the engine's own estimate is taken off; captured they came to {show_gib(real)}"]
    reasons = facts.of_engine("graphs", predicted, printed)
    sequences = facts.w.plan.scenario.engine_args.get("max_num_seqs")
    if isinstance(sequences, int) and sequences <= FEW and printed < predicted:
        reasons.append(f"max_num_seqs {sequences} leaves few batch sizes to capture")
    return reasons


def _kv(predicted: int, printed: int, account: Account | None, facts: Facts) -> list[str]:
    reasons = []
    ranks = facts.ranks_differ("kv_available_bytes")
    if ranks:
        reasons.append(ranks + ", and the least binds")
    gap = ledger_gap(facts.log)
    if gap is not None and gap < -256 * MIB:
        reasons.append(
            f"{show_gib(-gap)} more than the printed accounts leave: another process was in the "
            "baseline and ended"
        )
    off, moved = printed - predicted, _moved(facts)
    most = max(moved, key=lambda n: moved[n] if off > 0 else -moved[n], default="")
    part = moved.get(most, 0) if moved.get(most, 0) * off > 0 else 0
    if 10 * abs(part) >= abs(off) and abs(part) > PRINT_STEP:
        how = "mostly" if 2 * abs(part) >= abs(off) else "partly"
        more = "more" if (part > 0) == (most == "share") else "less"
        reasons.append(f"{how} {most}, {show_gib(abs(part))} {more} than predicted")
    rest = off - sum(moved.values())
    if moved and abs(rest) > max(PRINT_STEP, abs(off) // 10):
        if abs(rest) <= abs(off):
            reasons.append(f"{show_gib(abs(rest))} of {show_gib(abs(off))} stays unexplained")
        else:  # the accounts move it the other way
            side = "more" if rest > 0 else "less"
            reasons.append(
                f"{show_gib(abs(rest))} {side} than the log's own accounts leave room for"
            )
    return reasons


def _moved(facts: Facts) -> dict[str, int]:
    """By how many bytes each printed account (and the share itself) makes the cache larger than was
    predicted."""
    figures = {
        "weights": "weights_bytes",
        "activations": "activation_peak_bytes",
        "runtime": "non_torch_bytes",
        "graphs": "cuda_graph_estimate_bytes",
    }
    accounts = [account for account in facts.w.plan.memory.accounts if account.name != "unused"]
    moved = {
        account.name: account.bytes - facts.log.printed[figures[account.name]]
        for account in accounts
        if account.name in figures and figures[account.name] in facts.log.printed
    }
    asked = _asked(facts.log)
    reader = engine_of(facts.engine).log
    if reader is not None and reader.whole_share and asked is not None:
        outside = not facts.w.plan.scenario.engine_args.get(reader.cache_flag)
        total, share = (
            facts.w.plan.memory.gpu_bytes,
            facts.log.printed.get("gpu_memory_utilization"),
        )
        if outside and share:
            moved["share"] = asked - round(total * share)
    return moved


def _asked(log: StartupLog) -> int | None:
    """Bytes that the engine was told to take of the card."""
    printed = log.printed
    share, total = printed.get("gpu_memory_utilization"), printed.get("total_gpu_bytes")
    return printed.get("requested_bytes") or (round(share * total) if share and total else None)


def ledger_gap(log: StartupLog) -> int | None:
    """Bytes by which the printed accounts fall short of the printed share, where all are printed."""
    printed = log.printed
    names = ("weights_bytes", "activation_peak_bytes", "non_torch_bytes", "kv_available_bytes")
    if any(name not in printed for name in names):
        return None
    asked = _asked(log)
    if asked is None:
        return None
    return int(
        asked
        - sum(printed[name] for name in names)
        - max(0, printed.get("cuda_graph_estimate_bytes", 0))
    )


Rule = Callable[[int, int, "Account | None", Facts], list[str]]
_RULES: dict[str, Rule] = {
    "visible": _visible,
    "weights": _weights,
    "activations": _activations,
    "runtime": _runtime,
    "graphs": _graphs,
    "kv": _kv,
}

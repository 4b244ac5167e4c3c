"""Requests per CPU second of the plain, step-by-step engine, with and without prefix caching.

The load: requests with one of 50 shared prefixes of 200 to 2,000 tokens, 20 to 800 tokens of their own
and 20 to 300 tokens of output, 40,000 blocks of 16, 8,192 tokens and 256 requests a step.

    python benchmarks/scheduler.py [REQUESTS]
"""

from __future__ import annotations

import random
import sys
import time

from kvroom.simulator.script import Script


def script(requests: int, *, caching: bool) -> Script:
    dice = random.Random(42)
    prefixes = [(number * 10_000, dice.randint(200, 2_000)) for number in range(50)]
    fresh = 1_000_000
    rows = []
    for number in range(requests):
        first, shared = dice.choice(prefixes)
        own, output = dice.randint(20, 800), dice.randint(20, 300)
        rows.append(
            {
                "arrival_step": number,
                "prompt": [[first, shared], [fresh, own]],
                "output": [[fresh + own, output]],
            }
        )
        fresh += own + output
    engine = {
        "num_gpu_blocks": 40_000,
        "groups": [{"type": "full", "block_size": 16}],
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 256,
        "max_model_len": 32_768,
        "enable_prefix_caching": caching,
    }
    return Script.from_dict({"engine": engine, "requests": rows})


def main(requests: int) -> None:
    for caching in (True, False):
        asked = script(requests, caching=caching)
        started = time.process_time()
        played = asked.play()
        spent = time.process_time() - started
        print(
            f"prefix caching {'on' if caching else 'off'}: {requests / spent:,.0f} requests per CPU "
            f"second, {spent / played.total_steps * 1e6:,.0f} µs a step ({played.total_steps:,} "
            f"steps, {played.totals.cached_tokens_first:,} tokens hit)"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000)

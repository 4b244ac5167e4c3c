"""Runs in vLLM's own Python: conversations by the offline ``LLM`` on a CPU, and what its counters say.

    python talks.py MODEL ARGS ROUNDS

``ARGS`` are engine arguments and ``ROUNDS`` names a file, both JSON. A round is a list of turns ``[talk,
token ids, tokens to generate]``: all of a round come at once, each with its talk so far before it. The last
line it prints holds each turn's answer and the counters after each round.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # a round is queued before its first step

COUNTERS = {
    "queries": "vllm:prefix_cache_queries",
    "hits": "vllm:prefix_cache_hits",
    "preemptions": "vllm:num_preemptions",
    "prompt_tokens": "vllm:prompt_tokens",
    "generated_tokens": "vllm:generation_tokens",
}


def main(model: str, args: str, rounds: str) -> None:
    """Play the rounds one after the other."""
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=model,
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype="bfloat16",
        enforce_eager=True,
        disable_log_stats=False,
        **json.loads(args),
    )
    core = engine.llm_engine.engine_core.engine_core
    cache = core.vllm_config.cache_config
    talks: dict[int, list[int]] = {}
    answers, counters = [], []
    for turns in json.loads(Path(rounds).read_text("utf-8")):
        for talk, ids, _ in turns:
            talks[talk] = [*talks.get(talk, ()), *ids]
        made = engine.generate(
            [{"prompt_token_ids": talks[talk]} for talk, _, _ in turns],
            [
                SamplingParams(max_tokens=tokens, ignore_eos=True, detokenize=False)
                for _, _, tokens in turns
            ],
            use_tqdm=False,
        )
        said = [list(one.outputs[0].token_ids) for one in made]
        for (talk, _, _), answer in zip(turns, said, strict=True):
            talks[talk] += answer
        answers.append(said)
        told = {one.name: getattr(one, "value", None) for one in engine.get_metrics()}
        counters.append({name: told[key] for name, key in COUNTERS.items()})
    size = {"blocks": cache.num_gpu_blocks, "tokens": cache.kv_cache_size_tokens}
    print("PLAYED", json.dumps({**size, "answers": answers, "counters": counters}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

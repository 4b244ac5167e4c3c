"""Why an engine would not start comes with what would do: done, that very reason is gone."""

import re

from hypothesis import given
from hypothesis import strategies as st

from kvroom.engines.registry import engine_of
from kvroom.errors import KvroomError
from kvroom.planner.plan import work
from kvroom.scenario.scenario import Scenario

ARGS = {
    "vllm": {
        "max_num_seqs": (4096, 2),
        "max_num_batched_tokens": (16, 2048),
        "disable_sliding_window": (True,),
        "enable_chunked_prefill": (False,),
        "gpu_memory_utilization": (0.99, 0.3),
        "disable_chunked_mm_input": (True,),
        "mamba_cache_mode": ("align",),
    },
    "sglang": {"mem_fraction_static": (0.99, 0.2), "max_running_requests": (4096,)},
}
VERSIONS = {
    "vllm": (None, "0.33.0", "0.20.0", "0.14.0", "0.11.0", "0.8.5"),
    "sglang": (None, "0.5.9"),
}
MODELS = (
    "llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b", "deepseek-v3", "gemma-3-27b", "gpt-oss-120b",
    "mixtral-8x7b", "mamba-2.8b", "qwen3-next-80b-a3b", "llama-4-scout", "glm-4.5",
)  # fmt: skip
CARDS = ("H100-SXM", "L4", "V100-SXM2-32", "T4", "MI300X", "B200", "A10")
WIDTHS = (None, "fp8", "fp8_block", "int8", "int4", "nvfp4", "q4_k_m", "exl2_4.0")
CACHES = ("auto", "auto", "fp8", "int8", "q8_0", "fp16", "nvfp4")


@st.composite
def questions(draw):
    engine = draw(
        st.sampled_from(("vllm", "vllm", "sglang", "tensorrt-llm", "lmdeploy", "llama.cpp"))
    )
    said = {
        name: draw(st.sampled_from(values))
        for name, values in ARGS.get(engine, {}).items()
        if draw(st.integers(0, 4)) == 0
    }
    return {
        "model": draw(st.sampled_from(MODELS)),
        "gpu": draw(st.sampled_from(CARDS)),
        "engine": engine,
        "engine_version": draw(st.sampled_from(VERSIONS.get(engine, (None,)))),
        "engine_args": said,
        "tp": draw(st.sampled_from((1, 2, 4, 8))),
        "pp": draw(st.sampled_from((1, 1, 2))),
        "kv_dtype": draw(st.sampled_from(CACHES)),
        "weight_dtype": draw(st.sampled_from(WIDTHS)),
        "context_tokens": draw(st.sampled_from((None, 4096, 32768, 1_000_000))),
    }


def cures(text, scenario):
    """The questions that the words of a cure name, each done; none where they name another card."""
    line = engine_of(scenario.engine).command
    text = text.replace("wider weights", "16-bit")
    for clause in re.split(r", or | or (?=\w+_|--|\w+ weights)|, ", text):
        words = clause.removesuffix(" at most").removesuffix(" or fewer")
        if found := re.match(r"(kv_dtype|weight_dtype|tp) (\w[\w.]*)", words):
            value = int(found[2]) if found[1] == "tp" else found[2]
            yield {found[1]: value}
        elif found := re.match(r"\d+ of them \(tp (\d+)\)", words):
            yield {"tp": int(found[1])}
        elif found := re.match(r"(\w+) weights\b", words):
            yield {"weight_dtype": found[1]}
        elif found := re.match(r"the longest request that fits is ([\d,]+)", clause):
            yield {
                "context_tokens": int(re.findall(r"is ([\d,]+) tokens", text)[0].replace(",", ""))
            }
        elif found := re.match(r"--?[\w-]*(?:len|length|size|seq-len) (\d+)$", words):
            yield {"context_tokens": int(found[1])}
        elif found := re.match(r"(\w+)=(\S+)$", words):
            name = found[1].lower()
            if line and name in line.keys["context_tokens"]:
                yield {"context_tokens": int(found[2])}
            elif name == "kv_cache_dtype":
                yield {"kv_dtype": "auto"}
            else:
                yield {"engine_args": {**scenario.engine_args, name: found[2]}}
        elif found := re.match(r"leave (\w+) (?:out|on)", words):
            kept = {k: v for k, v in scenario.engine_args.items() if k != found[1]}
            yield {"engine_args": kept}


def again(scenario, changes):
    keys = {**scenario.to_dict(), **changes}
    if "tp" in changes:
        keys.pop("gpu_count", None)
        keys["ep"] = 1
    return work(Scenario.from_dict(keys)).plan.verdict


def kind_of(reason):
    """A reason without its figures."""
    return reason.rule, re.sub(r"[-\d.,]+( [KMG]iB)?", "N", reason.message)


@given(question=questions())
def test_a_cure_cures(question):
    try:
        workings = work(Scenario.from_dict({k: v for k, v in question.items() if v is not None}))
    except KvroomError:
        return
    verdict, scenario = workings.plan.verdict, workings.plan.scenario
    if verdict.starts or workings.answer.starts:
        return
    for reason in verdict.reasons:
        for changes in cures(reason.fix, scenario):
            try:
                found = again(scenario, changes)
            except KvroomError as error:
                raise AssertionError(f"{reason.fix}: {error}") from error
            left = {kind_of(other) for other in found.reasons} if not found.starts else set()
            assert kind_of(reason) not in left, (reason.fix, changes)

"""Every input counts: a flag or variable of any engine is used, named as not used, or refused."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvroom
from kvroom.engines.flag_names import ADDRESSES, only_serves
from kvroom.engines.registry import all_engines
from kvroom.errors import KvroomError
from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario
from kvroom.units import parse_bytes, parse_seconds

ENGINES = [e for e in all_engines() if e.command is not None]
SOURCES = "\n".join(
    p.read_text("utf-8") for p in sorted(Path(kvroom.__file__).parent.rglob("*.py"))
)
READ = set(re.findall(r"[\"']([A-Za-z_0-9.-]+)[\"']", SOURCES))
WORDS = {
    w for text in re.findall(r'"""[^"]*"""|"[^"]*"', SOURCES) for w in re.findall(r"\w+", text)
}
NEW = st.from_regex(r"new_[a-z]{3,12}", fullmatch=True)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_every_known_flag_is_read_named_or_harmless(engine):
    """A flag in ``[elsewhere]`` is read somewhere; one passed over is told of, or bears on serving alone."""
    names = engine.command.names
    assert not {n for n in names.elsewhere if n not in READ | WORDS}
    silent = {n for n in names.passed_over if not names.unused([n])}
    assert silent == {n for n in names.passed_over if only_serves(n)}
    weighty = re.compile(r"kv|cache|memory|offload|parallel|quant|swap")
    assert not {n for n in silent if weighty.search(n) and not ADDRESSES.search(n)}


@settings(max_examples=6)
@given(st.sampled_from(["vllm", "sglang", "tensorrt-llm", "llama.cpp"]), NEW)
def test_a_flag_of_a_newer_release_is_a_warning(engine, flag):
    keys = {"model": "llama-3.1-8b", "gpu": "H100-SXM", "engine": engine, "context_tokens": 8192}
    base = plan(Scenario.from_dict(keys))
    told = plan(Scenario.from_dict({**keys, "engine_args": {flag: 1}}))
    assert any(flag in w for w in told.warnings)
    assert told.capacity == base.capacity


@pytest.mark.parametrize(
    ("engine", "flag"),
    [
        ("vllm", "swap_space"),
        ("vllm", "all2all_backend"),
        ("sglang", "flashinfer_mxfp4_moe_precision"),
    ],
)
def test_a_flag_that_is_passed_over_is_named(engine, flag):
    keys = {"model": "llama-3.1-8b", "gpu": "H100-SXM", "engine": engine}
    told = plan(Scenario.from_dict({**keys, "engine_args": {flag: 4}}))
    assert any(w.startswith(f"{flag} is not used") for w in told.warnings)


@given(st.integers(1, 10**12))
def test_a_size_or_a_time_without_its_unit_is_asked_back(number):
    for parse in (parse_bytes, parse_seconds):
        with pytest.raises(KvroomError, match="has no unit") as asked:
            parse("x", str(number))
        assert asked.value.fix.startswith(f"Write {number}")
    assert parse_bytes("x", number) == number

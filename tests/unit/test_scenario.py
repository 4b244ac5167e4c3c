"""The question: what is filled in, what is refused by which key, and how it travels."""

import json
import math

import pytest

from kvroom.errors import KvroomError
from kvroom.scenario.engine_names import engine_aliases
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.workload import Workload

BASE = {"model": "llama-3-70b", "gpu": "80GB"}


def asked(**keys):
    return Scenario.from_dict(BASE | keys)


def refused(**keys):
    with pytest.raises(KvroomError) as e:
        asked(**keys)
    assert e.value.message
    assert e.value.fix
    return e.value


@pytest.mark.parametrize(
    ("keys", "layout"),
    [
        ({}, (1, 1, 1, 1)),
        ({"gpu_count": 1}, (1, 1, 1, 1)),
        ({"gpu_count": 8}, (8, 0, 1, 1)),  # open: the planner chooses
        ({"gpu_count": 8, "pp": 2}, (8, 4, 2, 1)),
        ({"gpu_count": 8, "pp": 2, "dp": 2}, (8, 2, 2, 2)),
        ({"tp": 4, "pp": 2, "dp": 3}, (24, 4, 2, 3)),
        ({"dp": 4}, (4, 1, 1, 4)),
    ],
)
def test_the_layout_is_filled_in(keys, layout):
    s = asked(**keys)
    assert (s.gpu_count, s.tp, s.pp, s.dp) == layout


@pytest.mark.parametrize(
    ("keys", "field", "fix"),
    [
        ({"gpu_count": 8, "tp": 3}, "gpu_count", "Set gpu_count to 3"),
        ({"gpu_count": 8, "pp": 3}, "gpu_count", "Change one"),
        ({"tp": 1000, "pp": 1000}, "gpu_count", "100,000"),
        ({"tp": 4, "ep": 3}, "ep", "4 GPUs"),
        ({"tp": 4, "dcp": 3}, "dcp", "tensor ranks"),
        ({"tp": 0}, "tp", "1 to 100,000"),
        ({"tp": True}, "tp", "whole number"),
        ({"gpu_count": 2.5}, "gpu_count", "whole number"),
        ({"tpp": 4}, "scenario", "Did you mean tp"),
        ({"kv_dtypes": "fp8"}, "scenario", "kv_dtype"),
        ({"context_tokens": 0}, "context_tokens", "from 1"),
        ({"context_tokens": "8X"}, "context_tokens", "32K"),
        ({"concurrency": -1}, "concurrency", "from 1"),
        ({"engine": "vlm"}, "engine", "vllm"),
        ({"engine": 3}, "engine", "word"),
        ({"workload": {"inputs": 1}}, "workload", "input_tokens"),
        ({"workload": {"input_tokens": -1}}, "workload.input_tokens", "from 1"),
        ({"workload": []}, "workload", "braces"),
        ({"workload": {"static": "yes"}}, "workload.static", "true or false"),
        ({"workload": {"requests_per_s": math.inf}}, "workload.requests_per_s", "number"),
        ({"known_bytes": {"weight": 1}}, "known_bytes", "weights"),
        ({"known_bytes": {"weights": "80G"}}, "known_bytes.weights", "80GB"),
        ({"known_bytes": {"visible": 0}}, "known_bytes.visible", "from 1"),
        (
            {"known_bytes": {"visible": "79GiB", "free_before_load": "80GiB"}},
            "known_bytes.free_before_load",
            "of one GPU",
        ),
        ({"engine_args": ["x"]}, "engine_args", "braces"),
        ({"engine_args": {"a": math.nan}}, "engine_args.a", "finite"),
        ({"tiers": {"a": {1, 2}}}, "tiers", "list"),
        ({"disaggregation": {"a": 1}}, "disaggregation", "prefill"),
        ({"fleet": {"pools": [{"tp": 0}]}}, "fleet.pools[0].tp", "from 1"),
        ({"fleet": {"failures": {"at": [{"t": 1}]}}}, "fleet.failures.at[0]", "replica"),
        ({"calibration": {"a": {1, 2}}}, "calibration.a", "plain"),
        ({"workload": {"lengths": {"a": 1}}}, "workload.lengths", "input, output"),
        ({"workload": {"input": 5, "lengths": {"input": 6}}}, "workload.input", "one of them"),
        ({"routing": "\ud800"}, "routing", "UTF-8"),
        ({"allow_overcommit": 1}, "allow_overcommit", "true or false"),
        ({"model": ""}, "model", "word"),
        ({"gpu": 4}, "gpu", "word"),
        ({"model": {"config": {"x": "\udcff"}}}, "model", "UTF-8"),
    ],
)
def test_what_is_refused(keys, field, fix):
    e = refused(**keys)
    assert e.field == field
    assert fix in e.fix


@pytest.mark.parametrize("given", [None, [], "x", 1, {}, {"model": "x"}, {"gpu": "x"}])
def test_what_is_no_question(given):
    with pytest.raises(KvroomError):
        Scenario.from_dict(given)


def test_null_means_not_asked():
    assert asked(**dict.fromkeys(["tp", "engine_args", "workload", "kv_dtype"])) == asked()


def test_what_goes_too_deep_is_told():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert refused(tiers=deep).field == "tiers[0]"
    assert refused(calibration={"a": deep}).field == "calibration.a"
    assert refused(model={"config": {"x": deep}}).field == "model"


@pytest.mark.parametrize(("alias", "name"), engine_aliases().items())
def test_engines_under_their_other_names(alias, name):
    assert asked(engine=alias.upper()).engine == name


@pytest.mark.parametrize(
    "version",
    ["", "0.33.0", "latest", 0.33, None, 10**5000, "x" * 1000, [1], "\ud800"],
    ids=lambda v: type(v).__name__,
)
def test_any_engine_version_is_taken(version):
    json.dumps(asked(engine_version=version).to_dict())


def test_the_two_concurrencies_stand_in_for_each_other():
    assert asked(workload={"concurrency": 7}).concurrency == 7
    assert asked(concurrency=7, workload={"input_tokens": 5}).workload.concurrency == 7
    both = asked(concurrency=7, workload={"concurrency": 9})
    assert (both.concurrency, both.workload.concurrency) == (7, 9)
    assert asked(concurrency=7).workload is None


def test_dict_and_link_round_trip():
    s = asked(
        gpu_count=8,
        context_tokens="128K",
        workload={"input_tokens": "1K", "lengths": {"output": "uniform:5:9"}},
    )
    assert Scenario.from_dict(s.to_dict()) == s
    assert Scenario.from_dict(json.loads(json.dumps(s.to_dict()))) == s
    assert Scenario.from_link(s.link()) == s
    assert s.link("https://x.org/").startswith("https://x.org/#s=1.")
    assert Scenario.from_dict(s.differences()) == s
    assert asked().differences() == BASE
    assert isinstance(s.workload, Workload)


def test_a_readable_link():
    link = "http://127.0.0.1:8642/?model=llama-3-70b&gpu=80GB%3A4&context=32K&users=5&kv=fp8"
    s = Scenario.from_link(link)
    assert (s.gpu, s.gpu_count, s.context_tokens) == ("80GB", 4, 32768)
    assert (s.concurrency, s.kv_dtype) == (5, "fp8")


@pytest.mark.parametrize(
    "link",
    ["", "x", "http://[", "http://a/#s=", "http://a/#s=2.e30", "http://a/#s=1.!!!!", "http://a/"]
    + ["http://a/#s=1.W10", "http://a/#s=1.e30", "http://a/?nothing=1", "http://a/#s=1." + "A" * 99]
    + ["#s=1.\ud800", "http://a/#s=1." + "W1tb" * 90_000, "http://a/?tp=\u00b2&model=a&gpu=b"],
    ids=lambda v: ascii(v)[:20],
)
def test_a_bad_link(link):
    with pytest.raises(KvroomError):
        Scenario.from_link(link)


@pytest.mark.parametrize("end", [1, 5, 20, 40])
def test_a_link_cut_off(end):
    with pytest.raises(KvroomError) as e:
        Scenario.from_link(asked().link()[:-end])
    assert e.value.fix

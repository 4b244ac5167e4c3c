"""Any question is a Plan or a told error: scenarios, model configs, cards, links, files, JSON lines."""

import copy
import json
from urllib.parse import urlencode

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kvroom.answer.plan import Plan
from kvroom.errors import KvroomError
from kvroom.hardware.reader import resolve
from kvroom.models import catalogue
from kvroom.models.load import load
from kvroom.planner.explain import explain
from kvroom.planner.plan import work
from kvroom.scenario.link import PAGE_ADDRESS
from kvroom.scenario.scenario import KNOWN_BYTES, Scenario
from kvroom.scenario.workload import Workload
from kvroom.ui import codec
from kvroom.ui.cli import plan
from kvroom.ui.terminal import plan as text
from support import check_told

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([0, 1, -1, 2, 8, 10**6, 10**9, 10**15, 10**16, 10**400, -(10**400), 0.5])
    | st.sampled_from(["80GB", "80G", "32K", "1e3", "-1", "auto", "fp8", "full_attention", "LLLG"])
    | st.text(max_size=12)
    | st.text(st.characters(categories=["Cs"]), min_size=1, max_size=2)
)
anything = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=8,
)
models = st.sampled_from(catalogue.names())


def tried(given, *, whole=True):
    """Answer ``given`` as a Scenario; a refusal must be told, an answer must print and add up."""
    try:
        scenario = Scenario.from_dict(given)
        w = work(scenario, paths=False)
    except KvroomError as error:
        check_told(error)
        return None
    if whole:
        assert sum(a.bytes for a in w.plan.memory.accounts) == w.plan.memory.gpu_bytes
        assert 0 <= w.plan.weights.active_params <= w.plan.weights.params
        assert json.loads(codec.encode(w.plan))["verdict"]["sentence"]
        assert text.show(w)
        assert text.show_explanations(explain(w))
        assert scenario == Scenario.from_dict(scenario.to_dict())
    return w


@given(anything)
def test_any_value_as_a_question(value):
    tried(value)


WORKLOAD = st.dictionaries(st.sampled_from(sorted(Workload.PARSERS)), anything, max_size=3)
ENGINE_ARGS = st.dictionaries(
    st.sampled_from(
        ["gpu_memory_utilization", "max_model_len", "max_num_seqs", "block_size", "no_such_flag"]
        + [
            "kv_cache_memory_bytes",
            "max_num_batched_tokens",
            "enforce_eager",
            "mem_fraction_static",
        ]
    ),
    leaves,
    max_size=3,
)
MEASURED = st.dictionaries(st.sampled_from(KNOWN_BYTES), leaves, max_size=3)
special = {"workload": WORKLOAD, "engine_args": ENGINE_ARGS, "known_bytes": MEASURED}


@st.composite
def questions(draw):
    asked = {
        "model": draw(models),
        "gpu": draw(st.sampled_from(["H100-SXM", "80GB"])),
        "engine": draw(st.sampled_from(["arithmetic", "vllm", "sglang", "llama.cpp"])),
    }
    for key in draw(st.lists(st.sampled_from(sorted(Scenario.PARSERS)), min_size=1, max_size=3)):
        asked[key] = draw(special.get(key, anything) | anything)
    return asked


@settings(max_examples=300)
@given(questions())
@example({"model": "llama-3-8b", "gpu": "80GB", "known_bytes": {"visible": 0}})
@example({"model": "llama-3-8b", "gpu": "80GB", "engine_version": "\ud800"})
@example({"model": "llama-3-8b", "gpu": "80GB", "kv_dtype": "\udcff"})
@example({"model": "llama-3-8b", "gpu": "80GB", "tiers": {"a": float("nan")}})
@example({"model": "llama-3-8b", "gpu": "80GB", "engine_version": 10**5000})
@example({"model": "llama-3-8b", "gpu": "80GB", "known_bytes": {"weights": 10**15}})
def test_a_question_with_odd_values(asked):
    tried(asked)


layout = st.integers(0, 9) | st.sampled_from([16, 64, 72, 1000, 100_000, 100_001])


@given(
    models, st.dictionaries(st.sampled_from(["gpu_count", "tp", "pp", "dp", "ep", "dcp"]), layout)
)
def test_any_layout(model, degrees):
    w = tried({"model": model, "gpu": "H100-SXM", "engine": "arithmetic", **degrees})
    if w:
        s = w.plan.scenario
        assert s.gpu_count == s.tp * s.pp * s.dp == w.deployment.layout.gpus


def places(config, path=()):
    """The path of every entry of a config, nested ones too."""
    inside = config.items() if isinstance(config, dict) else enumerate(config)
    for key, value in inside:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


CHANGES = {
    "drop": lambda v, new: None,
    "replace": lambda v, new: new,
    "negate": lambda v, new: -v if isinstance(v, int | float) else new,
    "enlarge": lambda v, new: v * 1000 if isinstance(v, int | float) else new,
    "one more": lambda v, new: v + 1 if isinstance(v, int | float) else [v],
    "text": lambda v, new: str(v)[:50],
    "fraction": lambda v, new: 0.5,
    "list": lambda v, new: [v],
    "shorter": lambda v, new: v[:-1] if isinstance(v, list | str) else new,
    "longer": lambda v, new: v * 2 if isinstance(v, list) else new,
    "true": lambda v, new: True,
    "nested": lambda v, new: {"a": v},
}


@st.composite
def configs(draw):
    """A published config with one to three of its entries changed."""
    config = copy.deepcopy(dict(catalogue.config_of(draw(models))))
    for _ in range(draw(st.integers(1, 3))):
        found = list(places(config))
        if not found:
            break
        *way, last = draw(st.sampled_from(found))
        holder = config
        for key in way:
            holder = holder[key]
        change = draw(st.sampled_from(sorted(CHANGES)))
        if change == "drop":
            del holder[last]
        else:
            holder[last] = CHANGES[change](holder[last], draw(anything))
    return config


@settings(max_examples=500)
@given(configs(), st.sampled_from([1, 2, 8]), st.sampled_from([1, 3]))
@example({"model_type": "x", "text_config": {"model_type": ["llama"]}}, 1, 1)
def test_a_config_with_odd_entries(config, tp, pp):
    tried(
        {"model": {"config": config}, "gpu": "H100-SXM", "engine": "vllm", "tp": tp, "pp": pp},
        whole=False,
    )


@given(anything, anything)
def test_any_value_as_a_config(key, value):
    for model in (key, {"config": key}, {"config": {"model_type": key, "text_config": value}}):
        try:
            load(model, paths=False)
        except KvroomError as error:
            check_told(error)


CARD = {"name": "x", "memory_bytes": 8 * 10**10, "memory_bytes_per_s": 1e12}


@given(
    st.sampled_from([*CARD, "flops_per_s", "link_bytes_per_s", "host_link_bytes_per_s", "odd"]),
    anything,
)
@example("name", "\ud800")
@example("flops_per_s", {"bf16": 10**400})
def test_a_card_by_value(key, value):
    tried({"model": "llama-3-8b", "gpu": {**CARD, key: value}})


LINK = Scenario.from_dict({"model": "llama-3-70b", "gpu": "80GB", "gpu_count": 4}).link()


@given(st.data())
def test_a_link_cut_or_garbled(data):
    start, end = sorted(data.draw(st.integers(0, len(LINK))) for _ in range(2))
    link = LINK[:start] + data.draw(st.text(max_size=5)) + LINK[end:]
    try:
        Scenario.from_link(link)
    except KvroomError as error:
        check_told(error)


@given(st.dictionaries(st.sampled_from([*Scenario.PARSERS, "context", "kv", "x"]), leaves))
def test_any_readable_link(keys):
    said = {k: str(v).encode("utf-8", "replace").decode() for k, v in keys.items() if v != 10**400}
    try:
        Scenario.from_link(f"{PAGE_ADDRESS}?{urlencode(said)}")
    except KvroomError as error:
        check_told(error)


@given(st.binary(max_size=60) | st.builds(lambda v: json.dumps(v).encode(), anything))
def test_any_line_of_json_lines(line):
    answer = plan.plan_line(line)
    if not isinstance(answer, Plan):
        assert set(answer) == {"error"}
        assert set(answer["error"]) == {"field", "value", "message", "fix"}
    codec.encode(answer)


CONFIG = json.dumps(dict(catalogue.config_of("qwen3-30b-a3b"))).encode()
on_files = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(path):
    for reader in (load, resolve):
        try:
            reader(str(path))
        except KvroomError as error:
            check_told(error)


@on_files
@given(st.integers(0, len(CONFIG) - 1), st.binary(max_size=3))
def test_a_config_file_cut_at_any_byte(tmp_path, end, tail):
    path = tmp_path / "config.json"
    path.write_bytes(CONFIG[:end] + tail)
    read(path)


@on_files
@given(
    st.binary(max_size=300),
    st.sampled_from(["config.json", "x.gguf", "model.safetensors", "card.toml", "card.json"])
    | st.just("model.safetensors.index.json"),
)
@example(b"GGUF\x03\x00\x00\x00" + b"\xff" * 40, "x.gguf")
@example(b"\xff\xff\xff\xff\xff\xff\xff\x7f{}", "model.safetensors")
def test_a_file_of_any_bytes(tmp_path, content, name):
    (tmp_path / "config.json").write_bytes(CONFIG)
    (tmp_path / name).write_bytes(content)
    read(tmp_path / name)

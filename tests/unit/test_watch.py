"""Samples from readings: windows, rates, restarts, warnings; the address; recordings."""

import json
from contextlib import suppress
from dataclasses import replace
from time import sleep

import pytest
from click.testing import CliRunner

from kvroom.errors import KvroomError
from kvroom.observe.endpoint import Endpoint, NoAnswerError
from kvroom.observe.prometheus import Reading, read
from kvroom.observe.recording import Recorder, Recording, cache_of
from kvroom.observe.watch import MOST_SAMPLES, Sample, Watcher
from kvroom.planner.simulate import simulate
from kvroom.scenario.scenario import Scenario
from kvroom.ui.cli.main import main
from kvroom.workloads.requests import PS_PER_S
from kvroom.workloads.traces.reader import Trace
from kvroom.workloads.traces.writer import write
from metrics_server import buckets, raw, serving, text, vllm


def reading(more: str = "", **figures) -> Reading:
    return read(vllm(**figures) + more)


def taken(*steps, window_s=60.0):
    """Samples a second apart."""
    watcher = Watcher(window_s)
    return [watcher.take(float(t), s) for t, s in enumerate(steps)]


def test_the_first_sample_is_of_the_servers_life():
    (s,) = taken(
        reading(prefix_cache_queries_total=200, prefix_cache_hits_total=50, num_preemptions_total=9)
    )
    assert s.window_s is None
    assert s.hit_ratio == 0.25
    assert s.preemptions == 9
    assert s.preemptions_lately is None
    assert s.generation_tokens_per_s is None


def test_later_ones_are_of_the_window():
    last = taken(
        reading(
            prefix_cache_queries_total=100, prefix_cache_hits_total=100, generation_tokens_total=10
        ),
        reading(
            prefix_cache_queries_total=200, prefix_cache_hits_total=110, generation_tokens_total=50
        ),
    )[-1]
    assert last.window_s == 1
    assert last.hit_ratio == pytest.approx(0.1)
    assert last.generation_tokens_per_s == 40


def test_what_is_older_than_the_window_is_forgotten():
    steps = [reading(generation_tokens_total=100 if t < 5 else 200) for t in range(20)]
    watcher = Watcher(10.0)
    rates = [watcher.take(float(t), s).generation_tokens_per_s for t, s in enumerate(steps)]
    assert rates[5] == 20
    assert rates[-1] == 0
    assert len(watcher._kept) <= 12


def test_samples_are_bounded():
    watcher = Watcher(1e9)
    for t in range(MOST_SAMPLES + 50):
        watcher.take(t / 100, reading())
    assert len(watcher._kept) == MOST_SAMPLES


def test_percentiles_are_of_the_window():
    def ttft(fast, slow):
        counts = {"0.1": fast, "1.0": fast + slow, "+Inf": fast + slow}
        return buckets("time_to_first_token_seconds", counts, fast * 0.05 + slow * 0.5)

    first, second = taken(reading(ttft(100, 0)), reading(ttft(100, 10)))
    assert first.ttft_s["p95"] < 0.1
    assert second.ttft_s["p50"] > 0.1
    assert second.ttft_s["count"] == 10
    assert second.ttft_s["mean"] == pytest.approx(0.5)


def test_a_restart_is_told_and_no_rate_is_negative():
    samples = taken(
        reading(generation_tokens_total=1000, num_preemptions_total=5),
        reading(generation_tokens_total=20, num_preemptions_total=0),
        reading(generation_tokens_total=50, num_preemptions_total=0),
    )
    assert [s.restarted for s in samples] == [False, True, False]
    assert samples[1].generation_tokens_per_s is None
    assert samples[2].generation_tokens_per_s == 30
    assert "began anew" in samples[1].sentence


def test_a_restart_is_known_by_the_start_time_too():
    steps = (
        reading(f"process_start_time_seconds {t}\n", generation_tokens_total=9)
        for t in (1e9, 1e9 + 60)
    )
    assert [s.restarted for s in taken(*steps)] == [False, True]


def test_llama_cpps_mean_time_of_a_token():
    steps = (
        read(f"llamacpp:tokens_predicted_total {n}\nllamacpp:tokens_predicted_seconds_total {s}\n")
        for n, s in ((100, 5.0), (200, 9.0))
    )
    assert taken(*steps)[-1].itl_s == {"mean": 0.04, "count": 100}


def test_a_filling_cache_is_warned_of():
    samples = taken(*(reading(kv_cache_usage_perc=0.4 + 0.05 * t) for t in range(6)))
    assert samples[2].full_in_s is None
    assert samples[-1].full_in_s == pytest.approx(7.0)
    assert samples[-1].sentence.startswith(
        "The cache is 65% full and at this pace full in about 7 s"
    )


@pytest.mark.parametrize(
    "fills", [(0.5,) * 6, (0.9, 0.8, 0.7, 0.6, 0.5, 0.4), (0.01, 0.02, 0.03, 0.04, 0.05)]
)
def test_one_that_does_not_fill_or_is_nearly_empty_is_not(fills):
    assert taken(*(reading(kv_cache_usage_perc=f) for f in fills))[-1].warnings == ()


def test_preemptions_are_the_first_thing_said():
    last = taken(
        reading(num_preemptions_total=3, kv_cache_usage_perc=0.99, num_requests_waiting=4),
        reading(num_preemptions_total=5, kv_cache_usage_perc=0.99, num_requests_waiting=4),
    )[-1]
    assert last.sentence.startswith("2 preemptions in the last 10 s")
    assert "4 wait for others" in last.warnings[1]


def test_waiting_beside_an_empty_cache_has_another_reason():
    (s,) = taken(reading(num_requests_waiting=1, kv_cache_usage_perc=0.2))
    assert s.sentence.startswith("1 waits although the cache is only 20% full")


def test_all_is_well():
    assert taken(reading())[0].sentence == "The cache is 25% full, 2 run, none waits."
    assert Sample(t_s=0.0).sentence == "The engine tells none of its state."


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000/metrics"),
        ("http://host", "http://host:80/metrics"),
        ("https://user:secret@host/m?token=secret", "https://host:443/m"),
        ("http://[::1]:9/", "http://[::1]:9/metrics"),
    ],
)
def test_addresses(url, shown):
    endpoint = Endpoint.of(url)
    assert endpoint.shown == shown
    assert "secret" not in repr(endpoint)


@pytest.mark.parametrize(
    "url",
    ["", "http://", "ftp://user:secret@host", "http://user:secret@host:99999", "http://user:secret@ho st",
     "http://[user:secret@", "file:///etc/passwd"],
)  # fmt: skip
def test_what_is_no_address(url):
    with pytest.raises(KvroomError) as told:
        Endpoint.of(url)
    assert "secret" not in str(told.value)
    assert "secret" not in json.dumps(told.value.as_dict())


def test_credentials_are_sent_and_the_query_too():
    with serving(text(vllm())) as server:
        Endpoint.of(server.address.replace("//", "//me:p%40ss@") + "/metrics?a=b").fetch()
    path, headers = server.asked[0]
    assert path == "/metrics?a=b"
    assert headers["Authorization"] == "Basic bWU6cEBzcw=="


def test_a_token_of_the_environment(monkeypatch):
    monkeypatch.setenv("KVROOM_TOKEN", "abc")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with serving(text(vllm())) as server:
        Endpoint.of(server.address).fetch()
    assert server.asked[0][1]["Authorization"] == "Bearer abc"


def dripping(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    with suppress(OSError):
        while True:
            handler.wfile.write(b"#")
            sleep(0.02)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (text("", 404), "--enable-metrics"),
        (text("", 501), "--metrics"),
        (text("", 401), "credentials"),
        (text("", 503), "status 503"),
        (raw(b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/secret\r\n\r\n"), "status 302"),
        (raw(b"\x00\xff not http at all\r\n\r\n"), "no HTTP"),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nvllm:x"), "cut short"),
        (raw(b""), "no HTTP"),
        (dripping, "within 0.5 s"),
    ],
)
def test_answers_that_are_none(answer, why):
    with serving(answer) as server, pytest.raises(NoAnswerError, match=why) as told:
        Endpoint.of(server.address).fetch(0.5)
    assert "secret" not in str(told.value)
    assert len(server.asked) == 1


def test_an_endless_answer_is_cut():
    big = b"HTTP/1.1 200 OK\r\n\r\n" + b"#" * (17 * 2**20)
    with serving(raw(big)) as server, pytest.raises(NoAnswerError, match="longer than"):
        Endpoint.of(server.address).fetch(20)


def test_nothing_listens():
    with serving(text("")) as server:
        pass
    with pytest.raises(NoAnswerError, match="nothing listens"):
        Endpoint.of(server.address).fetch(1)


INFO = 'vllm:cache_config_info{block_size="128",num_gpu_blocks="20",engine="0"} 1.0\n'


def recorded(path, *steps):
    watcher = Watcher()
    with Recorder(str(path)) as recorder:
        recorder.header("http://127.0.0.1:8000/metrics", steps[0], {"model": "m"})
        for t, step in enumerate(steps):
            recorder.sample(watcher.take(float(t), step), step)
    return Recording.open(path)


def test_the_caches_size_as_told():
    assert cache_of(reading(INFO)) == {"num_blocks": 20, "block_size": 128}
    assert cache_of(read("sglang:max_total_num_tokens 4096\n")) == {"kv_tokens": 4096}


def test_a_recording_makes_a_trace(tmp_path):
    def at(done, running, prompt, output):
        more = buckets("request_prompt_tokens", {"50": 0, "100": done, "+Inf": done}, done * 80)
        more += buckets("request_generation_tokens", {"20": done, "+Inf": done}, done * 10)
        return reading(INFO + more, request_success_total=done, num_requests_running=running,
                       prompt_tokens_total=prompt, generation_tokens_total=output)  # fmt: skip

    r = recorded(
        tmp_path / "r.jsonl",
        at(5, 0, 400, 50),
        at(5, 3, 640, 80),
        at(9, 1, 800, 90),
        at(10, 0, 800, 100),
    )
    assert r.header["cache"] == {"num_blocks": 20, "block_size": 128}
    requests = list(r.requests())
    assert len(requests) == 5
    assert [q.arrival_ps for q in requests] == sorted(q.arrival_ps for q in requests)
    assert all(0 <= q.arrival_ps <= 3 * PS_PER_S for q in requests)
    assert all(50 <= q.input_tokens <= 110 for q in requests)
    assert requests == list(r.requests())


@pytest.mark.parametrize("hits", [0, 900, 5200, 9900])
def test_a_trace_is_found_in_a_cache_as_often_as_was_recorded(tmp_path, hits):
    def at(done):
        more = buckets("request_prompt_tokens", {"100": 0, "400": done, "+Inf": done}, done * 250)
        return reading(more, request_success_total=done, num_requests_running=0,
                       prefix_cache_queries_total=done * 100,
                       prefix_cache_hits_total=done * hits / 100)  # fmt: skip

    r = recorded(tmp_path / "r.jsonl", *(at(n) for n in (0, 30, 90, 200)))
    assert r.hit_ratio() == pytest.approx(hits / 10_000)
    scenario = Scenario.from_dict(
        {"model": "llama-3-8b", "gpu": "H100-SXM", "engine": "vllm", "context_tokens": 2048}
    )
    path = tmp_path / "trace.jsonl"
    write(path, r.requests())
    replayed = simulate(scenario, Trace(path)).to_dict()
    assert replayed["requests"]["completed"] == 200
    most = 1 - 9 / 250  # a prompt's last block is mostly computed anew
    wanted = min(hits / 10_000, most)
    assert replayed["prefix_hit_ratio"] == pytest.approx(wanted, abs=0.012)


def test_a_restart_in_a_recording(tmp_path):
    r = recorded(tmp_path / "r.jsonl", reading(request_success_total=50, num_requests_running=0),
                 reading(request_success_total=3, num_requests_running=0))  # fmt: skip
    assert len(list(r.requests())) == 3


def test_no_count_of_requests_no_trace(tmp_path):
    step = read("llamacpp:requests_processing 1\n")
    r = recorded(tmp_path / "r.jsonl", step, step)
    with pytest.raises(KvroomError, match="no count of requests"):
        list(r.requests())


def without(reading_, *names):
    """An answer that lacks some counters."""
    return replace(
        reading_, counters={k: v for k, v in reading_.counters.items() if k not in names}
    )


def test_a_counter_left_out_once_is_not_set_to_zero(tmp_path):
    figures = {
        "request_success_total": 5000, "num_preemptions_total": 70, "num_requests_running": 0,
        "prefix_cache_queries_total": 900, "prefix_cache_hits_total": 400,
    }  # fmt: skip
    later = {**figures, "request_success_total": 5003}
    lacking = without(reading(**figures), "finished", "preemptions", "hits", "queries")
    steps = [reading(**figures), lacking, reading(**later)]
    samples = taken(*steps)
    assert [s.preemptions_lately for s in samples] == [None, 0, 0]
    assert not any(s.restarted or s.warnings for s in samples)
    assert samples[-1].requests_per_s == pytest.approx(1.5)
    r = recorded(tmp_path / "r.jsonl", *steps)
    assert len(list(r.requests())) == 3
    assert r.hit_ratio() is None  # nothing was looked up meanwhile


def test_observations_left_out_once_are_not_counted_again(tmp_path):
    told = buckets("request_prompt_tokens", {"100": 5000, "+Inf": 5000}, 250_000)
    more = buckets("request_prompt_tokens", {"100": 5002, "+Inf": 5002}, 250_100)
    r = recorded(tmp_path / "r.jsonl", reading(told), reading(), reading(more))
    counts = [line.get("prompt_lengths") for line in r.samples()]
    assert counts[:2] == [None, None]
    assert sum(n for _, _, n in counts[2]["steps"]) == 2


def test_a_recording_cut_short_is_read_up_to_there(tmp_path):
    path = tmp_path / "r.jsonl"
    recorded(path, reading(), reading())
    path.write_bytes(path.read_bytes()[:-30])
    assert len(list(Recording.open(path).samples())) == 1


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"[1]\n", b'{"a": 1}\n', b"\xff\xfe\n", b"{" * 5000 + b"\n"]
)
def test_no_recording(tmp_path, content):
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    with pytest.raises(KvroomError):
        Recording.open(path)


ODD = ("x", -1, None, [], {}, True, 1e400, float("nan"), [[1]], {"steps": [[1]]}, {"mean": "x"})


@pytest.mark.parametrize("odd", ODD)
def test_a_recording_of_odd_values_is_told_without_them(tmp_path, odd):
    path = tmp_path / "r.jsonl"
    more = buckets("request_prompt_tokens", {"100": 5, "+Inf": 5}, 250)
    recorded(path, *(reading(more, request_success_total=n) for n in (0, 3, 9)))
    head, *lines = map(json.loads, path.read_text().splitlines())
    for key in (*lines[1], "counters.finished"):
        spoiled = json.loads(json.dumps(lines))
        part = spoiled[1]["counters"] if "." in key else spoiled[1]
        part[key.rpartition(".")[2]] = odd
        path.write_text("\n".join(map(json.dumps, (head, *spoiled))) + "\n")
        for told in ((), ("--json",), ("--trace", str(tmp_path / "t.jsonl"))):
            run = CliRunner().invoke(main, ["watch", str(path), *told])
            assert isinstance(run.exception, SystemExit | None), (key, odd, told)
            assert run.exit_code in (0, 2)
        run = CliRunner().invoke(main, ["calibrate", str(path)])
        assert isinstance(run.exception, SystemExit | None), (key, odd)


def test_a_recording_of_more_than_can_have_come_is_refused(tmp_path):
    steps = [reading(request_success_total=n, num_requests_running=0) for n in (0, 10**12)]
    with pytest.raises(KvroomError, match="1,000,000,000,000 requests between two samples"):
        list(recorded(tmp_path / "r.jsonl", *steps).requests())


def test_a_bare_head_is_a_recording_of_nothing(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text('{"kvroom_recording": 1, "engine": 5, "cache": 3, "began": "\\u001b[31m"}\n')
    told = CliRunner().invoke(main, ["watch", str(path)])
    assert told.exit_code == 0
    assert "\x1b" not in told.stdout


def test_nothing_is_written_over(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text("mine")
    with pytest.raises(KvroomError, match="is there already"):
        Recorder(str(path))
    assert path.read_text() == "mine"

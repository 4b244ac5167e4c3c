"""A running engine on the page: the stream of its states, and what a browser makes of it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from browser import serving

import metrics_server
from kvroom.errors import KvroomError
from kvroom.observe import prometheus
from kvroom.observe.endpoint import Endpoint
from kvroom.ui.web.watched import HISTORY, MARKER, Board
from metrics_server import buckets, raw, text, vllm
from web.conftest import Visit

INFO = 'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0\n'


def engine(usage: float, **more: float) -> str:
    """The metrics of an engine whose cache is so full."""
    counted = {"0.05": 10.0, "+Inf": 10.0}
    times = buckets("time_to_first_token_seconds", counted, 0.3)
    return vllm(kv_cache_usage_perc=usage, **more) + INFO + times


def board(address: str) -> Board:
    return Board(Endpoint.of(address), interval_s=0.05)


def events(address: str, count: int) -> list[dict[str, Any]]:
    """The first ``count`` states of the stream."""
    found: list[dict[str, Any]] = []
    with urllib.request.urlopen(f"{address}api/watch", timeout=20) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        while len(found) < count:
            line = answer.readline()
            if line.startswith(b"data: "):
                found.append(json.loads(line[6:]))
    return found


def test_states_come_as_the_engine_changes() -> None:
    broken = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\ncut")
    with metrics_server.serving(
        text(engine(0.25)), text(engine(0.5, num_preemptions_total=3)), broken, text(engine(0.75))
    ) as metrics, serving(board(metrics.address)) as address:  # fmt: skip
        first, second, third, last = events(address, 4)
    assert first["cells"]["fill"] == "25%"
    assert first["fill"] == "25.00%"
    assert first["cells"]["num_blocks"] == "100"
    assert first["cells"]["ttft"].endswith("ms")
    assert second["state"] == "warned"
    assert "3 preemptions" in second["sentence"]
    assert third["state"] == "lost"
    assert last["cells"]["fill"] == "75%"
    assert [bar["height"] for bar in last["history"]] == ["25.00%", "50.00%", "75.00%"]


def test_the_engine_is_asked_only_while_somebody_listens() -> None:
    with metrics_server.serving(text(engine(0.5))) as metrics:
        watched = board(metrics.address)
        with serving(watched) as address:
            time.sleep(0.3)
            assert metrics.asked == []
            events(address, 3)
            last = time.monotonic() + 20
            while watched.listeners and time.monotonic() < last:
                time.sleep(0.02)
            assert watched.listeners == 0
            time.sleep(0.2)
            asked = len(metrics.asked)
            time.sleep(0.4)
            assert len(metrics.asked) == asked


def test_no_request_names_an_address(address: str) -> None:
    known = metrics_server.serving(text(engine(0.5)))
    with metrics_server.serving(text(engine(0.5))) as other, known as metrics:
        with serving(board(metrics.address)) as watching:
            asked = f"{watching}api/watch?url={other.address}&watch={other.address}"
            with urllib.request.urlopen(asked, timeout=20) as answer:
                assert answer.readline().startswith(b"data: ")
        assert other.asked == []
        assert metrics.asked
    with pytest.raises(urllib.error.HTTPError) as e:  # without --watch there is no such path
        urllib.request.urlopen(f"{address}api/watch?url=http://127.0.0.1:1", timeout=20)
    assert e.value.code == 404
    with urllib.request.urlopen(address, timeout=20) as page:
        assert b"kv-watch" not in page.read()


def test_credentials_are_sent_and_never_shown() -> None:
    with metrics_server.serving(text(engine(0.5))) as metrics:
        watched = board(metrics.address.replace("//", "//me:secret@"))
        with serving(watched) as address:
            (state,) = events(address, 1)
    assert metrics.asked[0][1]["Authorization"].startswith("Basic ")
    assert "secret" not in json.dumps(state)
    with pytest.raises(KvroomError) as e:
        Board.of("ftp://me:secret@host")
    assert "secret" not in str(e.value)


def test_more_pages_than_are_allowed_are_told() -> None:
    watched = board("http://127.0.0.1:9")
    watched.listeners = 32
    with serving(watched) as address, pytest.raises(urllib.error.HTTPError) as e:
        urllib.request.urlopen(f"{address}api/watch", timeout=20)
    assert e.value.code == 429
    assert "pages watch already" in json.loads(e.value.read())["error"]["message"]
    e.value.close()


def test_marks_stay_inside_and_are_bounded() -> None:
    watched = board("http://127.0.0.1:9")
    watched.reading = prometheus.read(engine(0.5))
    sample = watched.watcher.take(0.0, prometheus.read(engine(0.5)))
    watched.fills.extend([0.5, None, 1.2] * HISTORY)
    bars = watched.told(sample)["history"]
    assert len(bars) <= HISTORY
    for bar in bars:
        x, y, height = (float(bar[k][:-1]) for k in ("x", "y", "height"))
        assert 0 <= x < 100
        assert y + height == pytest.approx(100)


@pytest.fixture
def seen(browser: Any) -> Iterator[Any]:
    """The page beside an engine that fills; no complaint is let pass."""
    fills = [text(engine(0.25 + i / 100, num_requests_running=i)) for i in range(1, 40)]
    last = text(engine(0.9, num_preemptions_total=7))
    with ExitStack() as stack:
        metrics = stack.enter_context(metrics_server.serving(*fills, last))
        address = stack.enter_context(serving(board(metrics.address)))
        context = browser.new_context()
        context.add_init_script("sessionStorage.setItem('kvroom-guessed', '1')")
        page = context.new_page()
        v = Visit(page, address)
        page.on("console", lambda m: v.complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: v.complaints.append(str(e)))
        page.on("request", lambda r: v.hosts.add(r.url.split("/")[2]))
        page.goto(f"{address}#view=plan")
        yield v
        context.close()
        assert v.complaints == []
        assert v.hosts == {address.split("/")[2]}


def test_the_page_shows_the_engine_beside_the_plan(seen: Any) -> None:
    page = seen.page
    page.locator("[data-cell=preempted]", has_text="7").wait_for(timeout=60_000)
    assert seen.text('[data-cell="fill"]') == "90%"
    assert seen.text('[data-cell="num_blocks"]') == "100"
    assert "7 preemptions" in seen.text("[data-sentence]")
    assert page.locator("[data-fill]").get_attribute("width") == "90.00%"
    assert page.locator("[data-history] rect").count() >= 40
    planned = seen.text('kv-watch kv-n[figure="step.seconds"]')
    assert planned == seen.text('kv-n[figure="step.seconds"]') != ""
    assert "127.0.0.1" in seen.text("[data-name]")


def test_it_is_accessible_and_narrow(seen: Any) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed"
    )
    page = seen.page
    page.locator("[data-cell=fill]", has_text="%").wait_for(timeout=60_000)
    for width in (1280, 320):
        page.set_viewport_size({"width": width, "height": 800})
        found = axe.Axe().run(page, "#watch")
        assert found.violations_count == 0, found.generate_report()
        wide = page.evaluate("document.querySelector('#watch').scrollWidth")
        assert wide <= width


def test_the_section_has_its_place() -> None:
    page = "<main><!--watch--></main>"
    assert MARKER in page
    assert 'id="watch"' in board("http://127.0.0.1:9").put_into(page)

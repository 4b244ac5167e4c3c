"""The hub is asked only where its extra is there, only for an id that was typed."""

import json

import pytest

import kvroom
from kvroom import hub
from kvroom.errors import KvroomError
from kvroom.models import load as loading

SMALL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


@pytest.fixture
def offered(monkeypatch, tmp_path):
    """A hub that knows one model, and what it was asked for."""
    huggingface_hub = pytest.importorskip("huggingface_hub")
    asked = []

    def download(hub_id, name, **options):
        asked.append((hub_id, name))
        if hub_id != "someone/small":
            raise OSError("unreachable")
        (tmp_path / name).write_text(json.dumps(SMALL))
        return str(tmp_path / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(hub, "_reachable", lambda: True)
    with loading.asking(hub.reader()):
        yield asked


def test_a_hub_id_is_read(offered):
    spec = loading.load("someone/small")
    assert (spec.name, spec.num_layers) == ("someone/small", 2)
    assert offered == [("someone/small", "config.json")]


def test_a_python_call_asks_where_the_extra_is_installed(offered):
    with loading.asking(None):  # whatever a caller before has set
        assert kvroom.plan("someone/small", "H100-SXM").scenario.model == "someone/small"
        assert offered == [("someone/small", "config.json")]
        with pytest.raises(KvroomError, match="not in the catalogue"):
            kvroom.plan("someone/small", "H100-SXM", hub=False)
        own = kvroom.plan("another/one", "H100-SXM", hub=lambda _: SMALL)
        assert own.weights.params == kvroom.plan("someone/small", "H100-SXM").weights.params
        with pytest.raises(KvroomError, match="not in the catalogue"):
            loading.load("someone/small")


def test_the_catalogue_is_asked_first(offered):
    assert loading.load("meta-llama/Meta-Llama-3-70B").name == "llama-3-70b"
    assert offered == []


def test_a_server_never_asks(offered):
    with pytest.raises(KvroomError, match="not in the catalogue"):
        loading.load("someone/small", paths=False)
    assert offered == []


def test_an_unreachable_hub_is_told(offered):
    with pytest.raises(KvroomError, match="the hub does not give its config") as caught:
        loading.load("someone/other")
    assert caught.value.field == "model"
    assert "OSError" in str(caught.value)


def test_a_hub_that_cannot_be_reached_is_not_asked_again_and_again(monkeypatch, tmp_path, capsys):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("urllib.request.getproxies", dict)
    slept = []
    monkeypatch.setattr("time.sleep", slept.append)
    with pytest.raises(KvroomError, match="cannot be reached"):
        hub.config_of("nosuch/model")
    assert not slept
    told = capsys.readouterr()
    assert not told.out
    assert not told.err

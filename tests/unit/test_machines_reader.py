"""Inline cards and machine files: what is taken, and how each bad one fails."""

import json

import pytest

from kvroom.errors import KvroomError
from kvroom.hardware import (
    Device,
    Machine,
    device_from_dict,
    find,
    load_machine,
    resolve,
    resolve_machine,
)

CARD = {"name": "card", "memory_bytes": 80_000_000_000, "memory_bytes_per_s": 3.35e12}
PROBE = {
    "name": "this machine",
    "memory_bytes": 64 * 2**30,
    "memory_bytes_per_s": 41.5e9,
    "tiers": [
        {"name": "sram", "bytes": 32 * 2**20, "bytes_per_s": 4e11, "latency_s": 1e-8},
        {"name": "dram", "bytes": 64 * 2**30, "bytes_per_s": 41.5e9, "source": "measured: probe"},
        {"name": "nvme", "bytes": None, "bytes_per_s": 2e9, "latency_s": None, "source": None},
    ],
    "links": [],
}


def write(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return str(path)


def test_inline_card_bytes_count_as_sold_driver_and_visible():
    card = device_from_dict(CARD)
    assert card.sold_bytes == card.driver_bytes == card.visible_bytes == 80_000_000_000
    assert card.engine_bytes_source.text == "given by the question"
    assert card.flops("bf16") is None
    assert resolve(CARD) == card
    assert resolve(card) is card


def test_inline_card_takes_all_six_keys_and_text_sizes():
    more = {
        "memory_bytes": "80GiB",
        "flops_per_s": {"bf16": 989e12, "fp8": None},
        "link_bytes_per_s": 450e9,
        "host_link_bytes_per_s": 64e9,
    }
    card = device_from_dict({**CARD, **more})
    assert card.engine_bytes == 80 * 2**30
    assert card.flops("fp16") == 989e12
    assert card.flops("fp8") is None
    assert card.scale_up.bytes_per_s == 450e9
    assert card.host_link.bytes_per_s == 64e9
    plain = dict.fromkeys(("flops_per_s", "link_bytes_per_s", "host_link_bytes_per_s"))
    assert device_from_dict({**CARD, **plain}).host_link is None


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"memory_byte": 1}, "gpu.memory_byte", "Did you mean memory_bytes"),
        ({"generation": "ada"}, "gpu.generation", "unknown key"),
        ({"memory_bytes": None}, "gpu.memory_bytes", "missing"),
        ({"memory_bytes": "80G"}, "gpu.memory_bytes", "80GiB"),
        ({"memory_bytes": 10**15 + 1}, "gpu.memory_bytes", "above"),
        ({"memory_bytes": "2PB"}, "gpu.memory_bytes", "above"),
        ({"memory_bytes_per_s": 0}, "gpu.memory_bytes_per_s", "above zero"),
        ({"link_bytes_per_s": -5}, "gpu.link_bytes_per_s", "outside"),
        ({"host_link_bytes_per_s": "x"}, "gpu.host_link_bytes_per_s", "is no rate"),
        ({"flops_per_s": {"bf16": float("nan")}}, "gpu.flops_per_s.bf16", "finite"),
        ({"flops_per_s": {"b16": 1}}, "gpu.flops_per_s.b16", "Did you mean bf16"),
    ],
)
def test_bad_inline_cards(change, field, words):
    with pytest.raises(KvroomError) as caught:
        device_from_dict({**CARD, **change})
    assert caught.value.field == field
    assert words in str(caught.value)


@pytest.mark.parametrize("value", [None, 5, [], [CARD], True, 1.5, b"H100"])
def test_neither_name_nor_table(value):
    with pytest.raises(KvroomError) as caught:
        resolve(value)
    assert caught.value.field == "gpu"


def test_probe_file_becomes_a_machine(tmp_path):
    path = write(tmp_path / "probe.json", PROBE)
    machine = load_machine(path)
    assert isinstance(machine, Machine)
    assert machine.name == "this machine"
    assert [t.name for t in machine.tiers] == ["sram", "dram", "nvme"]
    assert machine.tier("dram").source.kind == "measured"
    assert machine.device.engine_bytes == 64 * 2**30
    assert resolve(path) == machine.device
    assert resolve_machine(path) == machine
    assert Machine.from_dict(machine.to_dict()) == machine


def test_device_files_toml(tmp_path):
    slice_of = write(
        tmp_path / "mig.toml",
        """name = "H100 1g.10gb"
memory_bytes = "9984MiB"
memory_bytes_per_s = 0.42e12
generation = "hopper"
flops_per_s = {bf16 = 141e12}
""",
    )
    device = resolve(slice_of)
    assert device.engine_bytes == 9984 * 2**20
    assert device.generation == "hopper"
    full = write(tmp_path / "full.json", find("L40S").to_dict())
    assert resolve(full) == find("L40S")
    assert isinstance(load_machine(full), Device)


def test_machine_file_may_name_a_catalogue_device(tmp_path):
    path = write(
        tmp_path / "node.toml",
        """name = "node"
device = "l40s"
count = 4
tiers = [{name = "host", bytes = "512GiB", bytes_per_s = 200e9, source = "measured: stream"}]
""",
    )
    machine = resolve_machine(path)
    assert (machine.name, machine.count) == ("node", 4)
    assert [t.name for t in machine.tiers] == ["sram", "l2", "hbm", "host"]
    assert machine.links[0].name == "PCIe 4.0 x16"
    assert resolve_machine("l40s", 2).count == 2


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("cut.json", '{"name": "x", "memory_b', "is not whole JSON"),
        ("cut.toml", 'name = "x', "is not whole TOML"),
        ("list.json", "[]", "does not hold a table"),
        ("word.json", '"H100"', "does not hold a table"),
        ("empty.json", "", "is not whole JSON"),
        ("deep.json", "[" * 100_000, "is nested too deeply"),
        ("deep.toml", "a = " + "[" * 100_000, "is nested too deeply"),
        ("huge.json", " " * 1_000_001, "larger than 1 MB"),
        ("few.json", '{"name": "x"}', "is missing"),
        ("odd.json", '{"name": "x", "speed": 1}', "unknown key"),
        ("count.json", {**CARD, "count": 0}, "below 1"),
        ("tiers.json", {**CARD, "tiers": 3}, "is not a list"),
        ("tier.json", {**CARD, "tiers": [{"name": "host", "size": 3}]}, "unknown key"),
        ("dev.json", {"device": "h100", "memory_bytes": 3}, "unknown key"),
        ("name.json", {"device": "h100", "name": 3}, "not a text"),
    ],
)
def test_bad_files(tmp_path, name, content, words):
    path = write(tmp_path / name, content)
    with pytest.raises(KvroomError) as caught:
        resolve(path)
    assert words in str(caught.value)
    assert caught.value.field.split(".")[0] in ("gpu", "machine")


def test_files_that_cannot_be_read(tmp_path):
    for path, words in (
        (tmp_path / "none.json", "does not exist"),
        (tmp_path / "folder.toml", "is no regular file"),
        (tmp_path / "binary.json", "is not a text file"),
        ("\0.json", "cannot be read"),
    ):
        if "folder" in str(path):
            path.mkdir()
        if "binary" in str(path):
            path.write_bytes(b"\xff\xfe\x00\x81GGUF")
        with pytest.raises(KvroomError) as caught:
            resolve(str(path))
        assert words in caught.value.message
    with pytest.raises(KvroomError, match=r"neither a \.toml nor a \.json"):
        load_machine("card.yaml")

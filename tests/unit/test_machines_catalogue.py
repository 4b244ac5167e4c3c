"""The catalogue: names, aliases, figures with their public sources, and how unknown names fail."""

import json
import pickle

import pytest

from kvroom.errors import KvroomError
from kvroom.hardware import Device, all_devices, find, names, resolve
from kvroom.hardware.catalogue import _load, key_of
from kvroom.hardware.device import UNSEEN_BYTES

NAMES = [
    "A10",
    "A10G",
    "A30",
    "A40",
    "A100-SXM-40",
    "A100-PCIe-40",
    "A100-SXM-80",
    "A100-PCIe-80",
    "A800-SXM-80",
    "L4",
    "L40",
    "L40S",
    "RTX-3090",
    "RTX-3090-Ti",
    "RTX-4090",
    "RTX-4090-D",
    "RTX-5090",
    "RTX-5080",
    "RTX-A6000",
    "RTX-6000-Ada",
    "RTX-4000-Ada",
    "RTX-PRO-6000-BSE",
    "RTX-PRO-6000",
    "H100-PCIe",
    "H100-SXM",
    "H100-NVL",
    "H200-SXM",
    "H200-NVL",
    "H20",
    "H20-3e-141",
    "GH200-96",
    "B100",
    "B200-SXM",
    "GB200",
    "B300-SXM",
    "GB300",
    "DGX-Spark-GB10",
    "Jetson-Thor",
    "Jetson-AGX-Orin-64",
    "V100-SXM2-32",
    "V100-PCIe-16",
    "V100S-PCIe-32",
    "T4",
    "P40",
    "MI210",
    "MI250X",
    "MI300X",
    "MI300A",
    "MI325X",
    "MI350X",
    "MI355X",
    "RX-7900-XTX",
    "Ryzen-AI-Max-395",
    "Gaudi-2",
    "Gaudi-3",
    "TPU-v4",
    "TPU-v5e",
    "TPU-v5p",
    "TPU-v6e",
    "TPU-v7-Ironwood",
    "Trainium1",
    "Trainium2",
    "Trainium3",
    "Inferentia2",
    "Apple-M1",
    "Apple-M1-Pro",
    "Apple-M1-Max",
    "Apple-M1-Ultra",
    "Apple-M2",
    "Apple-M2-Pro",
    "Apple-M2-Max",
    "Apple-M2-Ultra",
    "Apple-M3",
    "Apple-M3-Pro",
    "Apple-M3-Max",
    "Apple-M3-Ultra",
    "Apple-M4",
    "Apple-M4-Pro",
    "Apple-M4-Max",
    "Apple-M5",
    "Apple-M5-Pro",
    "Apple-M5-Max",
    "Groq-LPU-v1",
    "Cerebras-WSE-3",
    "Arc-Pro-B60",
    "Ascend-910B2",
]


def test_there_are_86_contract_names():
    assert len(set(NAMES)) == len(NAMES) == 86


@pytest.mark.parametrize("name", NAMES)
def test_contract_name_resolves_in_any_case_and_spelling(name):
    for typed in (name, name.lower(), name.upper(), name.replace("-", " "), name.replace("-", "_")):
        assert find(typed).name == name
    assert find(name).memory_bytes_per_s > 0


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("h100", "H100-SXM"),
        ("h100-80gb", "H100-SXM"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("a100", "A100-SXM-80"),
        ("a100-80gb", "A100-SXM-80"),
        ("a100-40gb", "A100-SXM-40"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM-80"),
        ("4090", "RTX-4090"),
        ("rtx4090", "RTX-4090"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("l40s", "L40S"),
        ("h200", "H200-SXM"),
        ("b200", "B200-SXM"),
        ("mi300x", "MI300X"),
        ("AMD Instinct MI300X", "MI300X"),
        ("m3-max", "Apple-M3-Max"),
        ("M2 Ultra", "Apple-M2-Ultra"),
        ("spark", "DGX-Spark-GB10"),
        ("NVIDIA GB10", "DGX-Spark-GB10"),
        ("5090", "RTX-5090"),
        ("a6000", "RTX-A6000"),
        ("Tesla T4", "T4"),
        ("AMD Ryzen AI Max+ 395", "Ryzen-AI-Max-395"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000-BSE"),
        ("trillium", "TPU-v6e"),
        ("80 gb", "80GB"),
    ],
)
def test_what_people_type_and_drivers_print(typed, name):
    assert find(typed).name == name
    assert resolve(typed) is find(name)


def test_no_alias_means_two_cards_and_none_is_idle():
    owner = {}
    for row in _load()["rows"].values():
        for alias in (row["name"], *row.get("aliases", ())):
            assert owner.setdefault(key_of(alias), row["name"]) == row["name"], alias
        keys = [key_of(a) for a in row.get("aliases", ())]
        assert len(set(keys)) == len(keys), row["name"]
        assert key_of(row["name"]) not in keys, row["name"]


def test_the_file_has_one_line_a_device():
    from kvroom.hardware.catalogue import _FILE

    lines = _FILE.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line.rstrip(",")) for line in lines if line.startswith('{"name": "')]
    devices = [row for row in rows if "sold_bytes" in row]
    assert [row["name"] for row in devices] == names()


@pytest.mark.parametrize(
    ("typed", "message", "fix"),
    [
        ("rtx 6000", "may be several cards", "RTX-6000-Ada, RTX-A6000"),
        ("v100", "may be several cards", "V100-SXM2-32"),
        ("mi300", "may be several cards", "MI300A"),
        ("24GB", "is a size, not a card", "memory_bytes"),
        ("48 GB", "is a size, not a card", "memory_bytes"),
        ("80G", "is a size, not a card", "memory_bytes"),
        ("H1000-SXM", "is not a known card", "H100-SXM"),
        ("rtx 4091", "is not a known card", "RTX-4090"),
        ("nonsense", "is not a known card", "memory_bytes"),
        ("", "is not a card's name", "memory_bytes"),
        (" \t", "is not a card's name", "memory_bytes"),
        ("x" * 5000, "is too long for a card's name", "memory_bytes"),
        ("-", "is not a known card", "memory_bytes"),
    ],
)
def test_unknown_names_say_what_to_write(typed, message, fix):
    with pytest.raises(KvroomError) as caught:
        find(typed)
    assert caught.value.field == "gpu"
    assert message in caught.value.message
    assert fix in caught.value.fix


def test_plain_card_of_the_explainer():
    card = find("80GB")
    assert card.sold_bytes == card.driver_bytes == card.visible_bytes == 80_000_000_000
    assert card.engine_bytes == card.catalogue_bytes == 80_000_000_000
    assert card.memory_bytes_per_s == 3.35e12
    assert "the explainer's plain card" in str(card.source("memory_bytes_per_s"))


# One public figure a line: what a driver, an engine or a vendor prints, and for which field.
@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("RTX-4090", "visible_bytes", 25_250_627_584),  # DESIGN: 24,564 MiB by the driver
        ("RTX-4090", "driver_bytes", 24_564 * 2**20),
        ("H100-SXM", "driver_bytes", 81_559 * 2**20),  # nvidia-smi
        ("H200-SXM", "driver_bytes", 143_771 * 2**20),
        ("H200-SXM", "visible_bytes", 143_156 * 2**20),  # PyTorch: total_memory=143156MB
        ("B200-SXM", "visible_bytes", 182_631 * 2**20),  # PyTorch: total_memory=182631MB
        ("A100-SXM-80", "visible_bytes", 81_151 * 2**20),  # llama.cpp: VRAM: 81151 MiB
        ("H20", "visible_bytes", 97_285 * 2**20),  # PyTorch: total_memory=97285MB
        ("V100-SXM2-32", "visible_bytes", 32_494 * 2**20),  # llama.cpp
        ("RTX-PRO-6000-BSE", "memory_bytes_per_s", 1.597e12),  # NVIDIA's server edition page
        ("RTX-PRO-6000", "memory_bytes_per_s", 1.792e12),  # NVIDIA's workstation edition page
        ("H100-SXM", "memory_bytes_per_s", 3.35e12),
        ("MI355X", "memory_bytes_per_s", 8e12),
        ("Apple-M3-Max", "visible_bytes", 98_304 * 2**20),  # llama.cpp: 103079.22 MB
        ("B300-SXM", "tdp_w", 1100.0),
        ("GB300", "tdp_w", 1400.0),
        ("T4", "compute_capability", "7.5"),
        ("H100-SXM", "sold_bytes", 80 * 10**9),
        ("Groq-LPU-v1", "sold_bytes", 230 * 10**6),
    ],
)
def test_public_figures(name, field, value):
    assert getattr(find(name), field) == value


@pytest.mark.parametrize(
    ("name", "dtype", "flops"),
    [
        ("H100-SXM", "bf16", 989.4e12),
        ("A100-SXM-80", "int8", 624e12),
        ("B300-SXM", "fp4", 13.5e15),  # HGX B300: 108 dense PFLOPS over 8 GPUs
        ("RTX-5090", "fp4", 1676e12),
        ("A100-SXM-80", "fp8", None),
        ("V100-SXM2-32", "bf16", 125e12),  # no bf16: fp16 stands in
        ("P40", "fp16", 11.76e12),  # fp16 is crippled there: fp32 stands in
        ("Apple-M1", "fp16", 2.6e12),  # F16 is neither faster nor slower than F32 on M1
        ("Apple-M5", "fp16", None),
        ("80GB", "bf16", None),
    ],
)
def test_dense_peaks(name, dtype, flops):
    assert find(name).flops(dtype) == flops


def test_links_are_one_direction():
    assert find("H100-SXM").scale_up.bytes_per_s == 450e9
    assert find("H100-SXM").host_link.bytes_per_s == 64e9
    assert find("L40S").scale_up is None
    assert find("L40S").peer_link.name == "PCIe 4.0 x16"
    assert find("Apple-M4-Max").host_link is None


def test_engine_bytes_says_what_it_fell_back_on():
    assert find("H200-SXM").engine_bytes_source.kind == "measured"
    nvl = find("H100-NVL")
    assert nvl.visible_bytes is None
    assert nvl.engine_bytes == nvl.driver_bytes - UNSEEN_BYTES
    assert "less what CUDA keeps back" in nvl.engine_bytes_source.text
    chip = find("TPU-v7-Ironwood")
    assert chip.engine_bytes == chip.sold_bytes
    assert "neither driver nor engine total is known" in chip.engine_bytes_source.text


@pytest.mark.parametrize("device", all_devices(), ids=lambda d: d.name)
def test_every_device_is_sane_and_round_trips(device):
    sizes = [b for b in (device.visible_bytes, device.driver_bytes) if b is not None]
    assert sizes == sorted(sizes)
    assert all(0.6 * device.sold_bytes < b <= 1.09 * device.sold_bytes for b in sizes)
    # sold by the decimal gigabyte, but for Google's chips, whose pages say GiB
    assert 0 in (device.sold_bytes % 10**6, device.sold_bytes % 2**30)
    assert Device.from_dict(json.loads(json.dumps(device.to_dict()))) == device
    assert pickle.loads(pickle.dumps(device)) == device
    assert hash(device) == hash(Device.from_dict(device.to_dict()))
    assert device.source("memory_bytes_per_s").text != "not stated"
    peaks = device.flops_per_s
    assert set(peaks) <= {"bf16", "fp16", "fp8", "fp4", "int8", "fp32"}
    if "bf16" in peaks and device.vendor not in ("amd", "google"):
        assert peaks.get("fp16", peaks["bf16"]) == peaks["bf16"]
    assert peaks.get("fp4", 1e20) >= peaks.get("fp8", 0) >= 0

"""Laws: any JSON gives a Device or a KvroomError; what is taken survives its plain form."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from kvroom.errors import KvroomError
from kvroom.hardware import Device, Machine, all_devices, device_from_dict, find, names, resolve

KEYS = st.sampled_from(
    [
        "name",
        "memory_bytes",
        "memory_bytes_per_s",
        "flops_per_s",
        "link_bytes_per_s",
        "host_link_bytes_per_s",
        "tiers",
    ]
)
LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
ANY = st.recursive(
    LEAF,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=8), inner, max_size=6)
    ),
    max_leaves=12,
)
SIZES = st.integers(1, 10**15)
RATES = st.floats(1.0, 1e18)
CARDS = st.fixed_dictionaries(
    {"name": st.text(min_size=1, max_size=20).filter(str.strip), "memory_bytes": SIZES}
    | {"memory_bytes_per_s": RATES},
    optional={
        "flops_per_s": st.dictionaries(st.sampled_from(["bf16", "fp8", "fp4", "int8"]), RATES),
        "link_bytes_per_s": RATES | st.none(),
        "host_link_bytes_per_s": RATES | st.none(),
    },
)


def taken(value):
    try:
        device = resolve(value)
    except KvroomError as error:
        assert error.field.startswith("gpu")
        assert error.fix
        json.dumps(error.as_dict(), allow_nan=False)
        return None
    assert isinstance(device, Device)
    return device


@given(ANY)
@example({"name": "x", "memory_bytes": 10**300, "memory_bytes_per_s": 10**400})
@example({"name": "x", "memory_bytes": 1, "memory_bytes_per_s": 1, "flops_per_s": {"bf16": {}}})
@example({5: 1})
def test_any_value_is_a_device_or_a_told_error(value):
    taken(value)


@given(CARDS, KEYS, LEAF)
def test_a_card_with_one_key_changed(card, key, leaf):
    taken({**card, key: leaf})


@given(CARDS)
def test_cards_are_taken_and_round_trip(card):
    device = device_from_dict(card)
    assert device.engine_bytes == device.catalogue_bytes == card["memory_bytes"]
    assert Device.from_dict(json.loads(json.dumps(device.to_dict()))) == device
    machine = Machine.standard(device, 4)
    assert Machine.from_dict(json.loads(json.dumps(machine.to_dict()))) == machine


@given(st.text(max_size=40))
def test_any_name_is_found_or_told(text):
    if not text.strip().lower().endswith((".json", ".toml")):
        taken(text)


@given(st.sampled_from(names()), st.randoms(use_true_random=False))
def test_spelling_does_not_matter(name, random):
    typed = "".join(random.choice((c.lower(), c.upper())) for c in name)
    typed = typed.replace("-", random.choice(("-", "_", " ", "")))
    assert find(typed) is find(name)


def test_sizes_are_ordered():
    for device in all_devices():
        seen, told = device.visible_bytes, device.driver_bytes
        assert seen is None or told is None or seen <= told, device.name
        assert device.engine_bytes <= 1.08 * device.sold_bytes, device.name

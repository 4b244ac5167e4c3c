"""What serves it: devices, their memory, links and tiers.

``resolve`` takes whatever a Scenario's ``gpu`` holds; ``find`` takes a catalogue name.
"""

from kvroom.hardware.catalogue import all_devices, find, names
from kvroom.hardware.device import Device, Link, Source, Tier
from kvroom.hardware.node import Machine
from kvroom.hardware.reader import device_from_dict, load_machine, resolve, resolve_machine

__all__ = [
    "Device",
    "Link",
    "Machine",
    "Source",
    "Tier",
    "all_devices",
    "device_from_dict",
    "find",
    "load_machine",
    "names",
    "resolve",
    "resolve_machine",
]

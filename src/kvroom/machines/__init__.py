"""What serves it: devices, their memory, links and tiers.

``resolve`` takes whatever a Scenario's ``gpu`` holds; ``find`` takes a catalogue name.
"""

from kvroom.machines.catalogue import all_devices, find, names
from kvroom.machines.machine import Machine
from kvroom.machines.reader import device_from_dict, load_machine, resolve, resolve_machine
from kvroom.machines.spec import Device, Link, Source, Tier

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

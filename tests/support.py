"""What several tests need: a question asked in one line, an explanation's numbers computed again."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

from kvroom.answer.plan import Plan
from kvroom.errors import KvroomError
from kvroom.planner.plan import Workings, work
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec

ROOT = Path(__file__).resolve().parents[1]
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
SIGNS = str.maketrans({"×": "*", "−": "-", "⌊": "(floor(", "⌋": "))"})


def asked(model: Any = "llama-3-70b", gpu: Any = "80GB", **keys: Any) -> Workings:
    """The workings of one question, of the arithmetic engine unless said otherwise."""
    return work(Scenario.from_dict({"engine": "arithmetic", **keys, "model": model, "gpu": gpu}))


def ask(model: Any = "llama-3-70b", gpu: Any = "80GB", **keys: Any) -> Plan:
    """The Plan of one question."""
    return asked(model, gpu, **keys).plan


def evaluated(numbers: str) -> Fraction:
    """What an explanation's ``numbers`` come to, exactly."""
    plain = THOUSANDS.sub("", numbers).translate(SIGNS)
    exact = NUMBER.sub(lambda n: f"F('{n[0]}')", plain)
    return Fraction(eval(exact, {"F": Fraction, "floor": math.floor, "min": min}))


def check_told(error: KvroomError) -> None:
    """An error says which field, what was given, why not in one sentence, and what to do."""
    assert isinstance(error.field, str)
    assert error.field.strip()
    for sentence in (error.message, error.fix):
        assert sentence.strip()
        assert sentence.isprintable()
    assert not error.message.endswith(".")
    assert len(str(error)) < 1400
    assert str(error).isprintable()
    told = error.as_dict()
    assert set(told) == {"field", "value", "message", "fix"}
    json.dumps(told, allow_nan=False, ensure_ascii=False).encode()
    codec.encode(told)


def from_file(place: str) -> ModuleType:
    """A script of the repository as a module."""
    path = ROOT / place
    spec = importlib.util.spec_from_file_location(f"_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module

"""What people name a model by → ModelSpec: a value, a path, a catalogue name, a hub id.

``{"config": {…}}`` is a config by value. A path leads to a ``config.json``, a folder with one, a
``.gguf``, a ``.safetensors`` or a ``model.safetensors.index.json``. Everything else is a name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError, check_spelling, did_you_mean, nearest
from kvroom.models import catalogue, hf, names, weight_dtypes
from kvroom.models.files import MAX_JSON_BYTES, Stamp, decode, read_bytes, read_json, stamp
from kvroom.models.spec import ModelSpec

HubReader = Callable[[str], Mapping[str, Any]]
"""A hub id → its decoded ``config.json``."""
_HUB: ContextVar[HubReader | None] = ContextVar("hub", default=None)

_CACHED = 256
_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_PATH = re.compile(r"[/~.].*|.*(\.json|\.gguf|\.safetensors|/)", re.IGNORECASE | re.DOTALL)
INDEX = "model.safetensors.index.json"
HF_QUANT = "hf_quant_config.json"


def ask(hub: HubReader | None) -> None:
    """From here on ``load`` asks ``hub``, as a process that does nothing else wants it."""
    _HUB.set(hub)


@contextmanager
def asking(hub: HubReader | None) -> Iterator[None]:
    """While it is open ``load`` asks ``hub`` for an id that the catalogue does not hold (None: it does not).

    It holds for this thread's context only, so that one caller's hub is not another's.
    """
    token = _HUB.set(hub)
    try:
        yield
    finally:
        _HUB.reset(token)


def load(model: object, *, paths: bool = True) -> ModelSpec:
    """The model that a person named; KvroomError on ``model`` (or the config's key) if there is none.

    Without ``paths`` only values and names are taken, and no file is touched (a server's rule).
    Readings are cached by content, or by path, time and size.
    """
    if isinstance(model, Mapping):
        return _by_value(model)
    if not isinstance(model, str) or not model.strip():
        fix = "Give a name (llama-3-70b), a path, or an object with a config."
        raise KvroomError("model", model, "names no model", fix)
    name = model.strip()
    if paths:
        by_path = _as_path(name)
        if by_path is not None:
            return by_path
        if _PATH.fullmatch(name):
            by_name = _as_written(name) if not name.endswith((".json", ".safetensors")) else None
            if by_name is not None:
                note = f"{name} is not here: taken for {by_name.name} by its name"
                return replace(by_name, warnings=(*by_name.warnings, note))
            raise KvroomError(
                "model",
                name,
                "is not there",
                "Give the path of a config.json, or a model's name (--model NAME).",
            )
    return _by_name(name, ask_hub=paths)


def with_overrides(
    model: object, overrides: Mapping[str, Any], *, paths: bool = True
) -> ModelSpec | None:
    """``load`` with keys of the config replaced, inner objects key by key; None where the model is no
    config that can be had (a file of weights, a hub's id)."""
    config, reading = config_of(model, paths=paths)
    if not isinstance(config, Mapping):
        return None
    check_spelling("overrides", overrides, tuple(config))
    spec = _by_value({"config": _merged(config, overrides)})
    if reading is not None:
        spec = _stored_as(spec, reading, str(model))
    return spec if isinstance(model, Mapping) else replace(spec, name=load(model, paths=paths).name)


def config_of(
    model: object, *, paths: bool = True
) -> tuple[Mapping[str, Any] | None, names.NameReading | None]:
    """The config behind what a person named, and how its name was read where it is the catalogue's in
    other words; None where it is no config that can be had (a file of weights, a hub's id)."""
    if isinstance(model, Mapping):
        return model.get("config"), None
    if not isinstance(model, str):
        return None, None
    if paths and _as_path(model.strip()) is not None:
        path = Path(model.strip()).expanduser()
        file = path / "config.json" if path.is_dir() else path
        return (read_json(file) if file.suffix == ".json" and file.is_file() else None), None
    try:
        return catalogue.config_of(model), None
    except KvroomError:
        reading = read_name(model)
        return (catalogue.config_of(reading.name) if reading else None), reading


def _merged(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(config)
    for key, value in overrides.items():
        inner = merged.get(key)
        if isinstance(inner, Mapping) and isinstance(value, Mapping) and key != "rope_scaling":
            merged[key] = _merged(inner, value)
        else:
            merged[key] = value
    return merged


def _by_value(model: Mapping[str, Any]) -> ModelSpec:
    for key in model:
        if key != "config":
            wrap = 'Write {"config": {…}}, the config.json inside.'
            raise KvroomError("model", key, "is no key of a model given by value", wrap)
    config = model.get("config")
    if not isinstance(config, Mapping):
        fix = "Put the content of a config.json there."
        raise KvroomError("model", config, "is not a config object", fix)
    try:
        text = json.dumps(config, sort_keys=True)
    except RecursionError:
        raise KvroomError("model", "config", "is nested too deeply", "Give a plain one.") from None
    except (TypeError, ValueError) as error:
        raise KvroomError(
            "model", "config", f"is not JSON ({error})", "Give a plain one."
        ) from None
    if len(text) > MAX_JSON_BYTES:
        fix = "Give the model's config.json."
        raise KvroomError("model", "config", f"is {len(text):,} characters long", fix)
    return _from_text(text)


@lru_cache(maxsize=_CACHED)
def _from_text(text: str) -> ModelSpec:
    return replace(_read(decode(text, "config")), source="config")


def _read(config: Mapping[str, Any]) -> ModelSpec:
    try:
        return hf.read(config)
    except RecursionError:
        raise KvroomError("model", "config", "is nested too deeply", "Give a plain one.") from None


def _as_path(name: str) -> ModelSpec | None:
    """The model at that path; None where there is nothing, or a folder that only shares the name."""
    path = Path(name)
    try:
        path = path.expanduser()
        there, folder = path.exists(), path.is_dir()
    except (OSError, ValueError, RuntimeError):
        return None
    if not there:
        return None
    if not folder:
        return _file(path)
    if (path / "config.json").exists():
        return _file(path / "config.json")
    if (path / INDEX).exists():
        return _file(path / INDEX)
    if not _PATH.fullmatch(name):
        return None
    try:
        ggufs = sorted(p.name for p in path.iterdir() if p.suffix == ".gguf")
    except OSError:
        ggufs = []
    fix = (
        f"Give the file itself: {path / ggufs[0]}."
        if ggufs
        else "Put the model's config.json there."
    )
    raise KvroomError("model", name, "is a folder without a config.json", fix)


def _file(path: Path) -> ModelSpec:
    beside: tuple[Stamp, ...] = ()
    if path.name in ("config.json", INDEX) or path.suffix == ".safetensors":
        names = ("config.json", HF_QUANT, INDEX, "model.safetensors")
        near = (path.parent / name for name in names)
        beside = tuple(stamp(p) for p in near if p != path and p.is_file())
    return _read_file(stamp(path, "model's config.json"), beside)


@lru_cache(maxsize=_CACHED)
def _read_file(file: Stamp, beside: tuple[Stamp, ...]) -> ModelSpec:
    path = Path(file[0])
    head = read_bytes(path, 4)
    if path.suffix.lower() == ".gguf" or head in (b"GGUF", b"FUGG"):
        from kvroom.models import gguf

        return gguf.read(path)
    if path.suffix == ".safetensors" or path.name.endswith(".safetensors.index.json"):
        return _weights_file(path)
    config = read_json(path)
    if "weight_map" in config:
        return _weights_file(path)
    near = {Path(s[0]).name: Path(s[0]) for s in beside}
    if HF_QUANT in near and "quantization_config" not in config:
        config = with_hf_quant(config, read_json(near[HF_QUANT], HF_QUANT))
    spec = _read(config)
    if path.name != "config.json":
        hub_id = config.get("_name_or_path")
        name = hub_id if isinstance(hub_id, str) and hub_id else path.stem
        return _doubted(replace(spec, name=name, source="config"), path.stem)
    folder = path.resolve().parent.name
    spec = _doubted(replace(spec, name=folder or spec.name, source="config"), folder)
    weights = near.get(INDEX) or near.get("model.safetensors")
    return _with_bytes(spec, weights) if weights else spec


_NARROW = re.compile(r"NVFP4|MXFP4|FP[48]|AWQ|GPTQ|INT[48]|W[48]A\d+|[48]-?bit", re.IGNORECASE)


def _doubted(spec: ModelSpec, name: str) -> ModelSpec:
    """A warning where the name speaks of a narrow checkpoint and the config does not."""
    width = _NARROW.search(name)
    if width is None or spec.quantisation is not None:
        return spec
    warning = (
        f"the name says {width[0]} but the config states no quantisation: weights are counted as "
        f"{spec.dtype}; give weight_dtype, or put {HF_QUANT} beside the config"
    )
    return replace(spec, warnings=(*spec.warnings, warning))


def with_hf_quant(config: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """The config with what modelopt wrote into ``hf_quant_config.json`` as its quantisation."""
    inner = said.get("quantization", said)
    if not isinstance(inner, Mapping):
        fix = "Write it as modelopt does, an object, or take the file away."
        raise KvroomError("quantization", inner, f"of {HF_QUANT} is not an object", fix)
    return {**config, "quantization_config": {"quant_method": "modelopt", **inner}}


def _weights_file(path: Path) -> ModelSpec:
    """Structure from the ``config.json`` beside a safetensors file or index, sizes from itself."""
    config = path.parent / "config.json"
    if not config.is_file():
        fix = f"Put the model's config.json beside it, in {path.resolve().parent}."
        raise KvroomError("model", str(path), "tells sizes but not the model's structure", fix)
    spec = _file(config)
    return replace(_with_bytes(spec, path), source="safetensors header")


def _with_bytes(spec: ModelSpec, weights: Path) -> ModelSpec:
    from kvroom.models import safetensors

    stated = safetensors.loaded_bytes(spec, weights)
    warnings = (*spec.warnings, *stated.warnings)
    return replace(spec, file_bytes=stated.nbytes, warnings=warnings)


def _by_name(name: str, *, ask_hub: bool) -> ModelSpec:
    """A catalogue entry, else what the hub says where it may be asked."""
    try:
        return catalogue.find(name)
    except KvroomError as error:
        if error.field != "model":
            raise
    names_known = catalogue.names()
    hub = _HUB.get()
    if _HUB_ID.fullmatch(name) and hub is not None and ask_hub:
        try:
            return replace(_by_value({"config": hub(name)}), name=name)
        except KvroomError:
            as_written = _as_written(name)
            if as_written is None:
                raise
            return as_written
    as_written = _as_written(name)
    if as_written is not None:
        return as_written
    if _HUB_ID.fullmatch(name):
        near = nearest(name, names_known)
        fix = f"Did you mean {' or '.join(near)}? If not, give" if near else "Give"
        raise KvroomError(
            "model",
            name,
            "is not in the catalogue",
            f"{fix} its config.json, or run pip install kvroom[hub] to ask the hub.",
        )
    otherwise = "See `kvroom models`, or give the path of a config.json."
    raise KvroomError(
        "model", name, "is no known model", did_you_mean(name, names_known, otherwise)
    )


def read_name(text: str) -> names.NameReading | None:
    """The catalogue's model that a name with owner, path, date or width around it means, if any."""
    return names.read(text, catalogue.known)


def _as_written(text: str) -> ModelSpec | None:
    """The catalogue's model inside such a name, with its weights as the name says.

    A width that the model's own checkpoint has already (gpt-oss's MXFP4) changes nothing.
    """
    reading = read_name(text)
    if reading is None:
        return None
    return _stored_as(catalogue.find(reading.name), reading, text)


def _stored_as(spec: ModelSpec, reading: names.NameReading, text: str) -> ModelSpec:
    """The model with its weights as the words around its name say, and that said."""
    if reading.words is None:
        return spec
    width, warnings = reading.weight_dtype, [f"{text}: {reading.words}"]
    own = spec.quantisation.name if spec.quantisation else spec.dtype
    rule = spec.quantisation
    if width is not None and not own.startswith(width.partition("_")[0]):
        try:
            rule = weight_dtypes.named(width, spec)
        except KvroomError:
            warnings.append(f"no width called {width} is known: weights are counted as {own}")
    if rule is not None and reading.cache_dtype is not None:
        rule = replace(rule, kv_dtype=reading.cache_dtype)
    return replace(spec, quantisation=rule, warnings=(*spec.warnings, *warnings))

"""Flags that change what is loaded, as vLLM and SGLang have them: overrides of the config, weights in host
memory.

What of them is not followed is said: a file of options, overrides of a config that is not at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.engines import flags as read
from kvroom.engines.base import Engine
from kvroom.errors import KvroomError
from kvroom.models.load import load, with_overrides
from kvroom.models.spec import ModelSpec
from kvroom.scenario.offload import unfollowed
from kvroom.units import GIB

PARTITIONS = ("vllm_pp_layer_partition", "sglang_pp_layer_partition")
_OVERRIDES = ("hf_overrides", "json_model_override_args")


def _given(engine: Engine, args: Mapping[str, Any]) -> dict[str, Any]:
    if not engine.takes_overrides:
        return {}
    return read.plain_args(args)


def host_weight_bytes(engine: Engine, args: Mapping[str, Any]) -> int:
    """Bytes of each GPU's weights that ``cpu_offload_gb`` (GiB) keeps in host memory."""
    given = _given(engine, args).get("cpu_offload_gb", 0)
    return round(read.fraction("engine_args.cpu_offload_gb", given, 1e6) * GIB)


def stage_layers(
    engine: Engine, args: Mapping[str, Any], model: ModelSpec, pp: int
) -> tuple[int, ...]:
    """Layers of each pipeline stage that ``*_PP_LAYER_PARTITION`` states; () where it does not.

    KvroomError where they are not as many as stages, or not the model's layers in all.
    """
    given = _given(engine, args)
    name = next((partition for partition in PARTITIONS if given.get(partition)), None)
    if name is None:
        return ()
    counts = read.counts(f"engine_args.{name}", given[name])
    if len(counts) != pp or sum(counts) != model.num_layers:
        raise KvroomError(
            f"engine_args.{name}",
            given[name],
            f"is not {pp} counts that add up to {model.num_layers} layers",
            "Write one count a pipeline stage, such as 20,12.",
        )
    return counts


def model_of(model: object, engine: Engine, args: Mapping[str, Any], *, paths: bool) -> ModelSpec:
    """The model with the config's keys that the flags replace; KvroomError as ``load`` raises."""
    keys = _config_keys(engine, args)
    found = with_overrides(model, keys, paths=paths) if keys else None
    return found or load(model, paths=paths)


def notes(
    model: object, engine: Engine, args: Mapping[str, Any], *, paths: bool
) -> tuple[str, ...]:
    """What of these flags is not followed."""
    given, made = _given(engine, args), []
    if given.get("config"):
        made.append(
            f"{str(given['config'])[:80]} is not read: its options may bear on memory (config)"
        )
    if connector := unfollowed(args):
        made.append(f"kv_transfer_config: {connector} is not followed (give the tier: --tier)")
    keys = _config_keys(engine, args)
    if keys and with_overrides(model, keys, paths=paths) is None:
        made.append(
            f"{', '.join(keys)[:80]} of the config cannot be replaced here: give the model as a "
            "config.json with them in it"
        )
    if host_weight_bytes(engine, args):
        made.append(
            "weights in host memory (cpu_offload_gb) are read over the host link in each step: the "
            "times do not count that"
        )
    return tuple(made)


def _config_keys(engine: Engine, args: Mapping[str, Any]) -> dict[str, Any]:
    given = _given(engine, args)
    keys: dict[str, Any] = {}
    for name in _OVERRIDES:
        if name in given:
            keys |= read.mapping(f"engine_args.{name}", given[name])
    if given.get("rope_scaling"):
        keys["rope_scaling"] = dict(read.mapping("engine_args.rope_scaling", given["rope_scaling"]))
    for key in keys:
        if key in ("architectures", "model_type"):
            fix = "Name the model that it then is, or give its config.json."
            raise KvroomError(
                f"engine_args.hf_overrides.{key}", keys[key], "changes the model", fix
            )
    return keys

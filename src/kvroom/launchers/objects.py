"""A plan as a manifest: compose, Kubernetes, KServe, llm-d, a Dynamo graph, Ray Serve.

Each begins with the comment that holds what it does not say, and reads back to the same Scenario.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from kvroom.errors import KvroomError
from kvroom.hardware import catalogue
from kvroom.launchers import helm
from kvroom.launchers.launch import Launch, machine_words, one_of, shell, spreads, stated_rest
from kvroom.units import ceil_div

SHARED_MEMORY = "16Gi"
"""What tensor-parallel ranks exchange through, on one machine."""
STARTUP_TRIES = 180
"""Probes, ten seconds apart, that a server has to load its weights."""
_PARALLEL = {
    "--tensor-parallel-size": "tensor", "--pipeline-parallel-size": "pipeline",
    "--data-parallel-size": "data",
}  # fmt: skip


def manifest(start: Launch, form: str) -> str:
    """The text of ``form``; KvroomError where the engine has no such object."""
    value = FORMS[form](start)
    notes = list(start.notes)
    if start.machines > 1 and form == "compose":
        notes.append(one_of(start.machines, _cards(start)))
    return "\n".join([*(f"# {note}" for note in notes), stated_rest(start), helm.yaml(value)])


def manifests(start: Launch) -> tuple[dict[str, str], dict[str, KvroomError]]:
    """(the text of every form that the engine has, why there are no others)."""
    texts: dict[str, str] = {}
    refused: dict[str, KvroomError] = {}
    for form in FORMS:
        try:
            texts[form] = manifest(start, form)
        except KvroomError as error:
            refused[form] = error
    return texts, refused


def _cards(start: Launch) -> int:
    """The cards of one machine of the start."""
    return ceil_div(start.scenario.gpu_count, start.machines)


def _image(start: Launch) -> str:
    version = start.scenario.engine_version
    return f"{start.command.default_image}:{f'v{version}' if version else 'latest'}"


def _name(start: Launch) -> str:
    model = start.scenario.model if isinstance(start.scenario.model, str) else "model"
    return re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower()).strip("-")[:50] or "model"


def _words(start: Launch) -> tuple[list[str], list[str]]:
    """(command, arguments) of the container: the program and its flags, or a shell that writes files."""
    if start.files or start.after:
        code = [line for line in shell(start).splitlines() if not line.startswith("#")]
        return ["/bin/sh", "-c"], ["\n".join(code)]
    return list(start.program), start.flag_words


def _resource(start: Launch) -> str:
    gpu = start.scenario.gpu
    try:
        vendor = catalogue.find(gpu).vendor if isinstance(gpu, str) else "nvidia"
    except KvroomError:
        vendor = "nvidia"
    return "amd.com/gpu" if vendor == "amd" else "nvidia.com/gpu"


def _environment(start: Launch) -> list[dict[str, str]]:
    return (
        [{"name": key, "value": value} for key, value in start.env.items()]
        if not _shelled(start)
        else []
    )


def _shelled(start: Launch) -> bool:
    """Whether a shell within the container sets the variables itself."""
    return bool(start.files or start.after)


def _compose(start: Launch) -> dict[str, Any]:
    command, arguments = _words(start)
    device = {"driver": "nvidia", "count": _cards(start), "capabilities": ["gpu"]}
    service: dict[str, Any] = {
        "image": _image(start),
        "entrypoint": command,
        "command": arguments,
        "ports": [f"{start.command.port}:{start.command.port}"],
        "ipc": "host",
        "healthcheck": {
            "test": [
                "CMD",
                "curl",
                "-f",
                f"http://localhost:{start.command.port}{start.command.health}",
            ],
            "interval": "10s",
            "start_period": f"{10 * STARTUP_TRIES}s",
        },
        "deploy": {"resources": {"reservations": {"devices": [device]}}},
    }
    if start.env and not _shelled(start):
        service["environment"] = dict(start.env)
    return {"services": {_name(start): service}}


def _kubernetes(start: Launch) -> dict[str, Any]:
    command, arguments = _words(start)
    port = start.command.port
    probe = {"httpGet": {"path": start.command.health, "port": port}, "periodSeconds": 10}
    container: dict[str, Any] = {
        "name": start.command.engine.replace(".", "-"),
        "image": _image(start),
        "command": command,
        "args": arguments,
        "env": _environment(start),
        "ports": [{"containerPort": port}],
        "startupProbe": {**probe, "failureThreshold": STARTUP_TRIES},
        "readinessProbe": probe,
        "resources": {"limits": {_resource(start): _cards(start)}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    labels = {"app": _name(start)}
    if start.machines > 1:
        if not spreads(start) or _shelled(start):
            label, version = start.command.label, start.scenario.engine_version or ""
            why = f"spreads no {label} {version}".rstrip() + f" over {start.machines} machines"
            fix = "Take a layout of one machine, or a newer release of the engine."
            raise KvroomError("--format", "kubernetes", why, fix)
        return _leader_worker_set(start, container)
    pod = _pod(container)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": _name(start)},
        "spec": {
            "replicas": start.scenario.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _pod(container: dict[str, Any]) -> dict[str, Any]:
    memory = {"medium": "Memory", "sizeLimit": SHARED_MEMORY}
    return {"containers": [container], "volumes": [{"name": "shm", "emptyDir": memory}]}


def _leader_worker_set(start: Launch, container: dict[str, Any]) -> dict[str, Any]:
    """One replica on several machines: the first answers, the others follow it."""

    def spread(*, follower: bool) -> list[str]:
        words = machine_words(
            start, "$(LWS_LEADER_ADDRESS)", "$(LWS_WORKER_INDEX)", follower=follower
        )
        return [part for word in words for part in word.split(" ", 1)]

    probes = ("ports", "startupProbe", "readinessProbe")
    worker = {key: value for key, value in container.items() if key not in probes}
    leader = {**container, "args": [*container["args"], *spread(follower=False)]}
    worker["args"] = [*container["args"], *spread(follower=True)]
    template = {
        "size": start.machines,
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": {"metadata": {"labels": {"role": "leader"}}, "spec": _pod(leader)},
        "workerTemplate": {"spec": _pod(worker)},
    }
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": _name(start)},
        "spec": {"replicas": start.scenario.replicas, "leaderWorkerTemplate": template},
    }


def _parallel_flags(start: Launch, form: str) -> tuple[str, dict[str, int], bool, list[str]]:
    """(model, sizes of the parallelism, whether experts are parallel, other flags) of a start."""
    if not start.command.platform_program or start.files:
        raise KvroomError(
            "--format", form, f"serves no {start.command.label}", "Use --format kubernetes."
        )
    sizes: dict[str, int] = {}
    arguments: list[str] = []
    experts = False
    for flag, *values in start.flags:
        if flag in _PARALLEL and values:
            sizes[_PARALLEL[flag]] = int(values[0])
        elif flag == "--enable-expert-parallel":
            experts = True
        else:
            arguments += [flag, *values]
    return start.program[-1], sizes, experts, arguments


def _address(model: str, form: str) -> str:
    """The model's address on the hub; KvroomError for a path."""
    if model.startswith(("/", ".")) or model.endswith(".gguf"):
        fix = "Give the model's hub id, or use --format kubernetes."
        raise KvroomError("--format", form, f"takes a model of the hub, not {model}", fix)
    return f"hf://{model}"


def _kserve(start: Launch) -> dict[str, Any]:
    model, sizes, experts, arguments = _parallel_flags(start, "kserve")
    container: dict[str, Any] = {
        "name": "main",
        "image": _image(start),
        "args": arguments,
        "env": _environment(start),
        "resources": {"limits": {_resource(start): _cards(start)}},
    }
    spec: dict[str, Any] = {
        "model": {"uri": _address(model, "kserve"), "name": model},
        "replicas": start.scenario.replicas,
        "parallelism": {
            **sizes,
            **_local(start, "kserve"),
            **({"expert": True} if experts else {}),
        },
        "template": {"containers": [container]},
    }
    if start.machines > 1:
        spec["worker"] = {"containers": [container]}
    return {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "LLMInferenceService",
        "metadata": {"name": _name(start)},
        "spec": spec,
    }


def _local(start: Launch, form: str) -> dict[str, int]:
    """How a start's ranks are spread over its machines; KvroomError for a way that ``form`` has not."""
    scenario, machines = start.scenario, start.machines
    if machines == 1:
        return {}
    if scenario.dp >= machines and scenario.dp % machines == 0:
        return {"dataLocal": scenario.dp // machines}
    if scenario.pp == machines:
        return {}
    fix = "Use --format kubernetes, or stages or data-parallel ranks a machine."
    why = f"spreads no tp {scenario.tp} over {machines} machines"
    raise KvroomError("--format", form, why, fix)


def _llm_d(start: Launch) -> dict[str, Any]:
    model, sizes, experts, arguments = _parallel_flags(start, "llm-d")
    if experts:
        arguments = [*arguments, "--enable-expert-parallel"]
    container: dict[str, Any] = {
        "name": start.scenario.engine,
        "image": _image(start),
        "modelCommand": "vllmServe",
        "args": arguments,
        "env": _environment(start),
        "resources": {"limits": {_resource(start): _cards(start)}},
    }
    spread = _local(start, "llm-d")
    if start.machines > 1 and not spread:
        spread = {"workers": start.machines}
    decode = {
        "parallelism": {**sizes, **spread},
        "replicas": start.scenario.replicas,
        "containers": [container],
    }
    multinode = {"multinode": True} if start.machines > 1 else {}
    return {
        **multinode,
        "modelArtifacts": {"uri": _address(model, "llm-d"), "name": model},
        "decode": decode,
        "prefill": {"create": False},
    }


def _dynamo(start: Launch) -> dict[str, Any]:
    workers = (
        program[-1] for program in start.command.programs if program[-1].startswith("dynamo.")
    )
    module = next(workers, None) if start.command.joiner == "-" else None  # else its flags differ
    if module is None or start.files:
        why = f"starts no {start.command.label} by the flags of its own command"
        raise KvroomError("--format", "dynamo", why, "Use --format kubernetes.")
    image = f"nvcr.io/nvidia/ai-dynamo/{start.command.engine}-runtime:latest"
    arguments = [] if start.command.model_flag else ["--model", start.program[-1]]
    arguments += start.flag_words
    container = {"image": image, "command": ["python3", "-m", module], "args": arguments}
    worker = {
        "componentType": "worker",
        "replicas": start.scenario.replicas,
        "resources": {"limits": {"gpu": str(_cards(start))}},
        **({"multinode": {"nodeCount": start.machines}} if start.machines > 1 else {}),
        "sharedMemory": {"size": SHARED_MEMORY},
        "envs": _environment(start),
        "extraPodSpec": {"mainContainer": container},
    }
    front = {
        "componentType": "frontend",
        "replicas": 1,
        "extraPodSpec": {"mainContainer": {"image": image}},
    }
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": _name(start)},
        "spec": {"services": {"Frontend": front, "Worker": worker}},
    }


def _ray(start: Launch) -> dict[str, Any]:
    _parallel_flags(start, "ray-serve")
    options: dict[str, Any] = {}
    for flag, *values in start.flags:
        name = flag.removeprefix("--").replace("-", "_")
        if name in start.command.names.lists:
            options[name] = [_scalar(value) for value in values]
        elif not values:
            options[name.removeprefix("no_")] = not name.startswith("no_")
        else:
            options[name] = _scalar(values[0])
    loading = {"model_id": _name(start), "model_source": start.program[-1]}
    scaling = {"min_replicas": start.scenario.replicas, "max_replicas": start.scenario.replicas}
    config: dict[str, Any] = {
        "model_loading_config": loading,
        "deployment_config": {"autoscaling_config": scaling},
        "engine_kwargs": options,
    }
    if start.env:
        config["runtime_env"] = {"env_vars": dict(start.env)}
    application = {
        "name": "llm",
        "route_prefix": "/",
        "import_path": "ray.serve.llm:build_openai_app",
        "args": {"llm_configs": [config]},
    }
    return {"applications": [application]}


def _scalar(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


FORMS: dict[str, Callable[[Launch], dict[str, Any]]] = {
    "compose": _compose, "kubernetes": _kubernetes, "kserve": _kserve, "llm-d": _llm_d, "dynamo": _dynamo,
    "ray-serve": _ray,
}  # fmt: skip

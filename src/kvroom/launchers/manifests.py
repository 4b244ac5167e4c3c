"""Commands within a manifest: Kubernetes objects, compose files, values of Helm charts, KServe, llm-d,
Dynamo graphs, Ray Serve. Each container becomes the words of a ``docker run``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from kvroom.engines.command_line import CommandLine
from kvroom.engines.registry import command_lines
from kvroom.errors import KvroomError
from kvroom.launchers.launched import (
    Launched,
    card,
    flags,
    gpu_count,
    line_of,
    listed,
    machine_count,
    replica_count,
    word,
)
from kvroom.launchers.serving_objects import chart_tiers, modelservice, serving_pools, serving_words
from kvroom.launchers.shell.words import substituted, words_of
from kvroom.launchers.task_files import configs_of, instance, task_cards, task_words, workspace
from kvroom.launchers.yaml_documents import yaml_documents

_FIRST = re.compile(r"(?:---\s*|[\w.\"'-]+[ ]*:(?:\s.*)?|-[ ].*|\{.*)")
_REFERENCE = re.compile(r"\$\((\w+)\)")
_INSTANCE = "node.kubernetes.io/instance-type"
_INNER = ("serveConfigV2",)
"""Keys whose text is a manifest of its own."""


def is_manifest(text: str) -> bool:
    """Whether ``text`` begins as YAML or JSON does, and not as a command."""
    lines = (line for line in text.splitlines() if line.strip() and line.strip()[0] != "#")
    return _FIRST.fullmatch(next(lines, "")) is not None


Configs = Mapping[str, dict[str, Any]]
"""Options of engines by the name of the object that holds them."""


def manifest_launches(text: str) -> Iterator[Launched]:
    """What each container of a manifest runs; KvroomError where it cannot be read."""
    documents = list(yaml_documents(text))
    configs = configs_of(documents)
    for document in documents:
        yield from _launches(document, Launched([]), configs)


def _launches(value: Any, around: Launched, configs: Configs) -> Iterator[Launched]:
    """Every container below ``value``; ``around`` holds the line and the cards of what it stands in."""
    if isinstance(value, list):
        for item in value:
            yield from _launches(item, around, configs)
    elif isinstance(value, dict):
        yield from _object(value, _within(value, around), configs)


def _within(value: Mapping[str, Any], around: Launched) -> Launched:
    places = [value, *(value.get(k) for k in ("nodeSelector", "labels", "nodeLabels"))]
    named = next((c for place in places if isinstance(place, dict) and (c := card(place))), None)
    count = gpu_count(value)
    asked = task_cards(value)
    machine = next(
        (
            found
            for place in places
            if isinstance(place, dict) and (found := instance(place.get(_INSTANCE)))
        ),
        None,
    )
    if asked is not None:
        named, count = asked
    elif machine is not None:
        named = named or machine[0]
    return replace(
        around,
        line=line_of(value, around.line),
        gpu=named or around.gpu,
        gpus=around.gpus if count is None else count,
        replicas=replica_count(value) or around.replicas,
        machines=machine_count(value) or around.machines,
    )


def _group(value: Mapping[str, Any], here: Launched, configs: Configs) -> Iterator[Launched]:
    """The machines of a LeaderWorkerSet: its first, and the others that follow it."""
    leader, worker = value.get("leaderTemplate"), value.get("workerTemplate")
    known = {"LWS_GROUP_SIZE": str(here.machines), "LWS_WORKER_INDEX": "0"}
    for template, follows in ((leader, False), (worker, leader is not None)):
        for launched in _launches(template, replace(here, follows=follows), configs):
            words = [
                _REFERENCE.sub(lambda m: known.get(m[1], m[0]), word) for word in launched.words
            ]
            yield replace(launched, words=[substituted(word, known) for word in words])


def _object(value: Mapping[str, Any], here: Launched, configs: Configs) -> Iterator[Launched]:
    if isinstance(value.get("workerTemplate"), dict) and "size" in value:
        yield from _group(value, here, configs)
    elif (preset := workspace(value, configs)) is not None:
        words, cards = preset
        gpu, gpus = cards or (here.gpu, here.gpus)
        yield replace(here, words=words, gpu=gpu, gpus=gpus)
    elif (command := _charted(value)) is not None:
        yield replace(here, words=_chart(value, command))
    elif pools := modelservice(value):
        for part, container, words in pools:
            inside = _within(container, _within(part, here))
            yield replace(inside, words=["env", *_pairs(container), *words])
    elif (served := serving_words(value)) is not None:
        for pool, pool_words in serving_pools(value):
            yield replace(_within(pool, here), words=pool_words)
        template = value.get("template")
        inside = _within(template, here) if isinstance(template, dict) else here
        for container in listed(template.get("containers")) if isinstance(template, dict) else []:
            if isinstance(container, dict) and gpu_count(container) is not None:
                inside = _within(container, inside)
        model = value.get("model")
        inside = _within(model, inside) if isinstance(model, dict) else inside
        yield replace(inside, words=served, line=here.line)
    elif image := _image(value):
        environment = _variables(value)
        variables = dict(p.split("=", 1) for p in environment[1::2] if "=" in p)
        # Kubernetes puts $(NAME) in itself
        words = [_REFERENCE.sub(lambda m: variables.get(m[1], m[0]), w) for w in _command(value)]
        own, words = (["--entrypoint", words[0]], words[1:]) if _replaces(value) else ([], words)
        if words or own:  # an image alone is no start: it names no model
            files = [w for name in _env_files(value) for w in ("--env-file", name)]
            yield replace(here, words=["docker", "run", *environment, *files, *own, image, *words])
    else:
        value = _with_envs(value)
        for key, item in value.items():
            if key in _INNER and isinstance(item, str):
                yield from manifest_launches(item)
            elif not str(key).startswith("x-"):  # compose's fragments, which others merge
                yield from _launches(item, here, configs)
        for words in task_words(value):
            yield replace(here, words=words)


def _image(value: Mapping[str, Any]) -> str:
    """The image of a container, or of a chart's values that name its repository and tag."""
    image = value.get("image")
    if isinstance(image, str):
        return image
    if isinstance(image, dict) and isinstance(image.get("repository"), str):
        return f"{image['repository']}:{image.get('tag') or 'latest'}"
    return ""


def _charted(spec: Mapping[str, Any]) -> CommandLine | None:
    """The engine whose chart ``spec`` is one model of."""
    for command in command_lines():
        chart = command.chart
        of_chart = isinstance(spec.get(chart.config), dict) if chart else False
        if chart and spec.get(chart.model) and (of_chart or "requestGPU" in spec):
            return command
    return None


def _chart(spec: Mapping[str, Any], command: CommandLine) -> list[str]:
    """One model of a chart's values."""
    chart = command.chart
    assert chart is not None
    image = f"{spec.get('repository') or command.default_image}:{spec.get('tag') or 'latest'}"
    program = (*command.programs[0], str(spec[chart.model]))
    config = spec.get(chart.config) or {}
    if not isinstance(config, Mapping):
        raise KvroomError(chart.config, str(config)[:60], "is no table", "Write its keys below it.")
    options = {
        key: value for key, value in config.items() if key not in (chart.extra, *chart.plain)
    }
    more = [word(w) for w in listed(config.get(chart.extra))]
    tiers, variables = chart_tiers(spec, command)
    own = [w for pair in variables for w in ("-e", pair)]
    return [
        "docker",
        "run",
        *_variables(spec),
        *own,
        image,
        *program,
        *flags(options),
        *tiers,
        *more,
    ]


def _command(container: Mapping[str, Any]) -> list[str]:
    """What a container runs: ``entrypoint``/``command``, then ``args``, lists or text."""
    parts: list[str] = []
    image = container.get("image")
    places = [image, container] if isinstance(image, dict) else [container]
    for place in places:
        for key in ("entrypoint", "command", "args", "extraArgs"):
            words = place.get(key)
            parts += words_of(words) if isinstance(words, str) else [word(w) for w in listed(words)]
    return parts


def _replaces(container: Mapping[str, Any]) -> bool:
    """Whether its command takes the place of the image's own program: Kubernetes' ``command``, compose's
    ``entrypoint``."""
    entry = container.get("entrypoint")
    kubernetes = "name" in container or "args" in container
    return bool(entry) or (kubernetes and bool(listed(container.get("command"))))


def _env_files(container: Mapping[str, Any]) -> list[str]:
    """The files that a compose service takes its variables from."""
    named = container.get("env_file")
    rows = [named] if isinstance(named, str) else listed(named)
    paths = [row.get("path") if isinstance(row, dict) else row for row in rows]
    return [path for path in paths if isinstance(path, str)]


def _pairs(container: Mapping[str, Any]) -> list[str]:
    """Its environment as ``NAME=VALUE``, or ``NAME`` where the host has the value."""
    named = (container.get(key) for key in ("env", "environment", "envs"))
    environment: Any = next(filter(None, named), [])
    if isinstance(environment, dict):
        return [f"{key}={word(value)}" for key, value in environment.items()]
    return [
        f"{e.get('name')}={word(e.get('value'))}" if isinstance(e, dict) else word(e)
        for e in listed(environment)
    ]


def _with_envs(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """A service of a Dynamo graph with its ``envs`` in its container, and the graph's in every service."""
    envs, pod = listed(value.get("envs")), value.get("extraPodSpec")
    services = value.get("services")
    if envs and isinstance(services, dict):
        inner = {
            name: {**each, "envs": [*envs, *listed(each.get("envs"))]}
            for name, each in services.items()
            if isinstance(each, dict)
        }
        return {**value, "services": services | inner}
    main = pod.get("mainContainer") if isinstance(pod, dict) else None
    if not envs or not isinstance(main, dict):
        return value
    main["env"] = [*envs, *listed(main.get("env"))]
    return value


def _variables(container: Mapping[str, Any]) -> list[str]:
    return [w for pair in _pairs(container) for w in ("-e", pair)]

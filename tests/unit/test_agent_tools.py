"""The tools of agents, over stdio with the protocol's own client: listed, called, refused."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kvroom.answer.figures import registry
from kvroom.errors import KvroomError
from kvroom.scenario.scenario import Scenario
from kvroom.ui import agent_tools
from kvroom.ui.agent_tools import PLAN_FIGURES, table, text_of

TOOLS = {tool.name: tool for tool in table()}
LOG = Path(__file__).parents[2] / "docs" / "examples" / "vllm.log"
SMALL = {"model": "llama-3-8b", "gpu": "L40S", "context_tokens": "8K"}
LOAD = {"input_tokens": 500, "output_tokens": 50, "concurrency": 4}
CALLS: dict[str, dict[str, Any]] = {
    "plan": SMALL,
    "check": {"text": "vllm serve Qwen/Qwen3-8B --max-model-len 8192", "gpu": "L40S"},
    "reconcile": {"file": str(LOG)},
    "levers": {**SMALL, "limit": 2},
    "search": {
        "model": "llama-3-8b", "workload": LOAD, "slo": "tpot_p95=80ms", "users": 4, "simulate": 0,
        "space": {"gpus": ["L40S"], "counts": [1]},
    },
    "simulate": {
        "model": "llama-3-8b", "gpu": "L40S", "seed": 1,
        "workload": {"arrivals": "poisson:2/s", "input": 500, "output": 20, "requests": 20},
    },
}  # fmt: skip
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "plan": ({"model": "llama-3-80b", "gpu": "L40S"}, "llama-3"),
    "check": ({"text": "echo hello"}, "starts no engine"),
    "reconcile": ({"text": "hello"}, "is no engine's start-up log"),
    "levers": ({"model": "llama-3-8b"}, "gpu"),
    "search": ({"model": "llama-3-8b", "workload": LOAD, "slo": "ttft_p95=soon"}, "ttft_p95"),
    "simulate": ({**SMALL, "trace": "no/such/file"}, "no/such/file"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_tool_answers_shortly(name: str) -> None:
    tool = TOOLS[name]
    jsonschema.validate(CALLS[name], dict(tool.arguments))
    answer = json.loads(agent_tools.codec.encode(tool.call(CALLS[name])))
    jsonschema.validate(answer, dict(tool.answer))
    assert answer["verdict"].endswith(".")
    assert len(json.dumps(answer)) < 6_000
    assert text_of(answer).startswith(answer["verdict"])
    assert not answer.get("stopped")


@pytest.mark.parametrize("name", CALLS)
def test_its_schema_is_one(name: str) -> None:
    for schema in (TOOLS[name].arguments, TOOLS[name].answer):
        jsonschema.Draft202012Validator.check_schema(dict(schema))
    described = TOOLS[name].arguments["properties"]
    assert all("description" in value or "$ref" in str(value) for value in described.values())


def test_the_page_asks_the_same() -> None:
    answer = TOOLS["plan"].call(SMALL)
    again = TOOLS["plan"].call({"link": answer["page"]})
    assert again == answer
    other = TOOLS["plan"].call({"link": answer["page"], "kv_dtype": "fp8"})
    assert Scenario.from_link(other["page"]).kv_dtype == "fp8"


def test_links_are_of_the_page_that_its_users_can_open() -> None:
    there = "https://example.org/kvroom/"
    answer = TOOLS["levers"].call(SMALL, there)
    pages = [answer["page"], *(row["page"] for row in answer["levers"])]
    assert all(page.startswith(f"{there}#s=1.") for page in pages)
    none = TOOLS["levers"].call(SMALL, "")
    assert [none["page"], *(row["page"] for row in none["levers"])] == [""] * len(pages)
    assert "Page:" not in text_of(none)


def test_further_figures_are_given_where_they_are_asked_for() -> None:
    answer = TOOLS["plan"].call({**SMALL, "figures": ["kv.bytes_per_token"]})
    assert answer["figures"] == {"kv.bytes_per_token": 131_072}
    assert set(PLAN_FIGURES) <= set(registry())
    with pytest.raises(KvroomError, match=r"kv\.bytes_per_token"):
        TOOLS["plan"].call({**SMALL, "figures": ["kv.bytes_per_tokens"]})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({**SMALL, "contxt_tokens": 5}, "context_tokens"),
        ({**SMALL, "figures": "all"}, "not an array of strings"),
        ({**SMALL, "figures": [1]}, "not an array of strings"),
        ({**SMALL, "detail": 1}, "not a boolean"),
        ({"gpu": "L40S"}, "model: is missing"),
        ({**SMALL, "tp": "two"}, "tp"),
    ],
)
def test_a_wrong_argument_is_named_with_its_fix(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(KvroomError, match=says) as caught:
        TOOLS["plan"].call(arguments)
    assert caught.value.fix


def test_a_patch_comes_with_a_check(tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 131072\n")
    answer = TOOLS["check"].call({"files": [str(script)], "gpu": "RTX-4090", "fix": True})
    assert answer["exit_status"] == 1
    assert answer["deployments"][0]["fix"]
    assert "+vllm serve" in answer["patch"]


def test_over_stdio() -> None:
    mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")
    from mcp.client.stdio import StdioServerParameters

    server = StdioServerParameters(
        command=sys.executable, args=["-m", "kvroom", "mcp"], env={"PYTHONPATH": ":".join(sys.path)}
    )

    async def talk() -> None:
        async with mcp.Client(server) as client:
            listed = (await client.list_tools()).tools
            assert [tool.name for tool in listed] == list(TOOLS)
            assert all(tool.description and tool.output_schema for tool in listed)
            for name, arguments in CALLS.items():
                result = await client.call_tool(name, arguments)
                assert not result.is_error, result.content
                jsonschema.validate(result.structured_content, dict(TOOLS[name].answer))
                assert result.content[0].text.startswith(result.structured_content["verdict"])
            for name, (arguments, says) in REFUSED.items():
                result = await client.call_tool(name, arguments)
                if name == "check":  # a file that is none is an answer, with its exit status
                    assert result.structured_content["exit_status"] == 2
                else:
                    assert result.is_error
                    assert result.structured_content["error"]["fix"]
                assert says in result.content[0].text
            unknown = await client.call_tool("plann", {})
            assert unknown.is_error
            assert "plan" in unknown.content[0].text

    asyncio.run(talk())


SKILL = Path(__file__).parents[2] / "skills" / "kvroom" / "SKILL.md"


def test_the_skill_names_commands_that_there_are() -> None:
    from kvroom.ui.cli.main import COMMANDS

    text = SKILL.read_text("utf-8")
    _, head, body = text.split("---\n", 2)
    told = dict(line.split(": ", 1) for line in head.splitlines())
    assert told["name"] == SKILL.parent.name
    assert 0 < len(told["description"]) <= 1024
    named = set(re.findall(r"`kvroom ([a-z]+)", body))
    assert named <= set(COMMANDS)
    assert set(TOOLS) <= named

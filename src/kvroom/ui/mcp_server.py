"""The table of ``agent_tools`` over the model context protocol, on standard input and output."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import msgspec
from mcp import types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

from kvroom import __version__
from kvroom.errors import KvroomError, did_you_mean
from kvroom.ui.agent_tools import table, text_of

INSTRUCTIONS = """\
kvroom says where every byte of a served language model goes and how many requests have room.
Start with plan for a model on a card, check for a launch file, reconcile for a log; levers where it
does not fit, search where the cards are open, simulate for waits under load. Say the verdict as it
stands, and give the page's link where there is one."""


async def _list(
    _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[
            types.Tool(
                name=tool.name,
                description=tool.answers,
                input_schema=dict(tool.arguments),
                output_schema=dict(tool.answer),
                annotations=types.ToolAnnotations(
                    read_only_hint=True, destructive_hint=False, idempotent_hint=True
                ),
            )
            for tool in table()
        ]
    )


async def _call(
    page: str, _: ServerRequestContext[Any], params: types.CallToolRequestParams
) -> types.CallToolResult:
    try:
        answer = await anyio.to_thread.run_sync(
            _answered, params.name, params.arguments or {}, page
        )
    except KvroomError as error:
        return types.CallToolResult(
            content=[types.TextContent(text=str(error))],
            structured_content={"error": error.as_dict()},
            is_error=True,
        )
    return types.CallToolResult(
        content=[types.TextContent(text=text_of(answer))], structured_content=answer
    )


def _answered(name: str, arguments: dict[str, Any], page: str) -> dict[str, Any]:
    tools = {tool.name: tool for tool in table()}
    if name not in tools:
        raise KvroomError(
            "tool",
            name,
            "is none of kvroom's",
            did_you_mean(name, tools, f"One of: {', '.join(tools)}."),
        )
    try:
        answer: dict[str, Any] = msgspec.to_builtins(
            tools[name].call(arguments, page), str_keys=True
        )
    except RecursionError:
        raise KvroomError("arguments", "…", "are nested too deeply", "Give plain ones.") from None
    return answer


def serve(page: str) -> None:
    """Answer until the client closes, with links to the page at that address ("": with none)."""
    server: Server[Any] = Server(
        "kvroom",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=_list,
        on_call_tool=partial(_call, page),
    )

    async def run() -> None:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(run)

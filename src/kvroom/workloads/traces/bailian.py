"""Qwen-Bailian JSONL: chats of many turns from Alibaba's Bailian service."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from kvroom.workloads.requests import PS_PER_S, Request
from kvroom.workloads.traces.base import Format, Row, RowOptions
from kvroom.workloads.traces.fields import hash_ids, lengths, session, time_ps

MOST_CHATS = 1_000_000
"""Turns whose first chat is remembered."""


def bailian(options: RowOptions) -> Row:
    """``timestamp`` in s, lengths, hash ids; a chat's session is the chat that it began with."""
    roots: OrderedDict[int | str, int | str] = OrderedDict()

    def row(values: Mapping[str, Any]) -> Request:
        prompt, answer = lengths(values, "input_length", "output_length")
        chat, parent = session(values, "chat_id"), session(values, "parent_chat_id")
        root = chat
        if chat is not None and parent not in (None, -1, "-1"):
            root = roots[chat] = roots.get(parent, parent)
            if len(roots) > MOST_CHATS:
                roots.popitem(last=False)
        return Request(
            time_ps(values, "timestamp", PS_PER_S),
            prompt,
            answer,
            hash_ids(values, prompt, options.hash_tokens),
            root,
        )

    return row


FORMAT = Format(
    "Qwen-Bailian",
    ("chat_id", "timestamp", "input_length", "output_length"),
    bailian,
    16,
    may=("hash_ids", "parent_chat_id"),
)

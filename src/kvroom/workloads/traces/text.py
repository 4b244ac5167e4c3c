"""Tokens of text: of a tokenizer that was passed in, else counted in bytes.

Without a tokenizer BYTES_PER_TOKEN bytes of UTF-8 count as a token. Measured with the vocabularies
cl100k_base and o200k_base, a token has 4.7 bytes of English prose, 3.5 to 4.2 of source code, 3.1 to 3.4 of
JSON and technical Markdown, 2.9 to 4.4 of Chinese and Japanese, 4.6 to 8.6 of Russian: a count is a fifth
too high for prose, up to a fifth too low for JSON, and further off in other scripts. What prompts share is
seen in steps of PIECE_TOKENS such tokens, because the bytes themselves are compared.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from kvroom.errors import KvroomError
from kvroom.units import ceil_div
from kvroom.workloads.requests import HashIds, Prefix, TokenIds
from kvroom.workloads.traces.base import RowOptions
from kvroom.workloads.traces.fields import MAX_REQUEST_TOKENS, at, objects

BYTES_PER_TOKEN = 4
"""Bytes of UTF-8 that count as a token."""
PIECE_TOKENS = 16
ESTIMATED = (
    f"tokens are counted as {BYTES_PER_TOKEN} bytes of text each: within a quarter for English and code, up "
    "to twice too many in other scripts; --tokenizer FILE counts them"
)
_PIECE_BYTES = BYTES_PER_TOKEN * PIECE_TOKENS


class Text:
    """A prompt that grows: its tokens so far, and what names its blocks."""

    def __init__(self, options: RowOptions) -> None:
        self._tokenizer = options.tokenizer
        self._ids = array("I" if options.tokenizer else "Q")
        self._rest = b""
        self._digest = b""
        self._bytes = 0
        if options.tokenizer is None:
            options.note(ESTIMATED)

    def add(self, text: str) -> int:
        """Put ``text`` behind what there is; how many tokens it adds."""
        before = self.tokens
        if self._tokenizer is not None:
            self._ids.extend(token_ids(self._tokenizer(text)))
            return self.tokens - before
        data = text.encode("utf-8", "surrogatepass")
        self._bytes += len(data)
        data = self._rest + data
        whole = len(data) - len(data) % _PIECE_BYTES
        for start in range(0, whole, _PIECE_BYTES):
            self._ids.append(self._named(data[start : start + _PIECE_BYTES]))
        self._rest = data[whole:]
        return self.tokens - before

    @property
    def tokens(self) -> int:
        """How many tokens there are so far."""
        if self._tokenizer is not None:
            return len(self._ids)
        return ceil_div(self._bytes, BYTES_PER_TOKEN)

    def prefix(self) -> Prefix:
        """What the prompt holds as it stands."""
        if self._tokenizer is not None:
            return TokenIds(self._ids[:])
        return HashIds(self._ids[:], PIECE_TOKENS)

    def _named(self, piece: bytes) -> int:
        self._digest = blake2b(self._digest + piece, digest_size=8).digest()
        return int.from_bytes(self._digest, "little")


def token_ids(ids: Any) -> array[int]:
    """What a tokenizer gave, as ids of 32 bits."""
    try:
        return array("I", ids)
    except (TypeError, ValueError, OverflowError):
        fix = "Pass a function from text to a list of token ids."
        raise KvroomError("tokenizer", type(ids).__name__, "gives no token ids", fix) from None


def message_text(message: Any) -> str:
    """A chat message as the model sees it, about: its role and its text, tool calls too; no images."""
    content = at(message, "content", "value", "text")
    if isinstance(content, list):
        parts = (p if isinstance(p, str) else at(p, "text", "content") for p in content)
        content = "\n".join(part for part in parts if isinstance(part, str))
    calls = [at(object_, "function.arguments") for object_ in objects(at(message, "tool_calls"))]
    words = [content, *calls]
    role = at(message, "role", "from")
    text = "\n".join(word for word in words if isinstance(word, str))
    return f"<|{role}|>\n{text}\n"


def prompt_of(body: Mapping[str, Any], options: RowOptions) -> tuple[int, Prefix] | None:
    """Tokens of an OpenAI request's ``messages``, ``prompt`` or ``input``, and what it holds; None where
    it has none of them."""
    text = Text(options)
    prompt = at(body, "messages", "prompt", "input")
    if isinstance(prompt, list) and prompt and all(type(i) is int for i in prompt):
        ids = token_ids(prompt)
        return len(ids), TokenIds(ids)
    for part in prompt if isinstance(prompt, list) else [prompt]:
        if isinstance(part, str):
            text.add(part)
        elif isinstance(part, Mapping):
            text.add(message_text(part))
    return (text.tokens, text.prefix()) if text.tokens else None


def answer_limit(body: Mapping[str, Any]) -> int | None:
    """The most tokens that an OpenAI request allows its answer; None where it says nothing."""
    limit = at(body, "max_completion_tokens", "max_tokens", "max_output_tokens", "output_tokens")
    return limit if type(limit) is int and 0 <= limit <= MAX_REQUEST_TOKENS else None


LIMITS = "answers are taken to be as long as their requests allow (max_tokens)"

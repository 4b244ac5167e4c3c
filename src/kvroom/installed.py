"""What libraries beside kvroom's own can do where they are installed: zstd, tokenizers.

The core imports none of them; it takes these functions as arguments.
"""

from __future__ import annotations

import io
import os
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any, cast

from kvroom.errors import KvroomError

if TYPE_CHECKING:
    from kvroom.workloads.traces.base import Tokenizer
    from kvroom.workloads.traces.opened import Unpack


def unpack_zstd() -> Unpack | None:
    """What unpacks a zstd stream: pyarrow, of the extra ``traces``; None without it."""
    return _zstd if find_spec("pyarrow") is not None else None


def _zstd(raw: IO[bytes]) -> IO[bytes]:
    import pyarrow

    return cast("IO[bytes]", io.BufferedReader(pyarrow.input_stream(raw, compression="zstd")))


def tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a ``tokenizer.json``; KvroomError where the file or the library is missing."""
    if find_spec("tokenizers") is None:
        fix = "Run pip install tokenizers, or leave it out: 4 bytes then count as a token."
        raise KvroomError("--tokenizer", str(path), "needs the library tokenizers", fix)
    import tokenizers

    try:
        whole: Any = tokenizers.Tokenizer.from_file(os.fspath(path))
    except Exception as error:
        fix = "Give the tokenizer.json of the model."
        raise KvroomError("--tokenizer", str(path), f"cannot be read ({error})", fix) from None
    return lambda text: cast("list[int]", whole.encode(text, add_special_tokens=False).ids)

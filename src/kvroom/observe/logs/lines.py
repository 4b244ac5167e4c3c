"""The lines of a log that matter, out of a file of any size, in bounded memory.

A log is read in blocks and searched for literals; only lines that hold one are looked at. Around the
text there may be almost anything: gzip, UTF-16, carriage returns of progress bars, ANSI colours,
container prefixes, JSON with the text inside. Lines longer than MAX_LINE_BYTES are cut.
"""

from __future__ import annotations

import codecs
import io
import json
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO, Any

BLOCK_BYTES = 2**20
MAX_LINE_BYTES = 2**18
"""Past this a line is cut: engines print their whole configuration in one of some 10 KB."""
MAX_READ_BYTES = 2**34
"""Nothing is read beyond this; an archive may unfold to any size."""

MOST_HITS = 40_000
"""Lines of interest after which the rest is the same over and over, as a start that fails again and again
prints it: only the end is read on from there."""
TAIL_BYTES = 2**23

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[()][AB012])")
_ANSI_BYTES = re.compile(_ANSI.pattern.encode())
_ARRAY = re.compile(rb"\s*\[\s*\{")
_BETWEEN = re.compile(rb"\}\s*,\s*\{")
_TEXT_KEYS = ("message", "msg", "log", "text", "line", "textPayload", "event", "body", "MESSAGE")
_NESTED_KEYS = ("jsonPayload", "record", "fields")
_GZIP = 31
"""zlib's word for a gzip header."""
_DAMAGED = "the gzip archive is cut short or damaged"
_BOMS = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class Log:
    """A log being read: iterate for its lines; ``cut_short`` is why it ended early, or empty,
    ``passed_over`` how many bytes before its end were not read. Lines that hold ``quiet`` needles alone are
    read and not counted."""

    def __init__(
        self, stream: IO[bytes], needles: Sequence[str], quiet: Collection[str] = ()
    ) -> None:
        self._stream = stream
        self._quiet = frozenset(quiet)
        self._needles = {needle: needle.encode() for needle in needles}
        self.bytes_read = 0
        self.cut_short = ""
        self.passed_over = 0
        self._plain_text = False

    def __iter__(self) -> Iterator[tuple[str, list[str]]]:
        """Every line that holds a needle, cleaned, in order, with the needles that it holds."""
        hits = 0
        for block in self._blocks():
            for raw, needles in _hits(block, self._needles):
                hits += not self._quiet.issuperset(needles)
                for text in clean(raw.decode("utf-8", "replace")):
                    yield text, needles
            if hits > MOST_HITS and not self.passed_over:
                self._to_the_end()

    def _to_the_end(self) -> None:
        """Go on near the end of the file, where it can be moved about in."""
        if not self._plain_text or not self._stream.seekable():
            return
        here = self._stream.tell()
        tail = self._stream.seek(0, io.SEEK_END) - TAIL_BYTES
        self._stream.seek(max(here, tail))
        self.passed_over = max(0, tail - here)

    def _blocks(self) -> Iterator[bytes]:
        """Whole lines, about BLOCK_BYTES at a time."""
        rest, inside_long = b"", False
        passed_over = 0
        array: bool | None = None
        for read in self._decoded():
            if self.passed_over != passed_over:  # what is read now begins within some line
                passed_over = self.passed_over
                rest, inside_long = b"", True
            block = read.replace(b"\r", b"\n") if b"\r" in read else read
            if b"\x1b" in block:  # a colour may begin within a phrase
                block = _ANSI_BYTES.sub(b"", block)
            if array is None:
                array = _ARRAY.match(block) is not None
            if array:  # one line may hold all its objects
                block = _BETWEEN.sub(b"}\n{", block)
            if inside_long:  # the rest of a line that was cut
                end = block.find(b"\n")
                if end < 0:
                    continue
                block, inside_long = block[end:], False
            block = rest + block
            last = block.rfind(b"\n")
            rest = block[last + 1 :]
            if last >= 0:
                yield block[: last + 1]
            if len(rest) > MAX_LINE_BYTES:
                yield rest[:MAX_LINE_BYTES] + b"\n"
                rest, inside_long = b"", True
        if rest:
            yield rest + b"\n"

    def _decoded(self) -> Iterator[bytes]:
        """The stream's bytes in blocks, unpacked and as UTF-8."""
        head = self._stream.read(4)
        packed = head[:2] == b"\x1f\x8b"
        read = self._unpacked(head) if packed else self._read(head)
        decoder = None
        first = True
        for block in read:
            self.bytes_read += len(block)
            if first:
                name = _utf16(block)
                decoder = codecs.getincrementaldecoder(name)("replace") if name else None
                first = False
                self._plain_text = not packed and decoder is None
            yield decoder.decode(block).encode("utf-8", "replace") if decoder else block
            if self.bytes_read >= MAX_READ_BYTES:
                self.cut_short = f"nothing is read beyond {MAX_READ_BYTES:,} bytes"
                return

    def _read(self, head: bytes) -> Iterator[bytes]:
        """The stream's bytes behind ``head``, which was read already."""
        while True:
            try:
                block = head + self._stream.read(BLOCK_BYTES)
            except (OSError, ValueError):
                self.cut_short = "reading stopped with an error of the file system"
                block = head
            if not block:
                return
            yield block
            head = b""

    def _unpacked(self, head: bytes) -> Iterator[bytes]:
        """What a gzip archive holds, as far as it unpacks: one member after another."""
        unpack = zlib.decompressobj(_GZIP)
        for packed in self._read(head):
            rest = packed
            while rest:
                if unpack.eof:
                    if not rest.strip(b"\0"):  # padding
                        break
                    unpack = zlib.decompressobj(_GZIP)
                try:
                    block = unpack.decompress(rest, BLOCK_BYTES)
                except zlib.error:
                    self.cut_short = _DAMAGED
                    return
                if block:
                    yield block
                rest = unpack.unused_data if unpack.eof else unpack.unconsumed_tail
        if not unpack.eof:
            self.cut_short = self.cut_short or _DAMAGED


def _utf16(block: bytes) -> str | None:
    """The byte order of UTF-16, by its mark or by where the zeros of plain letters stand."""
    name = next((n for bom, n in _BOMS if block.startswith(bom)), None)
    if name is not None or len(block) < 8:
        return name
    even, odd = block[:4096:2], block[1:4096:2]
    if odd.count(0) * 2 > len(odd) and not even.count(0):
        return "utf-16-le"
    return "utf-16-be" if even.count(0) * 2 > len(even) and not odd.count(0) else None


def _hits(block: bytes, needles: Mapping[str, bytes]) -> Iterator[tuple[bytes, list[str]]]:
    """The lines of ``block`` that hold a needle, in order, each once with all that it holds."""
    hits: dict[int, tuple[int, list[str]]] = {}
    for name, needle in needles.items():
        at = block.find(needle)
        while at >= 0:
            start = block.rfind(b"\n", 0, at) + 1
            if start in hits:
                end = hits[start][0]
                hits[start][1].append(name)
            else:
                end = block.find(b"\n", at)
                hits[start] = (end, [name])
            at = block.find(needle, end)
    for start in sorted(hits):
        end, held = hits[start]
        yield block[start : min(end, start + MAX_LINE_BYTES)], held


def clean(text: str) -> list[str]:
    """The text of one line without colours and control characters; a JSON line gives its message's."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    brace, end = text.find("{"), text.rfind("}") + 1
    if 0 <= brace < end and not text[end:].strip(" ,]\r\n\t"):
        inner = _message(text[brace:end])
        if inner is not None:
            lines = [c for part in inner.splitlines()[:100] for c in _plain(part)]
            return lines or [""]
    return _plain(text)


def _plain(text: str) -> list[str]:
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if not text.isprintable():
        text = "".join(c for c in text if c.isprintable() or c == "\t")
    return [text.strip()]


def _message(text: str) -> str | None:
    """The message inside a JSON line; None where it is not one."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    for _ in range(3):
        if not isinstance(value, Mapping):
            return None
        for key in _TEXT_KEYS:
            if isinstance(value.get(key), str) and value[key].strip():
                # An object's other fields may hold figures of their own (structured logs).
                return str(value[key])
        value = next(
            (value[nested_key] for nested_key in _NESTED_KEYS if nested_key in value), None
        )
    return None

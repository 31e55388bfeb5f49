"""Reads text files as people save them: compressed with gzip, with a byte-order mark, in UTF-16; always within bounds.

The type of a file is recognised by its first bytes, not by its name.
"""

import io
import zlib
from collections.abc import Iterator
from itertools import count
from typing import Any, BinaryIO

MOST_LINE_BYTES = 256 * 1024 * 1024
MOST_RATIO = 250
"""Maximum ratio of unpacked to packed size. It is ten times the ratio that JSON and CSV reach."""
_FREE_BYTES = 4 * 1024 * 1024
"""Number of bytes that are unpacked before the ratio is checked."""
_PIECE = 64 * 1024
_ENCODINGS = {b"\xff\xfe\0\0": "utf-32", b"\0\0\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
"""Encodings by byte-order mark. Longer marks come first, because a shorter mark may be the beginning of a longer mark.
"""
_MARK = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_OTHERS = {
    b"PK\x03\x04": "a ZIP archive; unpack it first",
    b"(\xb5/\xfd": "packed by zstd; unpack it first (zstd -d)",
    b"BZh": "packed by bzip2; unpack it first (bunzip2)",
    b"\xfd7zXZ\0": "packed by xz; unpack it first (unxz)",
    b"PAR1": "a Parquet file; write it as JSON lines or CSV first",
    b"%PDF": "a PDF; give the file with the data itself",
}


class TextUnreadable(Exception):
    """A text that cannot be read. The message continues a sentence about the file or line: `is a ZIP archive; unpack it
    first`.
    """

    def __init__(self, problem: str, line: int = 0) -> None:
        self.line = line
        """Number of the line, or 0 for the whole file."""
        super().__init__(problem)


def text_lines(file: BinaryIO, *, most_line_bytes: int = MOST_LINE_BYTES, most_bytes: int | None = None) -> Iterator[bytes]:
    """Yield the lines of the file in UTF-8, each with its line end. The file is unpacked, and a byte-order mark is
    removed.

    Raises TextUnreadable, after the lines before the fault, for data that is not text, for a line longer than
    `most_line_bytes`, and for more than `most_bytes` in all.
    """
    stream = _plain(file)
    text = _decoded(stream)
    total = 0
    for number in count(1):
        try:
            line = text.readline(most_line_bytes + 1)
        except UnicodeError:
            raise TextUnreadable("is not valid text in the encoding that its byte-order mark names", number) from None
        content = line if isinstance(line, bytes) else line.encode("utf-8", "surrogatepass")
        if not content:
            return
        total += len(content)
        if len(line) > most_line_bytes:
            raise TextUnreadable(f"is longer than {_size(most_line_bytes)}; write one row to a line", number)
        if most_bytes is not None and total > most_bytes:
            raise TextUnreadable(f"holds more than {_size(most_bytes)}; give a part of it")
        yield content


def _plain(file: BinaryIO) -> "io.BufferedReader[Any]":
    """Return the bytes of the file, unpacked if they are packed by gzip."""
    stream: io.BufferedReader[Any] = io.BufferedReader(_Reading(file), _PIECE)
    if stream.peek(2)[:2] == _GZIP:
        stream = io.BufferedReader(_Unpacking(stream), _PIECE)
        if stream.peek(2)[:2] == _GZIP:
            raise TextUnreadable("is packed by gzip twice; unpack it once")
    return stream


def _decoded(stream: "io.BufferedReader[Any]") -> "io.BufferedReader[Any] | io.TextIOWrapper":
    begin = stream.peek(_PIECE)[:_PIECE]
    for magic, words in _OTHERS.items():
        if begin.startswith(magic):
            raise TextUnreadable(f"is {words}")
    for mark, encoding in _ENCODINGS.items():
        if begin.startswith(mark):
            return io.TextIOWrapper(stream, encoding=encoding, newline="\n")
    if b"\0" in begin:
        raise TextUnreadable("holds zero bytes, so it is not text in UTF-8; save it as UTF-8")
    if begin.startswith(_MARK):
        stream.read(len(_MARK))
    return stream


class _Reading(io.RawIOBase):
    """A raw stream over any readable file, so that the file can be buffered."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, into: "bytearray | memoryview") -> int:  # type: ignore[override] # of all that can be written to
        piece = self._file.read(len(into))
        into[: len(piece)] = piece
        return len(piece)


class _Unpacking(io.RawIOBase):
    """The content of a gzip file with one or several members."""

    def __init__(self, packed: "io.BufferedReader[Any]") -> None:
        self._packed = packed
        self._unpacker = zlib.decompressobj(wbits=31)
        self._waiting = b""
        self._taken = self._given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: "bytearray | memoryview") -> int:  # type: ignore[override] # of all that can be written to
        filled = 0
        while filled < len(into) and (piece := self._piece(len(into) - filled)):
            into[filled : filled + len(piece)] = piece
            filled += len(piece)
        self._given += filled
        if self._given > max(_FREE_BYTES, MOST_RATIO * self._taken):
            raise TextUnreadable(f"unpacks to more than {MOST_RATIO} times its size, which no data of this kind does")
        return filled

    def _piece(self, most: int) -> bytes:
        """Return the next chunk; empty at the end."""
        piece = b""
        while not piece:
            if self._unpacker.eof and not self._next_member():
                return b""
            data = self._waiting or self._take()
            try:
                piece = self._unpacker.decompress(data, most)
            except zlib.error:
                raise TextUnreadable("is packed by gzip, but damaged; fetch or pack it again") from None
            self._waiting = self._unpacker.unconsumed_tail
            if not (data or piece or self._unpacker.eof):
                raise TextUnreadable("is packed by gzip, but its end is missing; fetch or pack it again")
        return piece

    def _take(self) -> bytes:
        data = self._packed.read1(_PIECE)
        self._taken += len(data)
        return data

    def _next_member(self) -> bool:
        """Begin the next gzip member, if one follows; the file may end with zero bytes."""
        rest = self._unpacker.unused_data or self._take()
        while rest and not rest.strip(b"\0"):
            rest = self._take()
        if rest:
            self._unpacker = zlib.decompressobj(wbits=31)
            self._waiting = rest.lstrip(b"\0")
        return bool(rest)


def _size(number: int) -> str:
    return f"{number / 2**20:,.0f} MiB"

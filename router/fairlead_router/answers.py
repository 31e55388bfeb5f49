"""Reading engines' answers as they pass: counting streamed events, and finding the usage an engine told."""

from __future__ import annotations

import msgspec

_TAIL = 8192
"""Bytes of a stream's end that are kept to look for usage."""


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Envelope(msgspec.Struct):
    usage: _Usage | None = None


_DECODER = msgspec.json.Decoder(_Envelope)


def read_usage(document: bytes) -> tuple[int, int | None] | None:
    """(output tokens, cached prompt tokens or None) of a completion or a chunk; None when it tells no usage."""
    try:
        usage = _DECODER.decode(document).usage
    except msgspec.DecodeError:  # ValidationError included: an engine's odd usage is no reason to fail an answer that was served
        return None
    if usage is None:
        return None
    details = usage.prompt_tokens_details
    return usage.completion_tokens, details.cached_tokens if details is not None else None


class StreamReader:
    """Follows a stream of server-sent events without holding it: `feed` every piece, then ask."""

    __slots__ = ("_tail", "events")

    def __init__(self) -> None:
        self.events = 0
        self._tail = b""

    def feed(self, piece: bytes) -> None:
        """Count events (blank lines) in `piece`, also when one is split over two pieces."""
        joint = self._tail[-3:]
        self.events += piece.count(b"\n\n") + piece.count(b"\r\n\r\n")
        if joint:
            seam = joint + piece[:3]
            self.events += _seam_count(seam, len(joint), b"\n\n") + _seam_count(seam, len(joint), b"\r\n\r\n")
        if len(piece) >= _TAIL:
            self._tail = piece[-_TAIL:]
        elif len(self._tail) + len(piece) <= _TAIL:
            self._tail += piece
        else:
            self._tail = (self._tail + piece)[-_TAIL:]

    @property
    def cut(self) -> bool:
        """Whether the stream stopped in the middle of an event."""
        return bool(self._tail) and not self._tail.endswith((b"\n\n", b"\r\n\r\n"))

    def usage(self) -> tuple[int, int | None]:
        """(output tokens, cached prompt tokens): the engine's own figures if it told them, else the number of chunks seen."""
        lines = self._tail.split(b"\n")
        for line in reversed(lines):
            if b'"usage"' in line and line.startswith(b"data:"):
                told = read_usage(line[5:].strip())
                if told is not None:
                    return told
        ended = b"[DONE]" in self._tail[-24:]
        return max(0, self.events - 1 if ended else self.events), None


def _seam_count(seam: bytes, boundary: int, mark: bytes) -> int:
    """Marks that begin before `boundary` and end after it."""
    start, found = 0, 0
    while (place := seam.find(mark, start)) >= 0:
        if place < boundary < place + len(mark):
            found += 1
        start = place + 1
    return found

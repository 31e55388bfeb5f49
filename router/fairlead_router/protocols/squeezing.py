"""Reduces a JSON document that is too large to buffer, while it passes, so that its small fields can still be read.

Long strings are replaced by a placeholder, and nested arrays are emptied. Objects, names, numbers and short strings are
kept.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

KEPT_BYTES = 65_536
"""Maximum number of bytes of a reduced document. A larger one cannot be read."""

_LONGEST_STRING = 512
_PLACEHOLDER = b'"..."'
_MARK = re.compile(rb'["\[\]]')
_INSIDE_STRING = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_EMPTIED = re.compile(rb'(?:[^"\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"|\[[^"\[\]]*+\])++', re.DOTALL)
"""Matches the content of an emptied array up to a bracket. Flat arrays without strings inside it are matched as a
whole.
"""


class Squeezed:
    """A document that is reduced while it passes. The document may be cut into pieces anywhere. Arrays that are nested
    deeper than `array_depth` are emptied; 0 = all arrays.
    """

    __slots__ = ("_array_depth", "_arrays", "_escaped", "_in_string", "_kept", "_string")

    def __init__(self, array_depth: int) -> None:
        self._array_depth = array_depth
        self._arrays = 0
        self._in_string = False
        self._escaped = False
        self._string = bytearray()
        self._kept = bytearray()

    def feed(self, piece: bytes) -> None:
        """Read the next bytes of the document."""
        at = 0
        while at < len(piece):
            at = self._inside(piece, at) if self._in_string else self._outside(piece, at)

    def _outside(self, piece: bytes, at: int) -> int:
        if self._arrays > self._array_depth and (emptied := _EMPTIED.match(piece, at)) is not None:
            self._keep(emptied[0])
            return emptied.end()
        mark = _MARK.search(piece, at)
        end = len(piece) if mark is None else mark.start()
        self._keep(piece[at:end])
        if mark is None:
            return end
        if mark[0] == b'"':
            self._in_string = True
        elif mark[0] == b"[":
            self._keep(b"[")
            self._arrays += 1
        else:
            self._arrays -= 1
            if self._arrays <= self._array_depth:
                self._kept += b"]"
        return end + 1

    def _inside(self, piece: bytes, at: int) -> int:
        start = at
        if self._escaped:
            self._escaped = False
            at += 1
        end = _INSIDE_STRING.match(piece, at).end()  # type: ignore[union-attr]  # it also matches nothing at all
        if end < len(piece) and piece[end] == 0x5C:  # the backslash before what the next piece begins with
            self._escaped = True
            end += 1
        if len(self._string) <= _LONGEST_STRING:
            self._string += piece[start : min(end, start + _LONGEST_STRING + 1)]
        if end == len(piece):
            return end
        self._keep(_PLACEHOLDER if len(self._string) > _LONGEST_STRING else b'"%b"' % bytes(self._string))
        self._string.clear()
        self._in_string = False
        return end + 1

    def _keep(self, text: bytes) -> None:
        if self._arrays <= self._array_depth:
            if len(self._kept) <= KEPT_BYTES:
                self._kept += text[: KEPT_BYTES + 1]
        elif self._kept.endswith(b"[") and text.strip():
            self._kept += b"0"  # it held something

    @property
    def is_open(self) -> bool:
        """Whether the bytes so far end inside a string or an array."""
        return self._in_string or self._arrays > 0

    def document(self) -> Any:
        """Return the reduced document, decoded. None if it is not JSON, or was too large."""
        try:
            return orjson.loads(self._kept)
        except orjson.JSONDecodeError:
            return None

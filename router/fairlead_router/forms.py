"""Reads `multipart/form-data` (RFC 7578) only until the model is known; the rest, mostly an audio file, is passed on
unread.
"""

from __future__ import annotations

import re

from fairlead_router.refusals import BadRequest

_BOUNDARY = re.compile(r'multipart/form-data\s*;(?:.*;)?\s*boundary=(?:"([^"]{1,70})"|([^\s;]{1,70}))', re.IGNORECASE)
_FIELD_NAME = re.compile(rb'(?:^|\r\n)content-disposition:[^\r\n]*;\s*name="?([^";\r\n]*)"?', re.IGNORECASE)


class FormPrefix:
    """The beginning of a form, up to and including its field `model`.

    `feed` it pieces until `model` is known or the form has ended.
    """

    def __init__(self, content_type: str | None) -> None:
        boundary = _BOUNDARY.match(content_type or "")
        if boundary is None:
            message = f"content-type: {(content_type or 'none')[:80]!r} cannot be used; send multipart/form-data with a boundary"
            raise BadRequest(400, "invalid_content_type", message)
        self._mark = b"--" + (boundary[1] or boundary[2]).encode("latin-1", "replace")
        self._held = bytearray()
        self._part = 0
        """Offset of the boundary before the part that is read next."""
        self._searched = 0
        self._value: tuple[int, int] | None = None
        self.model: str | None = None

    @property
    def size(self) -> int:
        """Bytes held."""
        return len(self._held)

    def feed(self, piece: bytes) -> None:
        """More of the body."""
        self._held += piece
        while self.model is None and self._next_part():
            pass

    def _next_part(self) -> bool:
        """Read one part, if all of it has arrived."""
        mark, held = self._mark, self._held
        end = held.find(b"\r\n" + mark, max(self._searched, self._part + len(mark)))
        if end < 0:
            self._searched = max(self._part + len(mark), len(held) - len(mark) - 2)
            return False
        head_end = held.find(b"\r\n\r\n", self._part, end)
        name = _FIELD_NAME.search(held, self._part, head_end) if head_end >= 0 else None
        if name is not None and name[1] == b"model":
            self._value = (head_end + 4, end)
            self.model = held[head_end + 4 : end].decode("utf-8", "replace").strip()
        self._part = self._searched = end + 2
        return True

    def taken(self, model: str) -> bytes:
        """The bytes held, with the field's value changed to `model`."""
        if self._value is None or self.model == model:
            return bytes(self._held)
        start, end = self._value
        return bytes(self._held[:start]) + model.encode() + bytes(self._held[end:])

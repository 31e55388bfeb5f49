"""Reads `multipart/form-data` (RFC 7578) as it passes. The form is buffered until its model is known. The rest, which
is mostly an audio file, is only searched for a second model and for fields that clients must not set.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from fairlead_router.protocols.peer_fields import is_peer_field, refused_peer
from fairlead_router.protocols.refusals import BadRequest

_MARKED = r"[\w'()+,./:=?-]{1,70}"
_OTHERS = r"(?:;[ \t]*(?:charset=(?:utf-8|us-ascii|iso-8859-1)|(?!(?:boundary|charset)=)[\w-]+=[\w./-]+)[ \t]*)*"
_BOUNDARY = re.compile(
    rf'multipart/form-data[ \t]*{_OTHERS};[ \t]*boundary=(?:"({_MARKED})"|({_MARKED}))[ \t]*{_OTHERS};?[ \t]*', re.IGNORECASE | re.ASCII
)
"""Matches a content type that all parsers read in the same way.

It has one boundary with the characters of RFC 2046, no other quoted parameter, and no charset in which ASCII text has
other bytes (UTF-7, UTF-16, EBCDIC …), because engines decode the names of fields by the charset. With any other content
type, an engine could find other fields in the form than the gateway finds.
"""
_DISPOSITION = re.compile(rb"(?:^|\r\n)content-disposition:([^\r\n]*)", re.IGNORECASE)
_PARAMETER = re.compile(rb';\s*([^\s=;"]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"?|([^;\s]*))')
_LONE = re.compile(rb"(?<!\r)\n|\r(?!\n)")
"""Matches half a line end: CR without LF, or LF without CR. For some parsers it ends a header; for others it is a part
of the header.
"""
_LEAD = re.compile(rb"[\r\n]{0,4}")
"""Matches line ends before the first boundary, which the engines' parser skips."""
_HEAD_MOST = 16 * 1024
"""Maximum number of bytes of a part's headers."""


class PassingForm:
    """A form that is passed on when its field `model` is known.

    Call `feed` with pieces until `model` is known or the form has ended. Then pass on `taken`, and after it the
    remaining pieces through `checked`. A form with two models is refused, because an engine may use the first or the
    last one, and a key may allow only one of them.
    """

    def __init__(self, content_type: str | None) -> None:
        boundary = _BOUNDARY.fullmatch(content_type or "")
        if boundary is None:
            message = f"content-type: {(content_type or 'none')[:80]!r} cannot be used; send multipart/form-data with a boundary, in UTF-8"
            raise BadRequest(400, "invalid_content_type", message)
        self._mark = b"--" + (boundary[1] or boundary[2]).encode("latin-1", "replace")
        self._held = bytearray()
        self._place = 0
        """Between parts: the offset of the boundary before the next part. Inside a part: the offset up to which its
        content was searched.
        """
        self._looked = 0
        """Between parts: the offset up to which the end of the next part's headers was searched."""
        self._content: int | None = None
        """The offset at which the content of the current part begins; None between parts."""
        self._names_model = False
        self._begun = False
        self._ended = False
        self._value: tuple[int, int] | None = None
        self.model: str | None = None

    @property
    def size(self) -> int:
        """Number of buffered bytes."""
        return len(self._held)

    def feed(self, piece: bytes) -> None:
        """Read more of the body. Raises BadRequest for a second model, for a field that would make an engine connect to
        a peer, and for invalid headers of a part.
        """
        self._held += piece
        while self._end_part() if self._content is not None else self._begin_part():
            pass

    def taken(self, model: str) -> bytes:
        """Return the buffered bytes, in which `model` replaces the value of the field `model`."""
        if self._value is None or self.model == model:
            return bytes(self._held)
        start, end = self._value
        return bytes(self._held[:start]) + model.encode() + bytes(self._held[end:])

    async def checked(self, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Check the remaining pieces, and yield them without buffering the form. Raises BadRequest in the same cases as
        `feed`.
        """
        async for piece in rest:
            del self._held[: self._place if not self._ended else None]
            self._content = None if self._content is None else 0
            self._place = self._looked = 0
            self.feed(piece)
            yield piece

    def _begin_part(self) -> bool:
        """Read the headers of the next part, if they have fully arrived. Return whether they have."""
        held = self._held
        if not self._begun and (lead := _LEAD.match(held)) is not None:
            self._place = lead.end()
        start = self._place
        after = start + len(self._mark)
        if self._ended or len(held) < after + 2:
            return False
        if not held.startswith(self._mark, start):
            raise _ambiguous("it does not begin with its boundary")
        self._begun = True
        if held.startswith(b"--", after):
            self._ended = True
            return False
        if not held.startswith(b"\r\n", after):
            raise _ambiguous("a boundary is not alone in its line")
        looked, window = max(after, self._looked), after + _HEAD_MOST
        following = held.find(b"\r\n" + self._mark, looked, window)
        end = held.find(b"\r\n\r\n", looked, window if following < 0 else following)
        self._looked = 0 if end >= 0 else len(held) - len(self._mark) - 4
        if end < 0 <= following:  # to some parsers the part is empty, to others the boundary is its content or a header
            raise _ambiguous("a part has no line of content, not even an empty one")
        if end < 0:
            if len(held) - start > _HEAD_MOST:
                raise BadRequest(400, "invalid_form", f"a part of the form has headers of more than {_HEAD_MOST} bytes; send a form")
            return False
        head = bytes(held[start:end])
        if _LONE.search(head):
            raise _ambiguous("a line of a part's headers ends without both CR and LF")
        names = _names(head)
        if peer := next((name for name in names if is_peer_field(name)), None):
            raise refused_peer(peer)
        self._names_model = "model" in names
        if self._names_model and self.model is not None:
            raise BadRequest(400, "invalid_form", "model: is in the form twice; send it once", "model")
        self._content = self._place = end + 4
        return True

    def _end_part(self) -> bool:
        """Find the end of the current part's content, if it has arrived. Return whether it has."""
        held, content = self._held, self._content or 0
        end = held.find(b"\r\n" + self._mark, self._place)
        if end < 0:
            self._place = max(self._place, len(held) - len(self._mark) - 1)
            return False
        if self._names_model:
            self._value = (content, end)
            self.model = held[content:end].decode("utf-8", "replace").strip()
        self._content = None
        self._place = end + 2
        return True


def _names(head: bytes) -> list[str]:
    """Return the names that different parsers may read from the headers of a part. Raises BadRequest for a name in a
    form that RFC 7578 (section 4.2) forbids.
    """
    names: list[str] = []
    for disposition in _DISPOSITION.findall(head):
        for name, quoted, plain in _PARAMETER.findall(disposition):
            if name.lower().startswith(b"name*"):
                raise BadRequest(400, "invalid_form", "name*: cannot be used in a form; send name=")
            if name.lower() == b"name":
                names.append((quoted or plain).replace(b"\\", b"").decode("utf-8", "replace"))
    return names


def _ambiguous(what: str) -> BadRequest:
    """Return the 400 for a form in which an engine could find other fields than the gateway finds."""
    return BadRequest(400, "invalid_form", f"the form can be read in two ways, as {what}; send it as RFC 7578 says")

"""Entity tags. A tag identifies the version of a response that a client has seen; a change can depend on it. Each JSON
response to a read has an ETag; a client that already has that version gets 304 without a body.
"""

import re
from collections.abc import MutableMapping
from typing import Annotated, Any

import msgspec
import xxhash
from fastapi import Header
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.errors import InvalidInput
from fairlead_api.infra.errors import Changed

_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAGS = re.compile(rf"\s*(?:\*|{_TAG}(?:\s*,\s*{_TAG})*)\s*")

IfMatch = Annotated[
    str | None,
    Header(max_length=1000, description="The ETag that was read; if the object has changed since, the write is refused with 412."),
]


def tag_of(content: bytes) -> str:
    """Return the strong entity tag of a representation: equal bytes have equal tags."""
    return f'"{xxhash.xxh3_128_hexdigest(content)}"'


def matches(header: str, tag: str) -> bool:
    """Return whether the header If-None-Match contains the tag, by weak comparison, as RFC 9110 requires."""
    return header.strip() == "*" or tag in re.findall(_TAG, header.replace("W/", ""))


def require_unchanged(if_match: str | None, what: str, present: object) -> None:
    """Check the header If-Match of a write. Raises Changed if the header has tags, and none of them is the tag of the
    present response to GET; InvalidInput if the header is not a list of tags. Without the header, nothing is checked.
    Weak tags never match.
    """
    if if_match is None:
        return
    if not _TAGS.fullmatch(if_match):
        raise InvalidInput("if-match", if_match, 'write the ETag exactly as received, with its quotes ("…"), or *')
    tag = tag_of(msgspec.json.encode(present))
    if if_match.strip() != "*" and tag not in [one for one in re.findall(_TAG, if_match) if not one.startswith("W/")]:
        raise Changed(what, tag)


_LEFT_OUT = frozenset({b"content-length", b"content-type"})


class Tagging:
    """Middleware over GET /v1 that adds entity tags to responses sent in one piece; streams pass unchanged."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        wanted = dict(scope["headers"]).get(b"if-none-match", b"").decode("latin-1")
        held: MutableMapping[str, Any] | None = None

        async def tagged(message: MutableMapping[str, Any]) -> None:
            nonlocal held
            if message["type"] == "http.response.start":
                headers = dict(message["headers"])
                whole = message["status"] == 200 and headers.get(b"content-type") == b"application/json" and b"content-length" in headers
                if whole and b"x-fairlead-stale" not in headers:
                    held = message
                    return
            elif held is not None:
                start, held = held, None
                tag = tag_of(message.get("body", b""))
                start["headers"] = [*start["headers"], (b"etag", tag.encode()), (b"cache-control", b"private, no-cache")]
                if wanted and matches(wanted, tag):
                    start["status"] = 304
                    start["headers"] = [one for one in start["headers"] if one[0] not in _LEFT_OUT]
                    message = {"type": "http.response.body", "body": b"", "more_body": False}
                await send(start)
            await send(message)

        await self._app(scope, receive, tagged)

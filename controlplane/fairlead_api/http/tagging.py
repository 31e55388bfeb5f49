"""Tags what is read: each JSON answer has an ETag, and one that the caller has already is told so by 304 without it."""

from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead_api.http.tags import matches, tag_of

_LEFT_OUT = frozenset({b"content-length", b"content-type"})


class Tagging:
    """Middleware over GET /v1, for answers that come in one piece; streams pass as they are."""

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

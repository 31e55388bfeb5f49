"""`/docs`: the operations of the control API, each with a form that calls it with the rights of the signed-in person.

The browser has no API token, only the cookie with the session's token, so calls go through the web UI. Each call, even
a read, contains the page's form token, so that other sites cannot send calls.
"""

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fairlead.errors import InvalidInput
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.visits import Visit

PUBLIC = "/v1/"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
NEVER_ENDS = "/v1/live"
PASSED = ("content-type", "etag", "retry-after", "x-request-id", "content-disposition")
"""Headers of the API's response that the page shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplorerPage(Context):
    template: ClassVar[str] = "pages/explorer.html"
    shell: Shell


async def show(visit: Visit) -> Response:
    shell = await visit.shell("API", "explorer", crumbs=(Crumb(words="API"),))
    return visit.page(ExplorerPage(shell=shell))


async def document(visit: Visit) -> Response:
    """Respond with the OpenAPI document, without operations that only processes may call, and without the token, which
    the web UI adds to each call.
    """
    whole = json.loads(b"".join([chunk async for chunk in visit.api.export("/openapi.json")]))
    return JSONResponse(for_people(whole))


def for_people(whole: dict[str, Any]) -> dict[str, Any]:
    """Return those operations of an OpenAPI document that a person can try on this page."""
    paths = {path: _open(methods) for path, methods in whole["paths"].items() if path.startswith(PUBLIC) and path != NEVER_ENDS}
    components = {key: value for key, value in whole["components"].items() if key != "securitySchemes"}
    return {**whole, "paths": paths, "components": components}


def _open(methods: dict[str, Any]) -> dict[str, Any]:
    """Return the operations of a path without the requirement of a token, because the web UI adds the token to each
    call.
    """
    return {method: {key: value for key, value in one.items() if key != "security"} for method, one in methods.items()}


async def call(visit: Visit) -> Response:
    """Send the call that the page requests to the API, and pass on the API's response unchanged, even a refusal."""
    try:
        method, path, body = asked_for(await _sent(visit.request))
    except InvalidInput as error:
        return JSONResponse({"title": "Not a request of this page", "status": 422, "detail": str(error)}, 422)
    answer = await visit.api.relayed(method, path, body)
    return Response(answer.content, answer.status_code, {name: answer.headers[name] for name in PASSED if name in answer.headers})


async def _sent(request: Request) -> bytes:
    """Return the JSON body that the page sent; empty for a submitted form, which this page never sends."""
    return await request.body() if request.headers.get("content-type", "").startswith("application/json") else b""


def asked_for(given: bytes) -> tuple[str, str, bytes | None]:
    """Return the method, the path with its query, and the body of the operation that the page wants to call. Raises
    InvalidInput if `given` describes no operation that it may call.
    """
    try:
        asked = json.loads(given)
        method, path, body = asked["method"], asked["path"], asked.get("body")
    except (ValueError, TypeError, KeyError):
        raise InvalidInput("body", "…", "is not what the page sends; reload the page") from None
    if method not in METHODS:
        raise InvalidInput("method", str(method), f"write one of {', '.join(METHODS)}")
    if not isinstance(path, str) or not path.startswith(PUBLIC) or ".." in path.partition("?")[0].split("/") or path.startswith(NEVER_ENDS):
        raise InvalidInput("path", str(path), f"write a path below {PUBLIC} whose answer ends")
    return method, path, None if body is None else str(body).encode()


ROUTES = Routes(pages={"/docs": show, "/docs/openapi.json": document}, writes={"/docs/call": call})

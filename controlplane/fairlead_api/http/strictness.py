"""Reads requests strictly before a handler runs. All endpoints share one reader of JSON bodies. A repeated query
parameter, or one that the endpoint does not have, is an error.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_dependant
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.errors import InvalidInput
from fairlead_api.http.bodies import MalformedBody, check_json
from fairlead_api.http.problems import of_input, of_malformed, of_too_large, problem_response
from fairlead_client import internal_paths

LARGEST_CHECKED = 2 * 1024 * 1024
"""Maximum number of bytes of a body that is read strictly. Decoded JSON may take forty times its size in memory, so a
larger body is refused, with two exceptions: a body sent by a process, and a simulation's request with its trace, for
which there is a separate decoder.
"""

LARGEST_OF_STRANGERS = 64 * 1024
"""Maximum number of bytes of the body of a login, whose sender is still unknown."""

CLUSTER_AUDIT = "/v1/kubernetes/audit"
"""Path of the webhook that takes the Kubernetes API's audit events."""

OWN_DECODERS = (internal_paths.REPORTS, internal_paths.PREDICTOR_MODELS, CLUSTER_AUDIT)
"""Paths to which routers and the Kubernetes API send, and whose bodies are decoded directly into their types. If a row
of a body does not fit its type, the body is decoded again row by row.
"""


class StrictBodies:
    """Middleware that responds with 400 or 422 to a body that `check_json` refuses."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in {"GET", "HEAD", "OPTIONS"} or scope["path"] in OWN_DECODERS:
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        messages: list[MutableMapping[str, Any]] = []
        try:
            content = await _content(scope, receive, messages)
            if content is not None and content.strip():
                check_json(content)
        except MalformedBody as error:
            await problem_response(request, of_malformed(error))(scope, receive, send)
            return
        except InvalidInput as error:
            await problem_response(request, of_input(error))(scope, receive, send)
            return
        except HTTPException as error:  # raised by `receive`, outside of the framework's own handlers
            await problem_response(request, of_too_large(error))(scope, receive, send)
            return

        async def again() -> MutableMapping[str, Any]:
            return messages.pop(0) if messages else await receive()

        await self._app(scope, again, send)


async def _content(scope: Scope, receive: Receive, messages: list[MutableMapping[str, Any]]) -> bytes | None:
    """Return the whole request body; None if it was cut off, or if it is larger than LARGEST_CHECKED and the path
    allows that.

    Received messages are appended to `messages`. Raises HTTPException 413 if the body is larger than the path allows.
    """
    most = LARGEST_CHECKED if "caller" in scope["state"] else LARGEST_OF_STRANGERS
    may_be_larger = scope["path"].startswith("/internal/") or scope["path"].endswith("/simulations")
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        messages.append(message)
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            if may_be_larger:
                return None
            raise HTTPException(413, f"the body is over {most} bytes; send less")
        if not message.get("more_body", False):
            return b"".join(parts)


OPEN = ("/internal/", "/v1/kubernetes/")
"""Prefixes of the paths that accept unknown query parameters. A newer router may send more parameters than an older API
knows, and the Kubernetes API adds a `timeout`.
"""


def close(route: APIRoute) -> None:
    """Make a route refuse unknown query parameters. They are checked after the caller's rights. The 422 names the
    unknown parameter, the known parameter with the most similar name, and all known parameters. Paths that programs of
    other versions call still accept unknown parameters.
    """
    if route.path.startswith(OPEN):
        return
    known = parameters_of(route)

    async def check(request: Request) -> None:
        check_parameters(known, request)

    # the last of its dependencies, so that a caller without the role gets that refusal first
    route.dependant.dependencies.append(get_dependant(path=route.path_format, call=check))


def check_parameters(known: Mapping[str, bool], request: Request) -> None:
    """Raises InvalidInput for an unknown query parameter, and for a repeated parameter that may be given only once.
    `known` has the known parameters, each with True if it may be repeated.
    """
    for name in request.query_params:
        values = request.query_params.getlist(name)
        if name not in known:
            raise InvalidInput(name[:200], values[0], _remedy(name[:200], list(known)))
        if len(values) > 1 and not known[name]:
            raise InvalidInput(name, ", ".join(values), "write it once")


def _remedy(name: str, known: list[str]) -> str:
    if not known:
        return "remove it; this path has no parameters"
    near = get_close_matches(name.lower(), known, n=1)
    return f"{f'write {near[0]}' if near else 'remove it'}; known parameters: {', '.join(known)}"


def parameters_of(route: APIRoute) -> dict[str, bool]:
    """Return a route's query parameters, including the parameters of its dependencies, each with True if it may be
    repeated.
    """
    return dict(_parameters(route.dependant))


def _parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    for one in dependant.query_params:
        kind = one.field_info.annotation
        yield one.alias, any(get_origin(part) is list for part in (kind, *get_args(kind)))
    for below in dependant.dependencies:
        yield from _parameters(below)

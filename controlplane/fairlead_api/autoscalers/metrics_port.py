"""Serves external metrics to the Kubernetes API at a port: identifies the caller, checks its rights, and returns the
documents.
"""

import asyncio
import json
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from fairlead.errors import InvalidInput
from fairlead_api.autoscalers.delegation import Delegation, User
from fairlead_api.autoscalers.external_metrics import DOCUMENTS, GROUP, VERSION, metric_at, status, value_list
from fairlead_api.autoscalers.figures import WINDOWS, LatestFigures
from fairlead_api.infra.errors import ServiceError, Unavailable
from fairlead_api.infra.kubernetes import Kubernetes
from fairlead_process.certificates import LOOK_SECONDS, Certificate
from fairlead_process.doors import Door
from fairlead_process.http_connections import serving_beside

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

HEALTH = ("/healthz", "/livez", "/readyz")
RETRY_SECONDS = 5.0
"""Seconds between attempts to read the front proxy's authorities while these are unknown."""

_log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """An HTTP status and its document."""

    code: int
    document: Mapping[str, Any]


class ExternalMetrics:
    """The ASGI application of the port for external metrics."""

    def __init__(self, figures: LatestFigures, delegation: Delegation) -> None:
        self._figures = figures
        self._delegation = delegation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answer(scope)
        headers = [(b"content-type", b"application/json"), *((b"retry-after", b"5") for _ in range(answer.code == 503))]
        await send({"type": "http.response.start", "status": answer.code, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(answer.document).encode()})

    async def _answer(self, scope: Scope) -> Answer:
        if scope["path"] in HEALTH:
            return Answer(200, {"status": "ok"})
        try:
            return await self._permitted(scope)
        except Unavailable as error:
            return _refusal(503, str(error))
        except (ServiceError, InvalidInput) as error:
            _log.warning("external metrics: the Kubernetes API did not check a caller", extra={"error": str(error)})
            return _refusal(503, "the Kubernetes API did not say whether you may read this")

    async def _permitted(self, scope: Scope) -> Answer:
        user = await self._delegation.user_of(scope["state"]["client_certificate"], scope["headers"])
        if user is None:
            return _refusal(401, "Unauthorized")
        asked = metric_at(scope["path"])
        verb = "get" if scope["method"] in ("GET", "HEAD") else scope["method"].lower()
        if not await self._delegation.allows(user, attributes(scope["path"], asked, verb)):
            return _refusal(403, _forbidden(user, scope["path"], asked, verb))
        if verb != "get":
            return _refusal(405, "external metrics are only read")
        return self._document(scope, asked)

    def _document(self, scope: Scope, asked: tuple[str, str] | None) -> Answer:
        if asked is None:
            found = DOCUMENTS.get(scope["path"])
            return _refusal(404, "the server could not find the requested resource") if found is None else Answer(200, found)
        namespace, metric = asked
        if metric not in WINDOWS:
            return _refusal(404, f"there is no metric {metric!r}; there are {', '.join(WINDOWS)}")
        selector = parse_qs(scope["query_string"].decode("latin-1")).get("labelSelector", [""])[-1]
        try:
            return Answer(200, value_list(self._figures.samples(namespace), metric, selector, self._figures.at()))
        except InvalidInput as error:
            return _refusal(400, str(error))


def attributes(path: str, asked: tuple[str, str] | None, verb: str) -> Mapping[str, Mapping[str, str]]:
    """Return the attributes of a SubjectAccessReview for a request. A `get` of a metric counts as `list`, because the
    metric's path names no object.
    """
    if asked is None:
        return {"nonResourceAttributes": {"path": path, "verb": verb}}
    listed = "list" if verb == "get" else verb
    return {"resourceAttributes": {"group": GROUP, "version": VERSION, "resource": asked[1], "namespace": asked[0], "verb": listed}}


def _forbidden(user: User, path: str, asked: tuple[str, str] | None, verb: str) -> str:
    if asked is None:
        return f'forbidden: User "{user.name}" cannot {verb} path "{path}"'
    listed = "list" if verb == "get" else verb
    return (
        f'{asked[1]}.{GROUP} is forbidden: User "{user.name}" cannot {listed} resource "{asked[1]}" in API group "{GROUP}" '
        f'in the namespace "{asked[0]}"'
    )


def _refusal(code: int, message: str) -> Answer:
    return Answer(code, status(code, message))


@asynccontextmanager
async def serving_metrics(
    figures: LatestFigures, cluster: Kubernetes, listener: socket.socket, door: Door, certificate: Certificate
) -> AsyncIterator[None]:
    """Serve external metrics to the Kubernetes API at a bound socket while the block runs."""
    delegation = Delegation(cluster, certificate)
    following = asyncio.create_task(_follow(delegation, certificate), name="front proxy")
    try:
        async with serving_beside(ExternalMetrics(figures, delegation), listener, door, "external metrics", certificate.context):
            yield
    finally:
        following.cancel()


async def _follow(delegation: Delegation, certificate: Certificate) -> None:
    """Keep the front proxy's authorities and the port's own certificate up to date."""
    while True:
        certificate.look(time.monotonic())
        await delegation.refresh()
        await asyncio.sleep(LOOK_SECONDS if delegation.is_known else RETRY_SECONDS)

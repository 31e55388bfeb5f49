"""`SystemApi`: the internal protocol between the control API and the operator or routers, one method per endpoint.

Each call is made once and returns its outcome as a value: accepted (`Taken`), permanently refused (`Refused`), or
possible later (`Later`). The caller decides whether, when and what to send again.
"""

from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from urllib.parse import quote, urlencode

import httpx
import msgspec

from fairlead.pool_states import HeldPools, PoolEvent, PoolEvents, PoolObservations, PoolState, UnheardPools
from fairlead.reports.batches import ReportReceipt, RouterGone, RouterState
from fairlead.reports.predictors import SharedModel, TrainedModel
from fairlead.tables import PoolKey
from fairlead_client import internal_paths, protocol
from fairlead_client.addresses import reaching
from fairlead_client.http_clients import BY_PIECES, LARGEST_ANSWER, BoundedClient, NotReadable, decoded
from fairlead_client.lines import LineCutter, StreamLine
from fairlead_client.outcomes import Answer, Cause, Later, Outcome, Refused, Taken
from fairlead_client.problems import StreamLost, UnreadableLine, told
from fairlead_client.report_posts import post_body
from fairlead_client.resources.problems import Problem

SILENCE_SECONDS = 7.0
"""Seconds without data after which a stream counts as dead; the API sends a heartbeat every 2 s."""
REPORT_SECONDS = 30.0
"""Time limit for a post of reports."""
REFUSED_FOR_EVER = frozenset({400, 413, 422})
"""Statuses of refusals that stay the same however often the same body is sent."""


class SystemApi:
    """A client of the control API at `urls` (one address, or several of the same API), authenticated by `token`.

    `timeout_seconds` bounds each wait of a call, `connect_seconds` the wait for a connection. `transport` replaces the
    network in tests.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        token: str,
        *,
        timeout_seconds: float = 10.0,
        connect_seconds: float = 5.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._connect_seconds = connect_seconds
        base_url, transport = reaching(urls, transport)
        self._http = BoundedClient(
            LARGEST_ANSWER,
            base_url=base_url,
            headers={"authorization": f"Bearer {token}", "accept": "application/json", protocol.HEADER: str(protocol.VERSION)},
            transport=transport,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> "SystemApi":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    # ── as the operator ──

    async def put_state(self, pool: PoolKey, state: PoolState) -> Outcome[PoolObservations]:
        """Send everything observed about a pool, and get the routers' observations of the pool. Repeating the call
        changes nothing.
        """
        outcome = await self._send("PUT", _of(pool, internal_paths.POOL_STATE), msgspec.json.encode(state))
        return _read(outcome, PoolObservations)

    async def post_events(self, pool: PoolKey, events: Sequence[PoolEvent]) -> Outcome[None]:
        """Add events to a pool's history. An event that is sent again is stored once."""
        body = msgspec.json.encode(PoolEvents(events=tuple(events)))
        return _done(await self._send("POST", _of(pool, internal_paths.POOL_EVENTS), body))

    async def held_pools(self) -> Outcome[HeldPools]:
        """Return the pools for which routers hold requests."""
        return _read(await self._send("GET", internal_paths.HELD_POOLS, b""), HeldPools)

    async def unheard_pools(self, seconds: float) -> Outcome[UnheardPools]:
        """Return the pools for which no state has arrived for this many seconds."""
        path = f"{internal_paths.UNHEARD_POOLS}?{urlencode({'seconds': seconds})}"
        return _read(await self._send("GET", path, b""), UnheardPools)

    async def delete_pool(self, pool: PoolKey) -> Outcome[None]:
        """Report that the pool no longer exists. If the API does not know the pool (404), the report counts as
        accepted, so it may be repeated.
        """
        return _done(await self._send("DELETE", _of(pool, internal_paths.POOL), b"", done=frozenset({404})))

    # ── as a router ──

    async def stream(self, router: str, *, silence_seconds: float = SILENCE_SECONDS) -> AsyncGenerator[StreamLine, None]:
        """Yield tables and bindings: first a snapshot, then SyncedLine, then every change.

        The stream ends only with StreamLost, which is also raised after `silence_seconds` without a line.
        """
        cutter = LineCutter()
        timeout = httpx.Timeout(self._connect_seconds, read=silence_seconds)
        try:
            async with self._http.stream(
                "GET", internal_paths.STREAM, params={"router": router}, timeout=timeout, extensions=BY_PIECES
            ) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise StreamLost(f"the control API answered {_words(response)}")
                async for piece in response.aiter_raw():
                    for line in cutter.feed(piece):
                        yield line
        except UnreadableLine as error:
            raise StreamLost(str(error)) from error
        except httpx.HTTPError as error:
            raise StreamLost(_in_one_line(error)) from error
        raise StreamLost("the control API ended the stream")

    async def post_reports(
        self, batches: Sequence[bytes], state: RouterState, *, seconds: float = REPORT_SECONDS, behind: Sequence[float] = ()
    ) -> Outcome[tuple[ReportReceipt, ...]]:
        """Send one or more consecutive batches (of `encode_batch`) of one router; return a receipt for each batch, in
        order. For `behind` see `post_body`.

        The API stores each batch only once, even if it is sent several times. `Later` with Cause.UNREADABLE means that
        the batches were stored but the receipts cannot be read.
        """
        body = post_body(batches, state, behind)
        outcome = await self._send("POST", internal_paths.REPORTS, body, seconds=seconds)
        return _read(outcome, tuple[ReportReceipt, ...])

    async def post_model(self, model: TrainedModel) -> Outcome[None]:
        """Send a model that this router has trained. A model that is sent again changes nothing."""
        return _done(await self._send("POST", internal_paths.PREDICTOR_MODELS, msgspec.json.encode(model)))

    async def newest_model(self, pool: PoolKey) -> Outcome[SharedModel]:
        """Return the newest model of a pool, regardless of the router that trained it."""
        path = f"{internal_paths.PREDICTOR_MODELS}?{urlencode({'namespace': pool.namespace, 'name': pool.name})}"
        return _read(await self._send("GET", path, b""), SharedModel)

    async def post_router_gone(self, gone: RouterGone) -> Outcome[None]:
        """Send a router's last message."""
        return _done(await self._send("POST", internal_paths.ROUTER_GONE, msgspec.json.encode(gone)))

    # ── one call ──

    def _timeout(self, seconds: float) -> httpx.Timeout:
        return httpx.Timeout(seconds, connect=min(self._connect_seconds, seconds))

    async def _send(
        self, method: str, path: str, body: bytes, *, seconds: float | None = None, done: frozenset[int] = frozenset()
    ) -> Outcome[bytes]:
        """Make one call.

        `seconds` replaces the usual bound of each wait; `done` lists statuses besides 2xx that mean success.
        """
        headers = {"content-type": "application/json"} if body else None
        timeout = self._timeout(self._timeout_seconds if seconds is None else seconds)
        try:
            response = await self._http.request(method, path, content=body, headers=headers, timeout=timeout)
        except httpx.HTTPError as error:
            cause = Cause.TIMED_OUT if isinstance(error, httpx.ReadTimeout) else Cause.UNREACHABLE
            return Later(cause=cause, problem=f"{method} {path}: {_in_one_line(error)}")
        status = response.status_code
        if response.is_success or status in done:
            return Taken(response.content)
        problem = f"{method} {path}: {_words(response)}"
        if status in REFUSED_FOR_EVER:
            return Refused(problem=problem)
        return Later(cause=_cause(status), problem=problem, retry_after_seconds=_retry_after(response))


def _words(response: httpx.Response) -> str:
    """Return the status and the problem document's text in one line. Without a problem document, the beginning of the
    body takes the place of its text.
    """
    try:
        problem = decoded(response.content, Problem)
        words = f"{problem.type}: {told(problem)}"
    except NotReadable:
        words = response.text
    return f"{response.status_code} {' '.join(words.split())[:400]}".rstrip()


def _cause(status: int) -> Cause:
    if status == 500:
        return Cause.FAULT
    return Cause.UNAVAILABLE if status == 429 or status > 500 else Cause.DECLINED


def _read(outcome: Outcome[bytes], answer: type[Answer]) -> Outcome[Answer]:
    if not isinstance(outcome, Taken):
        return outcome
    try:
        return Taken(decoded(outcome.answer, answer))
    except NotReadable as error:
        return Later(cause=Cause.UNREADABLE, problem=f"the control API's answer cannot be read: {error}")


def _done(outcome: Outcome[bytes]) -> Outcome[None]:
    return Taken(None) if isinstance(outcome, Taken) else outcome


def _retry_after(response: httpx.Response) -> float | None:
    """Return the seconds of a Retry-After header; None without such a header, or if its value is a date."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else None


def _in_one_line(error: httpx.HTTPError) -> str:
    return f"{type(error).__name__} {' '.join(str(error).split())}".rstrip()


def _of(pool: PoolKey, path: str) -> str:
    return path.format(namespace=quote(pool.namespace, safe=""), name=quote(pool.name, safe=""))

"""The operator's conversation with the control API: states out, observations back, events, deletions."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from fairlead.pool_states import PoolEvent, PoolObservations, PoolState
from fairlead.tables import PoolKey
from fairlead_operator.backoff import ServerBackoff
from fairlead_operator.settings import ControlPlaneSettings

Answer = TypeVar("Answer")


class ControlPlaneSilent(Exception):
    """The control API gave no usable answer; `str` is one line saying why, `retry_in` for how many seconds nobody may ask again.

    ControlPlaneSilent
    └── ControlPlaneRefused   it understood and will never take this body; repeating it is pointless
    """

    def __init__(self, message: str, retry_in: float = 0.0) -> None:
        self.retry_in = retry_in
        super().__init__(message)


class ControlPlaneRefused(ControlPlaneSilent):
    """Answered 400, 413 or 422."""


class ControlPlane(Protocol):
    """Every method raises ControlPlaneSilent."""

    async def put_state(self, pool: PoolKey, state: PoolState) -> PoolObservations:
        """Tell everything that is observed; learn what the routers do."""

    async def post_events(self, pool: PoolKey, events: Sequence[PoolEvent]) -> None:
        """Add to the pool's history."""

    async def delete_pool(self, pool: PoolKey) -> None:
        """The pool is gone. Telling it twice is fine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Events:
    events: tuple[PoolEvent, ...]


class HttpControlPlane:
    """`ControlPlane` over HTTP. While it does not answer one pool, no other asks either: `pauses` says until when."""

    def __init__(self, settings: ControlPlaneSettings, pauses: ServerBackoff, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._pauses = pauses
        self._places = asyncio.Semaphore(settings.calls_at_once)
        self._client = httpx.AsyncClient(
            base_url=settings.url,
            headers={"Authorization": f"Bearer {settings.token}", "Content-Type": "application/json"},
            timeout=httpx.Timeout(settings.timeout_seconds, connect=min(1.0, settings.timeout_seconds)),
            transport=transport,
            trust_env=False,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def put_state(self, pool: PoolKey, state: PoolState) -> PoolObservations:
        answer = await self._send("PUT", _path(pool, "/state"), msgspec.json.encode(state))
        try:
            return msgspec.json.decode(answer, type=PoolObservations)
        except msgspec.DecodeError as error:
            raise ControlPlaneSilent(f"the control API answered what is no PoolObservations: {error}") from error

    async def post_events(self, pool: PoolKey, events: Sequence[PoolEvent]) -> None:
        await self._send("POST", _path(pool, "/events"), msgspec.json.encode(_Events(events=tuple(events))))

    async def delete_pool(self, pool: PoolKey) -> None:
        await self._send("DELETE", _path(pool), b"", fine=frozenset({404}))

    async def _send(self, method: str, path: str, body: bytes, fine: frozenset[int] = frozenset()) -> bytes:
        async with self._places:
            return await self._ask(method, path, body, fine)

    async def _ask(self, method: str, path: str, body: bytes, fine: frozenset[int]) -> bytes:
        left = self._pauses.left()
        if left > 0:
            raise ControlPlaneSilent(f"not asked again for {left:.0f} s after: {self._pauses.problem}", retry_in=left)
        asked_at = self._pauses.now()
        try:
            response = await self._client.request(method, path, content=body)
        except httpx.HTTPError as error:
            problem = f"{method} {path}: {type(error).__name__} {error}".rstrip()
            self._pauses.failed(asked_at, problem, None)
            raise ControlPlaneSilent(problem, retry_in=self._pauses.left()) from error
        return self._read(response, f"{method} {path}", asked_at, fine)

    def _read(self, response: httpx.Response, question: str, asked_at: float, fine: frozenset[int]) -> bytes:
        problem = f"{question}: {response.status_code} {' '.join(response.text.split())[:300]}"
        if response.status_code == 429 or response.status_code >= 500:
            self._pauses.failed(asked_at, problem, _retry_after(response))
            raise ControlPlaneSilent(problem, retry_in=self._pauses.left())
        self._pauses.answered()
        if response.is_success or response.status_code in fine:
            return response.content
        kind = ControlPlaneRefused if response.status_code in {400, 413, 422} else ControlPlaneSilent
        raise kind(problem)


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds of a Retry-After header; None without one, or when it is a date."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else None


def _path(pool: PoolKey, rest: str = "") -> str:
    return f"/internal/v1/pools/{quote(pool.namespace, safe='')}/{quote(pool.name, safe='')}{rest}"

"""The operator's conversation with the control API: states out, observations back, events, deletions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from fairlead.pool_states import PoolEvent, PoolObservations, PoolState
from fairlead.tables import PoolKey
from fairlead_operator.settings import ControlPlaneSettings

Answer = TypeVar("Answer")


class ControlPlaneSilent(Exception):
    """The control API gave no usable answer; `str` is one line saying why.

    ControlPlaneSilent
    └── ControlPlaneRefused   it understood and will never take this body; repeating it is pointless
    """


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
    """`ControlPlane` over HTTP."""

    def __init__(self, settings: ControlPlaneSettings, transport: httpx.AsyncBaseTransport | None = None) -> None:
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
        try:
            response = await self._client.request(method, path, content=body)
        except httpx.HTTPError as error:
            raise ControlPlaneSilent(f"{method} {path}: {type(error).__name__} {error}".rstrip()) from error
        if response.is_success or response.status_code in fine:
            return response.content
        kind = ControlPlaneRefused if response.status_code in {400, 413, 422} else ControlPlaneSilent
        raise kind(f"{method} {path}: {response.status_code} {' '.join(response.text.split())[:300]}")


def _path(pool: PoolKey, rest: str = "") -> str:
    return f"/internal/v1/pools/{quote(pool.namespace, safe='')}/{quote(pool.name, safe='')}{rest}"

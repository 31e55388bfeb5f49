"""Reads the metrics pages of instances' engines. A page's address is derived from the operator's reports."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import httpx
import msgspec
from sqlalchemy import select

from fairlead.engine_metrics import read_metrics
from fairlead.errors import InvalidInput
from fairlead.plausibility import METRICS_BYTES
from fairlead.table_content import MirroredFacts
from fairlead.tables import EngineFacts, PoolKey
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import Conflict, NotFound, Unavailable
from fairlead_api.infra.pool_rows import pool_row
from fairlead_api.tables import instances
from fairlead_client.http_clients import BoundedClient, UnboundedAnswer
from fairlead_client.resources.engine_metrics import EngineMetrics
from fairlead_process.tasks import beside_the_loop

PATIENCE_SECONDS = 4.0
LONGEST_SEARCH = 200
AT_ONCE = 4
"""Maximum number of metrics pages that are read at the same time, because each takes memory and a thread."""


class EnginePages:
    """Reads the metrics pages of engines. `address_of` returns the URL of a page. `transport` replaces the network in
    tests.
    """

    def __init__(
        self,
        address_of: Callable[[PoolKey, str], Awaitable[str]],
        now: Callable[[], datetime],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._address_of = address_of
        self._now = now
        self._transport = transport
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def metrics(self, pool: PoolKey, instance: str, search: str) -> EngineMetrics:
        """Return the engine's present metrics. Raises InvalidInput, NotFound, Conflict (no-address), Unavailable."""
        if len(search) > LONGEST_SEARCH:
            raise InvalidInput("search", f"{len(search)} characters", f"write at most {LONGEST_SEARCH}")
        url = await self._address_of(pool, instance)
        async with self._slots:
            page = await self._page(url)
            found = await beside_the_loop(len(page), read_metrics, page, search)
        return EngineMetrics(
            instance=instance,
            at=self._now(),
            size=len(page),
            families=found.families,
            families_in_all=found.families_in_all,
            unreadable=found.unreadable,
        )

    async def _page(self, url: str) -> bytes:
        try:
            async with (
                asyncio.timeout(PATIENCE_SECONDS),
                BoundedClient(METRICS_BYTES, timeout=PATIENCE_SECONDS, transport=self._transport) as http,
                http.stream("GET", url, headers={"accept": "text/plain"}) as answer,
            ):
                if answer.status_code != 200:
                    raise Unavailable(f"the engine answers {answer.status_code} at {httpx.URL(url).path}; see engine.metrics.path")
                return await answer.aread()
        except TimeoutError as error:
            raise Unavailable(f"the engine did not answer within {PATIENCE_SECONDS:g} s") from error
        except UnboundedAnswer as error:
            raise Unavailable(f"the engine {error}") from error
        except httpx.HTTPError as error:
            words = "the engine does not answer the control API; if it serves, look whether a NetworkPolicy lets the control API reach it"
            raise Unavailable(words) from error


class EngineAddresses:
    """Finds the addresses of instances' engines."""

    def __init__(self, reads: Database) -> None:
        self._reads = reads

    async def metrics_of(self, pool: PoolKey, instance: str) -> str:
        """Return the URL of an engine's metrics page. Raises NotFound, and Conflict (no-address)."""
        of = instances.c
        async with self._reads.reading() as connection:
            row = await pool_row(connection, pool)
            query = select(of.address).where(of.pool_id == row.id, of.id == instance, of.gone_at.is_(None))
            found = (await connection.execute(query)).one_or_none()
        if found is None:
            raise NotFound("instance", instance)
        if found.address is None:
            raise Conflict("no-address", f"{instance} has no address yet; its metrics can be read once its pod has started")
        return f"http://{found.address}{_path(row)}"


def _path(row: Any) -> str:
    """Return the path of the metrics page of a pool's engines. Before the pool has a routing table, this is the default
    path.
    """
    return (msgspec.convert(row.facts, MirroredFacts).table.engine if row.facts else EngineFacts()).metrics_path

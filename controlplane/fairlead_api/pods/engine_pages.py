"""Asks an instance's engine for its metrics page."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime

import httpx

from fairlead.engine_metrics import read_metrics
from fairlead.errors import InvalidInput
from fairlead.plausibility import METRICS_BYTES
from fairlead.tables import PoolKey
from fairlead_api.infra.errors import Unavailable
from fairlead_client.http_clients import BoundedClient, UnboundedAnswer
from fairlead_client.resources.engine_metrics import EngineMetrics
from fairlead_process.tasks import beside_the_loop

PATIENCE_SECONDS = 4.0
LONGEST_SEARCH = 200
AT_ONCE = 4
"""Pages that are read at the same time: each takes memory and a thread."""


class EnginePages:
    """Reads the metrics pages of engines, at the URL that `address_of` gives. `transport` stands for the network in
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
        """What the engine says now. Raises InvalidInput, NotFound, Conflict (no-address), Unavailable."""
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

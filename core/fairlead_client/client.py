"""`ControlApi`: one method per endpoint of the public API, returning the shared dataclasses.

It never retries, because only the caller knows whether it is worth waiting. `with_token` gives another identity the
same connection pool, so that one web process can serve many people. The endpoints are in `fairlead_client.public`,
grouped by subject; this module adds the text streams.
"""

from collections.abc import AsyncIterator

import httpx

from fairlead.tables import PoolKey
from fairlead_client.live import LiveEvent
from fairlead_client.problems import ApiUnreachable
from fairlead_client.public.access import AccessCalls
from fairlead_client.public.calling import Query, unreachable
from fairlead_client.public.findings import FindingCalls
from fairlead_client.public.history import HistoryCalls
from fairlead_client.public.plans import PlanCalls
from fairlead_client.public.pools import PoolCalls
from fairlead_client.public.webhooks import WebhookCalls

LARGEST_EVENT = 16 * 1024 * 1024
"""Maximum size of a live event, in bytes."""


class ControlApi(AccessCalls, PoolCalls, HistoryCalls, FindingCalls, PlanCalls, WebhookCalls):
    """All calls of the public API; see `ApiCalls` for the constructor's arguments and the errors that calls raise."""

    async def live(
        self, topics: tuple[str, ...], *, pool: PoolKey | None = None, last_event_id: str | None = None
    ) -> AsyncIterator[LiveEvent]:
        """Yield server-sent events, decoded. The stream ends when the API closes it.

        A first event `poll` means that too many streams are open and that the caller must poll instead.
        """
        query = {"topics": ",".join(topics), "pool": str(pool) if pool else None}
        headers = {"last-event-id": last_event_id} if last_event_id else {}
        async with self._streaming("/v1/live", query, httpx.Timeout(10.0, read=30.0), headers) as response:
            fields: dict[str, str] = {}
            async for line in _lines(response):
                if line:
                    name, _, value = line.partition(":")
                    fields[name] = (
                        f"{fields[name]}\n{value.removeprefix(' ')}" if name == "data" and "data" in fields else value.removeprefix(" ")
                    )
                    continue
                if "data" in fields:
                    yield LiveEvent(event=fields.get("event", "message"), data=fields["data"], id=fields.get("id"))
                fields = {}

    async def live_bytes(self, query: Query, *, last_event_id: str | None = None) -> AsyncIterator[bytes]:
        """Yield the live stream as raw bytes, for a proxy such as the web UI."""
        headers = {"last-event-id": last_event_id} if last_event_id else {}
        async with self._streaming("/v1/live", query, httpx.Timeout(10.0, read=30.0), headers) as response:
            async for chunk in response.aiter_raw():
                yield chunk

    async def relayed(self, method: str, path: str, body: bytes | None) -> httpx.Response:
        """Send a request with the given method, path and body. Return the API's response unchanged, even if it is a
        problem document.

        `path` includes its query, `body` is JSON. Raises ApiUnreachable if there is no response.
        """
        headers = {**self._headers(), "accept": "*/*", **({} if body is None else {"content-type": "application/json"})}
        try:
            return await self._http.request(method, path, content=body, headers=headers)
        except httpx.HTTPError as error:
            raise unreachable(error) from error

    async def export(self, path: str, filters: Query | None = None) -> AsyncIterator[bytes]:
        """Yield a whole list as the API streams it; `path` such as `/v1/migrations.csv`."""
        async with self._streaming(path, filters or {}, httpx.Timeout(10.0, read=60.0), {"accept": "*/*"}) as response:
            async for chunk in response.aiter_raw():
                yield chunk


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """Yield the lines of a stream of events. Raises ApiUnreachable for an event that is too long."""
    begun, of_event = bytearray(), 0
    async for piece in response.aiter_bytes():
        begun += piece
        if b"\n" in piece:
            *lines, begun = begun.split(b"\n")
            for line in lines:
                of_event = of_event + len(line) if line.strip() else 0
                yield line.decode(errors="replace").removesuffix("\r")
        if of_event + len(begun) > LARGEST_EVENT:
            raise ApiUnreachable(f"a live event of the control API has more than {LARGEST_EVENT} bytes")

"""An HTTP transport for tests with real API processes: it repeats a request whose answer says to try again later."""

import asyncio

import httpx

from fairlead_testing.waiting import PATIENCE_SECONDS


class PatientTransport(httpx.AsyncBaseTransport):
    """Repeats requests that are answered 503 with Retry-After.

    On a busy machine, an API process may believe for a moment that its database is away, and then gives this answer.
    """

    def __init__(self) -> None:
        self._inner = httpx.AsyncHTTPTransport(trust_env=False, verify=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        while True:
            answer = await self._inner.handle_async_request(request)
            if answer.status_code != 503 or "retry-after" not in answer.headers or loop.time() > deadline:
                return answer
            await answer.aclose()
            await asyncio.sleep(0.5)

    async def aclose(self) -> None:
        await self._inner.aclose()

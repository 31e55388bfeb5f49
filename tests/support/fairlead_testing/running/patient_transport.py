"""A client's network for tests with real API processes: an answer that says to come back later is asked for again."""

import asyncio

import httpx

from fairlead_testing.waiting import PATIENCE_SECONDS


class PatientTransport(httpx.AsyncBaseTransport):
    """On a busy machine a process may take its database for away for a moment, and answers 503 with Retry-After."""

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

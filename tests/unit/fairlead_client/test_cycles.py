"""A call of the API leaves no reference cycles for the garbage collector, because pages make hundreds of calls a
second.
"""

import gc
from typing import Any

import httpx
import msgspec

from fairlead_client.client import ControlApi
from fairlead_client.resources.access import Identity
from fairlead_testing.builders.wire_examples import example


async def test_a_call_leaves_no_cycles() -> None:
    body = msgspec.json.encode(example(Identity))

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=body)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://api") as http:
        api = ControlApi("", http=http)
        await api.whoami()
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            await api.whoami()
            gc.collect()
            left: list[Any] = list(gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
    assert [one for one in left if type(one).__module__.startswith("httpx")] == []

"""An engine's own metrics through the API: read at its address, bounded, and by the caller's rights."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from fairlead.instances import InstanceState
from fairlead.plausibility import METRICS_BYTES
from fairlead_client.problems import ApiProblem
from fairlead_testing.fakes.public_data.engine_pages import PAGE
from fairlead_testing.running.api import CHAT, SPEC, ApiInstance, a_state, an_instance

OK = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
MOVED = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/elsewhere\r\ncontent-length: 0\r\n\r\n"


@asynccontextmanager
async def engine(answer: Callable[[str], bytes]) -> AsyncIterator[tuple[str, list[str]]]:
    """Yield the address of a server that answers each path with these bytes, and the paths requested from it."""
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ", 2)[1]
        asked.append(path)
        writer.write(answer(path))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


async def status_of(api: ApiInstance, instance: str, search: str | None = None) -> int:
    with pytest.raises(ApiProblem) as found:
        await api.viewer.engine_metrics(CHAT, instance, search)
    return found.value.problem.status


async def test_a_viewer_reads_what_the_engine_says_and_searches_it(api: ApiInstance) -> None:
    async with engine(lambda _: OK + PAGE.encode()) as (address, asked):
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a", address=address)))
        page = await api.viewer.engine_metrics(CHAT, "a")
        some = await api.viewer.engine_metrics(CHAT, "a", "kv_cache")
    assert (page.instance, page.size, page.unreadable) == ("a", len(PAGE.encode()), 1)
    assert [one.name for one in some.families] == ["vllm:kv_cache_usage_perc"]
    assert asked == ["/metrics", "/metrics"]


async def test_the_page_is_read_where_the_pool_says(api: ApiInstance) -> None:
    async with engine(lambda _: OK + b"a 1\n") as (address, asked):
        spec = {**SPEC, "engine": {"type": "simulated", "metrics": {"path": "/own/metrics"}}}
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a", address=address), spec=spec))
        assert [one.name for one in (await api.viewer.engine_metrics(CHAT, "a")).families] == ["a"]
    assert asked == ["/own/metrics"]


async def test_what_cannot_be_read_is_refused_with_its_reason_and_no_other_address_is_asked(api: ApiInstance) -> None:
    answers = {"/metrics": MOVED}
    async with engine(lambda path: answers[path]) as (address, asked):
        none = an_instance("b", InstanceState.PENDING, address=None)
        silent = an_instance("c", address="127.0.0.1:1")
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a", address=address), none, silent))
        assert await status_of(api, "a") == 503, "a redirect is not followed"
        answers["/metrics"] = OK + b"a 1\n" * (METRICS_BYTES // 4 + 1)
        assert await status_of(api, "a") == 503, "too long"
        assert await status_of(api, "a", "x" * 201) == 422
        assert asked == ["/metrics", "/metrics"]
    assert (await status_of(api, "b"), await status_of(api, "c"), await status_of(api, "d")) == (409, 503, 404)

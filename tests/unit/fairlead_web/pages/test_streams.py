"""The stream of a page: a change arrives with the event that made it, rendered once for all viewers."""

import asyncio
import json
import zlib
from collections.abc import AsyncGenerator
from dataclasses import replace

import httpx
import pytest

from fairlead_client.resources.access import AccessRole
from fairlead_testing.fakes.public_api import pools
from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.web_client import ORIGIN, Visitor, visitor
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_web.live.api_connections import streaming
from fairlead_web.pages import streams

PARTS = "totals=state cards=state,membership migrations=migrations as-of=state none-such=state"
"""Parts of a page that are updated by events, not by `tick`, so that time does not matter here."""


@pytest.fixture(autouse=True)
def hears_before_it_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the fake greet at once, so that events pushed after a page's stream has opened reach it."""
    monkeypatch.setattr(streams, "FIRST_EVENT_SECONDS", PATIENCE_SECONDS)


async def told(
    one: Visitor, parts: str = PARTS, page: str = "/", encoding: str = "identity", reads: str | None = None
) -> AsyncGenerator[bytes, None]:
    headers = {"fairlead-page": page, "fairlead-parts": parts, "accept-encoding": encoding}
    headers |= {"fairlead-reads": reads} if reads else {}
    transport = streaming(one.http._transport)
    async with (
        httpx.AsyncClient(transport=transport, base_url=ORIGIN, cookies=one.http.cookies) as http,
        http.stream("GET", "/live?topics=pools,migrations", headers=headers) as answer,
    ):
        assert answer.status_code == 200
        async for piece in answer.aiter_raw():
            yield piece


async def until(stream: AsyncGenerator[bytes, None], ending: bytes, most: int = 20) -> bytes:
    seen = b""
    for _ in range(most):
        seen += await asyncio.wait_for(anext(stream), PATIENCE_SECONDS)
        if ending in seen:
            return seen
    raise AssertionError(seen)


async def test_the_parts_that_show_the_state_come_together_after_the_event() -> None:
    async with visitor() as one:
        stream = told(one)
        await until(stream, b"event: release")
        one.fake.push("pools", [one.fake.world.pool(name) for name in one.fake.world.pools_known])
        seen = await until(stream, b'hx-target="#as-of"')
        message = seen[seen.index(b"data: <hx-partial") :]
        assert b'hx-target="#totals"' in message
        assert b'hx-target="#cards"' in message
        assert b'hx-target="#migrations"' not in message, "no event spoke of migrations"
        assert b"none-such" not in message
        await stream.aclose()


async def test_a_change_of_state_renders_no_part_that_goes_by_time_alone() -> None:
    async with visitor() as one:
        stream = told(one, parts="status=state,tick mix=tick", page=f"/pools/{CHAT}")
        await until(stream, b"event: release")
        one.fake.requests.clear()
        one.fake.push("pools", [one.fake.world.pool(CHAT)])
        assert b"#mix" not in await until(stream, b'hx-target="#status"')
        asked = {path for _, path in one.fake.requests}
        assert f"/v1/pools/{CHAT}" in asked
        assert f"/v1/pools/{CHAT}/decision-reasons" not in asked
        await stream.aclose()


async def test_tabs_that_look_at_the_same_page_share_one_rendering() -> None:
    async with visitor() as one:
        streams = [told(one), told(one), told(one)]
        for stream in streams:
            await until(stream, b"event: release")
        one.fake.requests.clear()
        one.fake.push("pools", [one.fake.world.pool(name) for name in one.fake.world.pools_known])
        await asyncio.gather(*(until(stream, b"#cards") for stream in streams))
        assert [path for _, path in one.fake.requests].count("/v1/pools") == 1
        for stream in streams:
            await stream.aclose()


async def test_a_page_nobody_has_is_refused_and_the_events_go_on() -> None:
    async with visitor() as one:
        stream = told(one, page="/nowhere/at/all")
        await until(stream, b"event: release")
        for number in range(2):
            one.fake.push("pools", [one.fake.world.pool(name) for name in one.fake.world.pools_known][number:])
            seen = await until(stream, b"event: refused\ndata: 404\n\n")
            assert b"event: pools" in seen
            assert b"hx-partial" not in seen
        await stream.aclose()


async def test_parts_that_are_refused_say_why_and_all_of_them_come_when_they_can_be_had_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as one:
        known = one.fake.tokens["operator-token"]
        stream = told(one, parts="workspace=state status=state", page=f"/pools/{CHAT}")
        await until(stream, b"event: release")

        async def pushed(ending: bytes) -> bytes:
            one.fake.push("pools", [one.fake.world.pool(CHAT)])
            return await until(stream, ending)

        await pushed(b"#status")
        one.fake.tokens["operator-token"] = replace(known, role=AccessRole.NONE)
        assert b"hx-partial" not in await pushed(b"event: refused\ndata: 403\n\n")
        one.fake.tokens["operator-token"] = known
        with monkeypatch.context() as deleted:
            deleted.setattr(pools, "INSTANCES", {})
            await pushed(b"event: refused\ndata: 404\n\n")
        one.fake.broken.add(f"/v1/pools/{CHAT}")
        await pushed(b"event: refused\ndata: 503\n\n")
        one.fake.broken.clear()
        seen = await pushed(b"#status")
        assert b"#workspace" in seen, "nothing of it differs, but the tab must learn that it is live again"
        await stream.aclose()


async def test_an_event_of_which_the_page_reads_nothing_comes_in_one_piece_with_the_parts_that_it_changed() -> None:
    async with visitor() as one:
        pools = [one.fake.world.pool(name) for name in one.fake.world.pools_known]
        stream = told(one, reads="nothing")
        await until(stream, b"event: release")
        one.fake.push("pools", pools)
        seen = await until(stream, b"event: pools")
        assert b'hx-target="#totals"' in seen[seen.index(b"event: pools") :]
        await stream.aclose()


async def test_a_browser_that_takes_gzip_gets_each_piece_whole() -> None:
    async with visitor() as one:
        stream = told(one, encoding="gzip")
        unpacked = zlib.decompressobj(31)
        assert unpacked.decompress(await anext(stream)).startswith(b"event: release\ndata: ")
        one.fake.push("pools", [one.fake.world.pool(name) for name in one.fake.world.pools_known])
        text = b""
        while b"#cards" not in text:
            text += unpacked.decompress(await asyncio.wait_for(anext(stream), PATIENCE_SECONDS))
        await stream.aclose()


async def test_events_bring_what_the_page_reads_of_their_items_and_as_many_items() -> None:
    async with visitor() as one:
        pools = [one.fake.world.pool(name) for name in one.fake.world.pools_known]
        whole, some, none = told(one), told(one, reads="pools=name,serving instances=id"), told(one, reads="nothing")
        seen = []
        for stream in (whole, some, none):
            await until(stream, b"event: release")
        one.fake.push("pools", pools)
        for stream in (whole, some, none):
            text = await until(stream, b"event: pools")
            text += b"" if b"\n\n" in text[text.index(b"event: pools") :] else await until(stream, b"\n\n")
            seen.append(json.loads(text[text.index(b"data: [") + 6 :].partition(b"\n")[0]))
            await stream.aclose()
        assert [item["model"] for item in seen[0]] == [pool.model for pool in pools]
        assert seen[1] == [{"name": pool.name, "serving": pool.serving} for pool in pools]
        assert seen[2] == [{} for _ in pools]

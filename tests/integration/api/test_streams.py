"""The routers' stream and the live events, over replicas, gaps and readers that do not read."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlead_api.http import answers as streaming
from fairlead_api.http.answers import BoundedStream
from fairlead_api.streams import live, topics
from fairlead_api.streams.live import Snapshot
from fairlead_client.client import ControlApi
from fairlead_client.lines import BindingsLine, HeartbeatLine, PoolDeletedLine, StreamLine, SyncedLine, TableLine
from fairlead_client.live import LiveEvent
from fairlead_client.resources.access import AccessRole, TokenRequest
from fairlead_testing.running.api import CHAT, SECRETS, ApiInstance, a_binding, a_report, a_state, an_instance
from fairlead_testing.running.strict_system_api import StrictSystemApi
from fairlead_testing.waiting import PATIENCE_SECONDS


@asynccontextmanager
async def following(client: StrictSystemApi, router: str = "router-9") -> AsyncIterator["asyncio.Queue[StreamLine]"]:
    lines: asyncio.Queue[StreamLine] = asyncio.Queue()

    async def read() -> None:
        async for line in client.stream(router):
            await lines.put(line)

    reader = asyncio.create_task(read())
    try:
        yield lines
    finally:
        reader.cancel()
        await asyncio.wait([reader])


async def until(lines: "asyncio.Queue[StreamLine]", wanted: Callable[[StreamLine], bool]) -> StreamLine:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not wanted(line := await lines.get()):
            pass
        return line


async def test_a_table_made_at_one_replica_arrives_at_the_other(api: ApiInstance, start_api: Callable[[], Awaitable[ApiInstance]]) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    other = await start_api()
    async with following(other.router) as lines:
        await until(lines, lambda line: isinstance(line, TableLine) and line.table.version == 1)
        await until(lines, lambda line: isinstance(line, SyncedLine))
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b"), version=2))
        found = await until(lines, lambda line: isinstance(line, TableLine) and line.table.version == 2)
        assert isinstance(found, TableLine)
        assert [entry.id for entry in found.table.instances] == ["a", "b"]
        await until(lines, lambda line: isinstance(line, HeartbeatLine))
        await api.pool_operator.delete_pool(CHAT)
        await until(lines, lambda line: line == PoolDeletedLine(pool=CHAT))


async def test_many_bindings_of_one_report_reach_routers_complete(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    names = [f"{'long-session-name-' * 4}{number}" for number in range(300)]
    async with following(api.router) as lines:
        await until(lines, lambda line: isinstance(line, SyncedLine))
        await api.router.post_report(a_report("r1", bindings=tuple(a_binding(name, "a") for name in names)))
        bound: set[str] = set()
        while len(bound) < 300:
            line = await until(lines, lambda line: isinstance(line, BindingsLine))
            assert isinstance(line, BindingsLine)
            bound |= {binding.session for binding in line.bindings if binding.instance == "a" and binding.version == 1}
        assert bound == set(names)


async def test_a_reader_that_does_not_read_is_cut_off(api: ApiInstance, monkeypatch: Any) -> None:
    monkeypatch.setattr(BoundedStream, "patience_seconds", 0.3)
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    never = asyncio.Event()

    async def receive() -> MutableMapping[str, Any]:
        if not never.is_set():
            never.set()
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()  # the socket's buffer is full for ever

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "method": "GET",
        "path": "/internal/v1/stream",
        "raw_path": b"/internal/v1/stream",
        "query_string": b"router=router-stuck",
        "headers": [(b"authorization", f"Bearer {SECRETS['system-router']}".encode())],
        "http_version": "1.1",
        "scheme": "http",
        "server": ("api.test", 80),
        "client": ("127.0.0.1", 1),
        "root_path": "",
    }
    async with asyncio.timeout(PATIENCE_SECONDS):
        await api.app(scope, receive, send)


async def events_of(client: ControlApi, topics: tuple[str, ...], into: "asyncio.Queue[LiveEvent | None]", last: str | None = None) -> None:
    async for event in client.live(topics, last_event_id=last):
        await into.put(event)
    await into.put(None)


async def test_live_events_tell_pools_and_new_migrations(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    events: asyncio.Queue[LiveEvent | None] = asyncio.Queue()
    reader = asyncio.create_task(events_of(api.viewer, ("pools", "migrations"), events))
    first = await asyncio.wait_for(events.get(), PATIENCE_SECONDS)
    assert first is not None
    assert first.event == "pools"
    assert [pool["name"] for pool in json.loads(first.data)] == ["chat"]
    await api.router.post_report(a_report("r1", bindings=(a_binding("s", "a"),)))
    await api.router.post_report(a_report("r2", bindings=(a_binding("s", "b", previous="a", based_on=1),)))
    moved: LiveEvent | None = None
    async with asyncio.timeout(PATIENCE_SECONDS):
        while moved is None or moved.event != "migrations":
            moved = await events.get()
    assert [item["session"] for item in json.loads(moved.data)] == ["s"]
    reader.cancel()
    await asyncio.wait([reader])
    again: asyncio.Queue[LiveEvent | None] = asyncio.Queue()
    resumed = asyncio.create_task(events_of(api.viewer, ("migrations",), again, str(int(moved.id or 0) - 5000)))
    missed = await asyncio.wait_for(again.get(), PATIENCE_SECONDS)
    assert missed is not None
    assert [item["session"] for item in json.loads(missed.data)] == ["s"]
    resumed.cancel()
    await asyncio.wait([resumed])


async def test_live_events_tell_a_change_made_at_another_replica_when_it_is_made_and_not_at_their_next_look(
    api: ApiInstance, start_api: Callable[[], Awaitable[ApiInstance]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "Snapshot", lambda *, seconds, read: Snapshot(seconds=3600, read=read))
    other = await start_api()
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    events: asyncio.Queue[LiveEvent | None] = asyncio.Queue()
    reader = asyncio.create_task(events_of(other.viewer, ("instances",), events))

    async def told(instances: list[str]) -> None:
        shown = None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while shown != instances:
                event = await events.get()
                assert event is not None
                shown = [instance["id"] for instance in json.loads(event.data)]

    await told(["a"])
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b"), version=2))
    await told(["a", "b"])
    await api.pool_operator.delete_pool(CHAT)
    await told([])
    reader.cancel()
    await asyncio.wait([reader])


@pytest.mark.parametrize("change", ["revoked", "revoked with its session"])
async def test_a_live_stream_ends_soon_after_its_credential(api: ApiInstance, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "KNOWN_SECONDS", 0.0)
    monkeypatch.setattr(live, "KEEPALIVE_SECONDS", 0.1)
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    made = await api.admin.create_token(TokenRequest(name="guest", role=AccessRole.VIEWER, days=1))
    secret = made.secret or ""
    if change == "revoked with its session":
        secret = (await api.viewer.login(secret)).token
    events: asyncio.Queue[LiveEvent | None] = asyncio.Queue()
    reader = asyncio.create_task(events_of(api.viewer.with_token(secret), ("pools",), events))
    first = await asyncio.wait_for(events.get(), PATIENCE_SECONDS)
    assert first is not None
    await api.admin.revoke_token(made.id)
    await asyncio.wait({reader}, timeout=PATIENCE_SECONDS)
    assert reader.done()


async def test_a_fourth_live_stream_is_told_to_poll(api: ApiInstance) -> None:
    queues: list[asyncio.Queue[LiveEvent | None]] = [asyncio.Queue() for _ in range(4)]
    readers = []
    for queue in queues[:3]:
        readers.append(asyncio.create_task(events_of(api.viewer, ("pools",), queue)))
        await asyncio.wait_for(queue.get(), PATIENCE_SECONDS)
    await events_of(api.viewer, ("pools",), queues[3])
    told = [queues[3].get_nowait(), queues[3].get_nowait()]
    assert told[0] is not None
    assert (told[0].event, told[1]) == ("poll", None)
    for reader in readers:
        reader.cancel()
    await asyncio.wait(readers)
    third: asyncio.Queue[LiveEvent | None] = asyncio.Queue()
    reader = asyncio.create_task(events_of(api.viewer, ("pools",), third))
    found = await asyncio.wait_for(third.get(), PATIENCE_SECONDS)
    assert found is not None
    assert found.event == "pools"
    reader.cancel()
    await asyncio.wait([reader])

"""The stream of tables and bindings: snapshot, changes, heartbeats, and changes that a router missed while away."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest

from fairlead.reports.bindings import Binding
from fairlead.reports.shares import Apart, InstanceWork, PoolShare, placed
from fairlead.tables import PoolKey, RoutingTable
from fairlead_client import internal_paths
from fairlead_client.lines import (
    BindingsLine,
    GatewayKeysLine,
    HeartbeatLine,
    KeptSessionsLine,
    OthersLine,
    StreamLine,
    TableLine,
    encode_line,
)
from fairlead_client.problems import StreamLost
from fairlead_testing.running.api import CHAT, a_binding, a_report, a_state, an_instance
from fairlead_testing.running.seams import Clients, Seam, following
from fairlead_testing.waiting import PATIENCE_SECONDS


async def test_a_stream_is_a_snapshot_and_then_every_change(clients: Clients) -> None:
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a")))
    await clients.router.post_report(a_report("r1", bindings=(a_binding("old", "a", id="change-1"),)))
    async with following(clients.router_api) as followed:
        keys, kept, table, bindings = await followed.snapshot()
        assert keys == GatewayKeysLine(begins=True), "said even when there are none: a router must know that"
        assert kept == KeptSessionsLine(), "as of the keys"
        assert isinstance(table, TableLine)
        assert (table.table.pool, table.table.version, [entry.id for entry in table.table.instances]) == (CHAT, 1, ["a"])
        assert isinstance(bindings, BindingsLine)
        assert [(found.session, found.instance, found.version, found.change) for found in bindings.bindings] == [
            ("old", "a", 1, "change-1")
        ]
        await clients.operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b"), version=2))
        assert (await followed.until(TableLine)).table.version == 2
        await clients.router.post_report(a_report("r2", bindings=(a_binding("new", "b"),)))
        (found,) = (await followed.until(BindingsLine)).bindings
        assert (found.pool, found.session, found.instance, found.version, found.migrated_at) == (CHAT, "new", "b", 1, None)


async def test_an_empty_api_is_in_step_at_once_and_its_heart_beats(clients: Clients) -> None:
    async with following(clients.router_api) as followed:
        assert await followed.snapshot() == [GatewayKeysLine(begins=True), KeptSessionsLine()]
        for _ in range(3):
            await followed.until(HeartbeatLine)


async def test_who_comes_back_hears_what_was_missed(clients: Clients) -> None:
    other = PoolKey(namespace="default", name="other")
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    await clients.operator.put_pool_state(other, a_state(an_instance("c"), uid="uid-9"))
    await clients.router.post_report(a_report("r1", bindings=(a_binding("s", "a"),)))
    async with following(clients.router_api) as followed:
        assert len([line for line in await followed.snapshot() if isinstance(line, TableLine)]) == 2
    await clients.operator.delete_pool(other)
    await clients.router.post_report(a_report("r2", bindings=(a_binding("s", "b", previous="a", based_on=1),)))
    async with following(clients.router_api) as followed:
        missed = await followed.snapshot()
    assert [line.table.pool for line in missed if isinstance(line, TableLine)] == [CHAT]
    bindings = [binding for line in missed if isinstance(line, BindingsLine) for binding in line.bindings]
    assert [(found.session, found.instance, found.version) for found in bindings] == [("s", "b", 2)]


async def test_a_table_of_many_pieces_is_one_line(clients: Clients) -> None:
    names = [f"instance-with-a-long-name-{number:04}" for number in range(1200)]
    await clients.operator.put_pool_state(CHAT, a_state(*(an_instance(name) for name in names)))
    table = (await clients.router.tables())[CHAT]
    assert [entry.id for entry in table.instances] == names
    assert len(encode_line(TableLine(table=table))) > 2 * 65536


async def test_many_bindings_come_in_several_lines_and_none_is_missing(clients: Clients) -> None:
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a")))
    sessions = {f"s{number}" for number in range(1200)}
    await clients.router.post_report(a_report("r1", bindings=tuple(a_binding(name, "a") for name in sorted(sessions))))
    async with following(clients.router_api) as followed:
        lines = [line for line in await followed.snapshot() if isinstance(line, BindingsLine)]
    assert len(lines) > 1
    assert {binding.session for line in lines for binding in line.bindings} == sessions


async def test_a_stream_that_falls_silent_is_lost(clients: Clients) -> None:
    stream = clients.router_api.stream("router-0", silence_seconds=0.05)  # the heart beats every 0.2 s here
    with pytest.raises(StreamLost, match="ReadTimeout"):
        await asyncio.wait_for(drained(stream), PATIENCE_SECONDS)


async def drained(stream: AsyncIterator[StreamLine]) -> None:
    async for _ in stream:
        pass


class OldLine(msgspec.Struct):
    """A line of the stream as routers read it before each kind had a class of its own."""

    type: str
    table: RoutingTable | None = None
    pool: PoolKey | None = None
    bindings: tuple[Binding, ...] = ()


async def test_a_router_of_before_reads_every_line(seam: Seam, clients: Clients) -> None:
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a")))
    await clients.router.post_report(a_report("r1", bindings=(a_binding("s", "a"),)))
    headers = {"authorization": f"Bearer {seam.router_token}"}
    found: list[OldLine] = []
    async with (
        httpx.AsyncClient(base_url=seam.url, headers=headers, timeout=PATIENCE_SECONDS, trust_env=False) as http,
        http.stream("GET", internal_paths.STREAM, params={"router": "router-0"}) as response,
    ):
        assert response.headers["content-type"].startswith("application/x-ndjson")
        async for line in response.aiter_lines():
            found.append(msgspec.json.decode(line, type=OldLine))
            if found[-1].type == "synced":
                await clients.operator.delete_pool(CHAT)
            if found[-1].type == "pool_deleted":
                break
    found = [line for line in found if line.type in {"table", "pool_deleted", "bindings", "synced"}]  # the kinds it knows
    kinds = [line.type for line in found]
    assert (kinds[:3], kinds[-1]) == (["table", "bindings", "synced"], "pool_deleted")
    assert found[0].table is not None
    assert found[-1].pool == CHAT


def a_share(in_flight: int, begin: int, instance: str = "a") -> PoolShare:
    work = (InstanceWork(instance=instance, in_flight=in_flight, decoding=in_flight, decode_tokens=1000, prefill_share=0.25),)
    return PoolShare(pool=CHAT, why=Apart.NO_ANSWER.value, work=work, prompts=(placed(instance, [(1 << 63) + begin, 1 << 40, 7]),))


async def test_routers_that_decide_for_themselves_are_told_of_each_other_and_nobody_of_itself(clients: Clients) -> None:
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a")))
    async with following(clients.router_api, "router-0") as first, following(clients.router_api, "router-2") as asking:
        await first.snapshot()
        await asking.snapshot()
        for number, share in enumerate((a_share(1, 0), a_share(2, 1 << 20), a_share(4, 1 << 21))):
            await clients.router.post_report(a_report(f"r{number}", f"router-{number}", shares=() if number == 2 else (share,)))
        told = (await first.until(OthersLine)).share
        assert (told.pool, told.names, [row.in_flight for row in told.work]) == (CHAT, ("router-0", "router-1"), [2])
        assert told.prompts == a_share(2, 1 << 20).prompts
        assert 0 <= told.age_seconds < PATIENCE_SECONDS
        await clients.router.post_report(a_report("r3", "router-1", shares=(a_share(5, 1 << 20),)))
        while (told := (await first.until(OthersLine)).share).work[0].in_flight == 2:
            pass
        assert told.work == a_share(5, 0).work, "each share takes the place of the one before"
        assert not any(isinstance(line, OthersLine) for line in asking.lines._queue)  # type: ignore[attr-defined]

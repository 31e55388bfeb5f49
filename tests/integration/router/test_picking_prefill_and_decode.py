"""A proxy sends requests of a prefill and decode pool to decode instances.

Their side-cars do the handshake with the prefill instance that the router chose, by the contract of llm-d.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fairlead.instances import Role
from fairlead.tables import EarlyRejectionFacts, ModelledFacts, RoutingTable
from fairlead_process.starting import bind
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.running.engine import engine_starter
from fairlead_testing.running.envoy import running_envoy
from fairlead_testing.running.ext_proc_proxy import Proxy
from fairlead_testing.running.sidecar import HEADER, Sidecar
from fairlead_testing.worlds.router_worlds import RunningRouter, ScriptedEngine, World, until

ROLES = (Role.PREFILL, Role.PREFILL, Role.DECODE, Role.DECODE)


@dataclass
class Divided:
    """Two prefill engines (i0, i1), and two decode engines (i2, i3) behind a side-car each."""

    world: World
    running: RunningRouter
    sidecars: list[Sidecar]
    proxy: Proxy
    picker: int

    @property
    def prefills(self) -> list[ScriptedEngine]:
        return self.world.engines[:2]

    @property
    def decodes(self) -> list[ScriptedEngine]:
        return self.world.engines[2:4]

    async def at_rest(self) -> None:
        await until(lambda: self.running.busy() == 0 and not self.running.router.picker.active)
        assert self.running.scheduler.discrepancies() == ()
        assert self.running.router.metrics.accounting_errors == 0

    async def take(self, table: RoutingTable) -> None:
        self.world.api.state.set_table(table)
        await until(lambda: self.running.pool.table.version == table.version)


def _table(world: World, sidecars: list[Sidecar], **named: Any) -> RoutingTable:
    addresses = [engine.address for engine in world.engines[:2]] + [one.address for one in sidecars]
    return routing_table(addresses, roles=ROLES, **{"policy": "least-loaded", **named})


@pytest.fixture
async def divided(world: World) -> AsyncIterator[Divided]:
    await world.start_engines(4)
    sidecars = [Sidecar(engine.address) for engine in world.engines[2:4]]
    for one in sidecars:
        await one.start()
    world.api.state.set_table(_table(world, sidecars))
    running = await world.start_router()
    await until(lambda: running.router.informing.synced)
    listener = bind("picker", "127.0.0.1", 0)
    await running.router.picker.listen(listener)
    port = listener.getsockname()[1]
    async with Proxy(f"127.0.0.1:{port}") as proxy:
        yield Divided(world, running, sidecars, proxy, port)
    for one in sidecars:
        await one.stop()


def chat(text: str = "hello", **more: object) -> bytes:
    return json.dumps({"model": "mock", "messages": [{"role": "user", "content": text}], "max_tokens": 3, **more}).encode()


def bodies(engines: list[ScriptedEngine]) -> list[dict[str, Any]]:
    return [seen["body"] for engine in engines for seen in engine.seen if seen["body"]]


@pytest.mark.parametrize("stream", [True, False])
async def test_the_destination_decodes_and_its_side_car_gets_the_blocks_of_the_named_prefill_instance(
    divided: Divided, stream: bool
) -> None:
    answer = await divided.proxy.request(chat(stream=stream), headers={HEADER: "10.9.9.9:1"})
    assert answer.status == 200
    (prefill,), (decode,) = bodies(divided.prefills), bodies(divided.decodes)
    assert (prefill["max_tokens"], prefill["stream"]) == (1, False)
    assert decode["kv_transfer_params"]["remote_engine_id"] == answer.headers["x-fairlead-instance"]
    (prefilled_on,) = (one for one in divided.prefills if one.seen)
    (decoded_on,) = (one for one in divided.decodes if one.seen)
    assert (answer.headers["x-fairlead-instance"], answer.headers["x-fairlead-decode"]) == (prefilled_on.name, decoded_on.name)
    assert [asked for one in divided.sidecars for asked in one.asked] == [prefilled_on.address], "no client's word reaches a side-car"
    assert HEADER not in prefilled_on.seen[0]["headers"]
    await divided.at_rest()
    assert divided.running.pool.counters.served == 1


async def test_both_are_chosen_by_the_scheduler_so_load_spreads_over_both_roles(divided: Divided) -> None:
    answers = await asyncio.gather(*(divided.proxy.request(chat(f"text {number}")) for number in range(32)))
    assert {answer.status for answer in answers} == {200}
    assert {answer.headers["x-fairlead-instance"] for answer in answers} == {"i0", "i1"}
    assert {answer.headers["x-fairlead-decode"] for answer in answers} == {"i2", "i3"}
    assert {answer.served for answer in answers} == {one.address for one in divided.sidecars}, "never a prefill instance"
    await divided.at_rest()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "x", "n": 2}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "min_tokens": 2}),
        ("/invocations", {"prompt": "x"}),
        ("/v1/embeddings", {"input": "x"}),
    ],
)
async def test_what_a_side_car_cannot_divide_goes_whole_to_a_decode_instance(divided: Divided, path: str, body: dict[str, Any]) -> None:
    answer = await divided.proxy.request(json.dumps({"model": "mock", **body}).encode(), path=path)
    assert (answer.status, answer.headers["x-fairlead-reason"]) == (200, "decode-only")
    assert bodies(divided.prefills) == []
    assert len(bodies(divided.decodes)) == 1
    assert not any(asked for one in divided.sidecars for asked in one.asked)
    await divided.at_rest()


async def test_without_a_prefill_instance_a_decode_instance_computes_everything(divided: Divided) -> None:
    table = divided.running.pool.table
    left = replace(table, version=table.version + 1, instances=table.instances[2:])
    await divided.take(left)
    await divided.take(replace(table, version=table.version + 2, instances=table.instances[2:]))
    assert (await divided.proxy.request(chat())).status == 200
    assert bodies(divided.prefills) == []
    await divided.at_rest()


async def test_a_lost_decode_instance_is_passed_over_and_the_prefill_instance_stays(divided: Divided) -> None:
    await divided.sidecars[0].stop()
    answers = [await divided.proxy.request(chat(f"text {number}", stream=True)) for number in range(8)]
    assert {answer.status for answer in answers} == {200}
    moved = [answer for answer in answers if len(answer.tried) > 1]
    assert moved
    assert {answer.headers["x-fairlead-decode"] for answer in answers} == {"i3"}
    assert {answer.headers["x-fairlead-instance"] for answer in answers} == {"i0", "i1"}
    await divided.at_rest()
    counters = divided.running.pool.counters
    assert (counters.served, counters.retries, counters.upstream_errors["passed-over"]) == (8, len(moved), len(moved))


async def test_an_error_of_the_side_car_is_the_decode_instances_failure(divided: Divided) -> None:
    divided.decodes[0].broken = True
    answers = [await divided.proxy.request(chat(f"text {number}")) for number in range(24)]
    await divided.at_rest()
    failed = [answer.headers["x-fairlead-decode"] for answer in answers if answer.status == 500]
    assert failed
    assert set(failed) == {"i2"}
    assert answers[-1].status == 200, "its circuit is open"
    assert divided.running.pool.counters.upstream_errors["status"] == len(failed)
    assert not set(divided.running.scheduler.broken(divided.running.router.now())) & {"i0", "i1"}


async def test_a_subset_of_decode_instances_says_nothing_of_who_prefills(divided: Divided) -> None:
    only = divided.sidecars[1].address
    answers = [await divided.proxy.request(chat(f"text {number}"), subset=[only]) for number in range(6)]
    assert {answer.endpoints for answer in answers} == {(only,)}
    assert {answer.headers["x-fairlead-instance"] for answer in answers} == {"i0", "i1"}
    whole = await divided.proxy.request(json.dumps({"model": "mock", "input": "x"}).encode(), path="/v1/embeddings", subset=[only])
    assert whole.endpoints == (only,)
    part = await divided.proxy.request(chat("more"), subset=[only, divided.prefills[0].address])
    assert (part.endpoints, part.headers["x-fairlead-instance"]) == ((only,), "i0")
    nobody = await divided.proxy.request(chat("more"), subset=[divided.prefills[0].address])
    assert (nobody.status, nobody.headers["x-fairlead-rejection"]) == (503, "rejected-no-endpoints")
    await divided.at_rest()


async def test_a_rank_is_named_only_where_both_instances_have_it(divided: Divided) -> None:
    now = divided.running.router.now
    for engine in divided.prefills:
        divided.running.pool.see_ranks(engine.name, range(2), now())
    await divided.proxy.request(chat())
    assert not any("x-data-parallel-rank" in seen["headers"] for engine in divided.world.engines for seen in engine.seen)
    await divided.at_rest()


async def test_nothing_is_refused_between_prefill_and_decode_which_only_a_router_that_hands_over_can(divided: Divided) -> None:
    table = divided.running.pool.table
    engine = replace(table.engine, modelled=ModelledFacts(decode_base_seconds=0.2))
    rejection = EarlyRejectionFacts(mode="AfterPrefill")
    await divided.take(replace(table, version=table.version + 1, early_rejection=rejection, engine=engine))
    answers = await asyncio.gather(*(divided.proxy.request(chat(f"text {number}", stream=True)) for number in range(8)))
    assert {answer.status for answer in answers} == {200}
    assert all(answer.body.endswith(b"[DONE]\n\n") for answer in answers)
    await divided.at_rest()


async def test_an_unstreamed_answer_does_not_keep_the_prefill_instance_busy(divided: Divided) -> None:
    table = divided.running.pool.table
    await divided.take(replace(table, version=table.version + 1, routing=replace(table.routing, policy="static-pd")))
    asked = [asyncio.create_task(divided.proxy.request(chat(f"text {number}"), headers={"x-script": ""})) for number in range(24)]
    assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
    await divided.at_rest()


async def test_simulated_engines_hand_their_blocks_over_behind_side_cars(world: World) -> None:
    """The engines' own counts show the transfer: the decode engine reports the prompt as fetched."""
    with engine_starter() as start:
        flags = ("--time-scale", "10", "--startup-seconds", "0")
        engines = [start(*flags) for _ in range(4)]
        sidecars = [Sidecar(f"127.0.0.1:{engine.port}") for engine in engines[2:]]
        for one in sidecars:
            await one.start()
        addresses = [f"127.0.0.1:{engine.port}" for engine in engines[:2]] + [one.address for one in sidecars]
        world.api.state.set_table(routing_table(addresses, roles=ROLES, model="m", policy="fairlead", prefill_tokens_per_second=62500.0))
        running = await world.start_router()
        await until(lambda: running.router.informing.synced)
        listener = bind("picker", "127.0.0.1", 0)
        await running.router.picker.listen(listener)
        async with Proxy(f"127.0.0.1:{listener.getsockname()[1]}") as proxy:
            body = {"model": "m", "messages": [{"role": "user", "content": "word " * 2000}], "max_tokens": 5}
            for stream in (True, False):
                answer = await proxy.request(json.dumps({**body, "stream": stream}).encode(), headers={"content-type": "application/json"})
                assert answer.status == 200, answer.body
            reported = json.loads(answer.body)["usage"]
        assert reported["prompt_tokens_details"]["cached_tokens"] >= reported["prompt_tokens"] - 32
        await until(lambda: running.busy() == 0 and not running.router.picker.active)
        assert running.pool.counters.served == 2
        assert running.router.metrics.accounting_errors == 0
        for one in sidecars:
            await one.stop()


async def test_a_real_envoy_does_as_the_router_says(divided: Divided, tmp_path: Path) -> None:
    ports = [one.port for one in divided.sidecars]
    async with running_envoy(tmp_path, divided.picker, ports) as envoy:
        asked = (
            envoy.post("/v1/chat/completions", content=chat(f"text {number}"), headers={HEADER: "127.0.0.1:1"}) for number in range(16)
        )
        answers = await asyncio.gather(*asked)
    assert {answer.status_code for answer in answers} == {200}
    assert sorted(asked for one in divided.sidecars for asked in one.asked if asked) == sorted(
        one.address for one in divided.prefills for _ in one.seen
    )
    assert len(bodies(divided.prefills)) == len(bodies(divided.decodes)) == 16
    await divided.at_rest()

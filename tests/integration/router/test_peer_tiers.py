"""Sessions that move between two simulated engines with p2p tiers, through a real router: what the engines are asked,
what is cached at the new instance, and what is recorded when nothing comes.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fairlead.instances import InstanceState
from fairlead.reports.engines import EngineTrouble
from fairlead.reports.moves import CacheFate, MigrationRecord, MoveOutcome, with_transfer
from fairlead.routing.contracts.handovers import ENOUGH
from fairlead.tables import EVERY_MOVE, OFFLOADING_P2P, KvTransferFacts, RoutingTable
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.running.engine import RunningEngine, engine_starter
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until
from processkube.testing.ports import free_port

TEXT = "word" * 2048
SESSIONS = 20
BLOCK = 16
HOSTS = ("127.0.0.1", "127.0.0.2")


@dataclass
class Peers:
    """A router before two engines whose tiers have one port, each at its engine's host."""

    world: World
    running: RunningRouter
    engines: dict[str, RunningEngine]
    facts: KvTransferFacts
    version: int = 1

    def table(self, states: dict[str, InstanceState], **more: Any) -> RoutingTable:
        addresses = [engine.url.removeprefix("http://") for engine in self.engines.values()]
        return routing_table(addresses, model="m", policy="fairlead", kv_transfer=self.facts, version=self.version, states=states, **more)

    async def drain(self, home: str) -> None:
        self.version += 1
        self.world.api.state.set_table(self.table({home: InstanceState.DRAINING}))
        await until(lambda: self.running.pool.accepting == self.engines.keys() - {home})

    async def settle(self, sessions: int) -> str:
        """Begin this many sessions at one instance, which drains then; return its name."""
        await self.drain("i1")
        for session in range(sessions):
            assert (await self.turn(session))["instance"] == "i0"
        await self.drain("i0")
        return "i0"

    async def turn(self, session: int, more: str = "") -> dict[str, Any]:
        document = {"model": "m", "prompt": f"{session:04}" + TEXT + more, "max_tokens": 4}
        answer = await self.running.client.post("/v1/completions", json=document, headers={"x-session-id": f"s{session}"})
        assert answer.status_code == 200, answer.text
        usage = answer.json()["usage"]
        return {
            "instance": answer.headers["x-fairlead-instance"],
            "text": answer.json()["choices"][0]["text"],
            "prompt": usage["prompt_tokens"],
            "cached": usage["prompt_tokens_details"]["cached_tokens"],
        }

    async def migrations(self, number: int) -> list[MigrationRecord]:
        """The moves of sessions, once all their requests have their first tokens."""
        reports = self.world.api.state.reports

        def ended() -> int:
            ends = {row.id: row.outcome for one in reports.values() for row in one.migrations}
            ends |= {row.id: row.outcome for one in reports.values() for row in one.migration_outcomes}
            return sum(outcome is MoveOutcome.COMPLETED for outcome in ends.values())

        await until(lambda: ended() == number)
        records = {row.id: row for one in reports.values() for row in one.migrations}
        for outcome in (row for one in reports.values() for row in one.migration_outcomes):
            if outcome.transfer is not None and outcome.id in records:
                records[outcome.id] = with_transfer(records[outcome.id], outcome.transfer)
        return list(records.values())


@pytest.fixture
async def peers(world: World) -> AsyncIterator[Peers]:
    port = free_port()
    facts = KvTransferFacts(kind=OFFLOADING_P2P, port=port, when=EVERY_MOVE, longest_seconds=PATIENCE_SECONDS)
    with engine_starter() as start:
        flags = ("--kv-p2p-port", str(port), "--time-scale", "10")
        engines = {f"i{number}": start("--host", host, *flags) for number, host in enumerate(HOSTS)}
        addresses = [engine.url.removeprefix("http://") for engine in engines.values()]
        world.api.state.set_table(routing_table(addresses, model="m", policy="fairlead", kv_transfer=facts))
        running = await world.start_router()
        await until(lambda: running.router.informing.synced)
        yield Peers(world, running, engines, facts)


def at_rest(running: RunningRouter) -> None:
    assert running.busy() == 0
    assert running.scheduler.discrepancies() == ()
    assert running.router.metrics.accounting_errors == 0
    assert not running.pool.account.direct


async def test_sessions_that_move_hot_find_their_whole_prompts_cached(peers: Peers) -> None:
    await peers.settle(SESSIONS)
    for session in range(SESSIONS):
        turn = await peers.turn(session, "next")
        assert turn["instance"] == "i1"
        assert turn["cached"] == (turn["prompt"] - 1) // BLOCK * BLOCK, "the request for the blocks computed the new part"
    assert peers.running.pool.counters.transfers == {"moved": SESSIONS}
    moves = await peers.migrations(SESSIONS)
    for move in moves:
        assert (move.cache, move.source, move.target) == (CacheFate.MOVED, "i0", "i1")
        assert (move.tokens_moved, move.tokens_recomputed) == (move.source_hit_tokens, 0)
        assert move.transfer_seconds is not None
    assert sum(move.predicted_transfer_seconds is not None for move in moves) == SESSIONS
    beliefs = peers.running.pool.counters.beliefs
    for session in range(SESSIONS):
        turn = await peers.turn(session, "next")
        assert turn["cached"] == (turn["prompt"] - 1) // BLOCK * BLOCK
    assert beliefs, "engines report what they had cached"
    await until(lambda: not peers.running.pool.account.direct)
    at_rest(peers.running)


async def test_a_source_that_was_killed_is_computed_for_and_recorded_so(peers: Peers) -> None:
    await peers.settle(2)
    source = peers.engines["i0"]
    source.process.kill()
    source.process.wait()
    turn = await peers.turn(0, "next")
    assert turn["instance"] == "i1"
    (move,) = await peers.migrations(1)
    assert (move.cache, move.tokens_moved, move.tokens_recomputed > 1000) == (CacheFate.UNNAMED, 0, True)
    assert (await peers.turn(1, "next"))["instance"] == "i1"
    assert peers.running.pool.counters.failed == 0
    await until(lambda: not peers.running.pool.account.direct)
    at_rest(peers.running)


async def test_an_instance_whose_tier_gives_nothing_is_not_asked_again_for_a_while(peers: Peers) -> None:
    peers.facts = replace(peers.facts, port=free_port())  # where nobody listens
    await peers.settle(ENOUGH + 2)
    for session in range(ENOUGH + 2):
        assert (await peers.turn(session, "next"))["instance"] == "i1"
    assert peers.running.pool.counters.transfers == {"unnamed": ENOUGH}
    (told,) = peers.running.pool.engines.troubled()
    assert (told.instance, told.trouble) == ("i0", EngineTrouble.KV_NOT_HANDED_ON)
    assert "gave none of its KV blocks to the last 3 requests that named it" in told.words
    at_rest(peers.running)


async def test_a_client_can_name_no_tier(peers: Peers) -> None:
    source = {"kv_request_id": "r", "remote_host": "10.0.0.9", "remote_port": 5710}
    document = {"model": "m", "prompt": TEXT, "kv_transfer_params": {"remote_kv_source": source}}
    answer = await peers.running.client.post("/v1/completions", json=document)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "kv_transfer_params")

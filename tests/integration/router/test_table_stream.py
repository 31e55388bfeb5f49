"""The router and the control API: tables, bindings and reports, with the API there, away, or answering badly."""

import asyncio

import pytest

from fairlead.instances import InstanceState
from fairlead.reports.batches import Report
from fairlead.reports.bindings import Binding, BindingReason
from fairlead.tables import PoolKey
from fairlead_router import main
from fairlead_testing.builders.routing_tables import CHAT
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until


async def _turns(running: RunningRouter, sessions: list[str]) -> dict[str, str]:
    """Send one request per session; return the engine of each."""
    return {name: (await running.ask(headers={"x-session-id": name}, text=f"I am {name}. " * 300)).json()["engine"] for name in sessions}


async def _in_force(running: RunningRouter, version: int) -> None:
    await until(lambda: running.pool.table.version == version)


SESSIONS = [f"s{number}" for number in range(8)]


async def test_tables_are_taken_live_without_failing_a_request(world: World) -> None:
    running = await world.ready(count=3)
    engines = set()
    for version in range(2, 12):
        gone = f"i{version % 3}"
        world.api.state.set_table(world.table(version=version, states={gone: InstanceState.DRAINING}))
        await _in_force(running, version)
        answers = await asyncio.gather(*(running.ask(stream=True) for _ in range(6)))
        assert {answer.status_code for answer in answers} == {200}
        engines = {answer.headers["x-fairlead-instance"] for answer in answers}
        assert gone not in engines
    await until(lambda: any(ack.version == 11 for report in world.api.state.reports.values() for ack in report.acknowledged))


async def test_a_deleted_pool_is_a_404_at_once_and_after_a_restart(world: World) -> None:
    running = await world.ready()
    assert (await running.ask()).status_code == 200
    world.api.state.delete_pool(CHAT)
    await until(lambda: len(running.router.pools) == 0)
    assert (await running.ask()).status_code == 404
    await world.stop_router(running)
    await world.api.stop()
    again = await world.start_router(seed=2)
    assert len(again.router.pools) == 0


async def test_a_pool_deleted_while_the_stream_was_down_goes_with_the_next_snapshot(world: World) -> None:
    running = await world.ready()
    other = PoolKey(namespace="default", name="other")
    world.api.state.set_table(world.table(pool=other, model="other"))
    await until(lambda: len(running.router.pools) == 2)
    await world.api.stop()
    world.api.state.delete_pool(other)
    assert (await running.ask(model="other")).status_code == 200, "nothing is taken away while the API is silent"
    await world.api.start()
    await until(lambda: len(running.router.pools) == 1)


async def test_with_the_api_away_a_restarted_router_serves_with_its_tables_and_bindings(world: World) -> None:
    running = await world.ready(count=4, policy="ear")
    homes = await _turns(running, SESSIONS)
    assert len(set(homes.values())) > 1
    await until(lambda: len(world.api.state.bindings) == len(SESSIONS))
    await world.api.stop()
    await world.stop_router(running)
    again = await world.start_router(seed=2)
    assert (await again.client.get("/readyz")).status_code == 200
    assert await _turns(again, SESSIONS) == homes


async def test_a_restarted_router_believes_what_it_believed_of_what_instances_hold(world: World) -> None:
    def believed(router: RunningRouter) -> dict[str, bytes]:
        return {memory.instance: memory.blocks for memory in router.scheduler.prefix_memories(0.0)}

    running = await world.ready(count=4, policy="ear")
    await _turns(running, SESSIONS)
    before = believed(running)
    assert len(before) > 1
    await world.stop_router(running)
    assert believed(await world.start_router(seed=2)) == before


async def test_readiness_tells_how_old_the_oldest_unsent_report_is(world: World) -> None:
    running = await world.ready()

    async def told() -> float:
        answer = await running.client.get("/readyz")
        assert answer.status_code == 200, "a router that cannot report serves all the same"
        return float(answer.json()["oldest_unsent_report_seconds"])

    await world.api.stop()
    assert (await running.ask()).status_code == 200
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await told() < 0.5:
            await asyncio.sleep(0.05)
    await world.api.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await told() > 0:
            await asyncio.sleep(0.05)


async def test_bindings_made_while_the_api_was_away_survive_a_restart_and_reach_it_once(world: World) -> None:
    running = await world.ready(count=4, policy="ear")
    await world.api.stop()
    homes = await _turns(running, SESSIONS)
    await world.stop_router(running)
    assert len(list((world.directory / "router-0" / "reports").iterdir())) > 0
    again = await world.start_router(seed=2)
    assert await _turns(again, SESSIONS) == homes
    await world.api.start()
    await until(lambda: len(world.api.state.bindings) == len(SESSIONS) and len(again.router.spool) == 0)
    assert {binding.session: binding.instance for binding in world.api.state.bindings.values()} == homes
    assert {binding.version for binding in world.api.state.bindings.values()} == {1}


async def test_reports_whose_acknowledgement_was_lost_are_sent_again_and_stored_once(world: World) -> None:
    running = await world.ready(count=2, policy="ear")
    await _turns(running, SESSIONS[:1])
    await until(lambda: len(world.api.state.reports) > 0 and len(running.router.spool) == 0)  # the API's clock is heard
    before = len(world.api.state.reports)
    world.api.loses_acknowledgements = True
    await _turns(running, SESSIONS[1:])
    await until(lambda: world.api.state.received > len(world.api.state.reports) > before)
    world.api.loses_acknowledgements = False
    await until(lambda: len(running.router.spool) == 0)
    changes = [change.session for change in world.api.state.stored("bindings")]
    assert sorted(changes) == SESSIONS
    assert running.router.metrics.report_drops == {}


async def test_reports_wait_while_the_api_answers_errors(world: World) -> None:
    running = await world.ready(count=2, policy="ear")
    world.api.fails_reports_with = 503
    await _turns(running, SESSIONS)
    await until(lambda: running.router.metrics.reports_failed > 1)
    assert len(running.router.spool) > 0
    world.api.fails_reports_with = None
    await until(lambda: len(running.router.spool) == 0 and len(world.api.state.stored("bindings")) >= len(SESSIONS))
    assert sorted(change.session for change in world.api.state.stored("bindings")) == SESSIONS


async def test_two_routers_share_bindings(world: World) -> None:
    first = await world.ready(count=4, policy="ear")
    second = await world.start_router("router-1")
    await until(lambda: second.router.informing.synced)
    homes = await _turns(first, SESSIONS)
    await until(lambda: len(world.api.state.bindings) == len(SESSIONS))
    scheduler = second.scheduler
    await until(lambda: all(scheduler.binding(session) is not None for session in SESSIONS))
    assert await _turns(second, SESSIONS) == homes
    for session in SESSIONS:
        binding = first.scheduler.binding(session)
        assert binding is not None
        assert binding.instance == homes[session]


async def test_when_two_routers_bind_one_session_the_first_writer_wins_at_both(world: World) -> None:
    first = await world.ready(count=4, policy="ear")
    second = await world.start_router("router-1", seed=7)
    await until(lambda: second.router.informing.synced)
    world.api.fails_reports_with = 503
    await _turns(first, SESSIONS)
    for session in SESSIONS:  # put the same sessions elsewhere at the other router, as if its load had been different
        await second.ask(headers={"x-session-id": session}, text=f"Another opening of {session}. " * 300)
    world.api.fails_reports_with = None

    def agreed() -> bool:
        winners = {session: binding.instance for (_, session), binding in world.api.state.bindings.items()}
        homes = [
            {session: getattr(router.scheduler.binding(session), "instance", None) for session in SESSIONS} for router in (first, second)
        ]
        return len(winners) == len(SESSIONS) and homes[0] == homes[1] == winners

    await until(agreed)


async def test_a_drain_told_by_the_api_moves_the_session_and_the_router_follows(world: World) -> None:
    running = await world.ready(count=3, policy="ear")
    homes = await _turns(running, ["s0"])
    await until(lambda: len(world.api.state.bindings) == 1)
    await until(lambda: world.api.state.bindings[CHAT, "s0"].version == 1)
    target = next(name for name in ("i0", "i1", "i2") if name != homes["s0"])
    world.api.state.set_binding(
        Binding(pool=CHAT, session="s0", instance=target, version=2, reason=BindingReason.DRAIN, bound_at=1.0, migrated_at=2.0)
    )
    await until(lambda: getattr(running.scheduler.binding("s0"), "instance", None) == target)
    assert await _turns(running, ["s0"]) == {"s0": target}


async def test_the_last_act_of_a_router_is_its_last_report_and_a_goodbye(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "GOODBYE_SECONDS", PATIENCE_SECONDS)  # a busy machine may need longer to report all of it
    running = await world.ready()
    await running.ask()
    await world.stop_router(running)
    assert [gone.router for gone in world.api.state.gone] == ["router-0"]
    assert sum(load.completed for load in world.api.state.stored("loads")) == 1
    assert len(world.api.state.stored("decisions")) == 1


async def test_in_flight_counts_reach_the_api_and_return_to_zero(world: World) -> None:
    running = await world.ready(count=1)
    engine = world.engines[0]
    task = asyncio.create_task(running.ask(stream=True, script="stepwise"))

    def told() -> int:
        latest: Report = max(world.api.state.reports.values(), key=lambda report: report.sent_at)
        return sum(row.in_flight for row in latest.in_flight)

    await until(lambda: bool(world.api.state.reports) and told() == 1)
    while not task.done():
        engine.step.set()
        await asyncio.sleep(0.01)
    await until(lambda: told() == 0)


async def test_a_full_spool_drops_samples_first_and_counts_them(world: World) -> None:
    await world.start_engines(2)
    world.api.state.set_table(world.table(policy="ear"))
    running = await world.start_router(spool_max_bytes=64 * 1024)
    await until(lambda: running.router.informing.synced)
    await world.api.stop()
    for _ in range(12):
        await asyncio.gather(*(running.ask(headers={"x-session-id": f"session-{number}"}) for number in range(12)))
        await running.router.collector.collect(final=True)  # else it takes samples once a second only
    await until(lambda: running.router.metrics.report_drops.get("samples", 0) > 0)  # a post under way keeps its own until it fails
    assert running.router.metrics.report_drops.get("history", 0) == 0
    await until(lambda: running.router.spool.size <= 64 * 1024)  # a post that is under way may be too much for a moment
    await world.api.start()
    await until(lambda: len(running.router.spool) == 0)
    assert len({change.session for change in world.api.state.stored("bindings")}) == 12


async def test_routers_that_cannot_ask_each_other_hear_of_each_others_work_and_forget_it(world: World) -> None:
    first = await world.ready(count=1)
    second = await world.start_router("router-1")
    await until(lambda: second.router.informing.synced)
    engine = world.engines[0]

    def heard() -> int | None:
        (load,) = second.scheduler.loads()
        return None if load.others is None else load.others.in_flight

    await until(lambda: heard() == 0)
    task = asyncio.create_task(first.ask(stream=True, script="stepwise"))
    await until(lambda: heard() == 1)
    (own,) = first.scheduler.loads()
    assert own.others is None or own.others.in_flight == 0, "nobody hears of itself"
    while not task.done():
        engine.step.set()
        await asyncio.sleep(0.01)
    await until(lambda: heard() == 0)
    world.api.up = False
    await until(lambda: heard() is None)
    assert (await second.ask()).status_code == 200

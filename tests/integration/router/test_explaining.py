"""A client asks for the decision of its request to be kept, and a person for all of a session, over real HTTP."""

from hashlib import sha256
from typing import Any

import pytest

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.reports.decisions import DecisionRecord, KeptFor
from fairlead.routing.scheduling import kept_decisions
from fairlead_client.lines import KeptSession
from fairlead_router.main import pool_scheduler_factory
from fairlead_testing.builders.routing_tables import CHAT
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds import router_worlds
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

SECRETS = {name: f"flk_the-secret-of-{name}-0123456789" for name in ("may", "may-not")}
EXPLAIN = {"x-fairlead-explain": "1"}


def shown(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {SECRETS[name]}", **EXPLAIN}


@pytest.fixture(autouse=True)
def unsampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Routers that sample nothing."""
    monkeypatch.setattr(
        router_worlds, "pool_scheduler_factory", lambda name, seed, rate, most: pool_scheduler_factory(name, seed, 0.0, most)
    )


async def ready(world: World, **changes: Any) -> RunningRouter:
    keys = [GatewayKeyFacts(id=name, digest=sha256(secret.encode()).hexdigest(), explain=name == "may") for name, secret in SECRETS.items()]
    world.api.state.set_gateway_keys(*keys)
    await world.start_engines(2)
    world.api.state.set_table(world.table())
    running = await world.start_router(**changes)
    await until(lambda: running.router.informing.synced)
    return running


async def kept(world: World, running: RunningRouter) -> list[DecisionRecord]:
    await until(lambda: running.busy() == 0)
    await running.router.collector.collect(final=True)
    await until(lambda: len(running.router.spool) == 0)  # what a busy machine cannot send in its goodbye stays on disk
    await world.stop_router(running)
    return world.api.state.stored("decisions")


async def test_a_key_that_may_explain_has_decisions_kept_and_others_hear_why_not(world: World) -> None:
    running = await ready(world)
    for stream in (False, True):
        answer = await running.ask(headers={**shown("may"), "x-request-id": f"mine-{stream}"}, stream=stream)
        assert answer.headers["x-fairlead-decision-kept"] == "true"
        world.told.append(answer.headers["x-fairlead-decision"])
        denied = await running.ask(headers=shown("may-not"), stream=stream)
        assert denied.status_code == 200
        assert denied.headers.get_list("x-fairlead-decision-kept") == ["false; key-not-allowed"]
        plain = await running.ask(stream=stream)
        assert "x-fairlead-decision-kept" not in plain.headers
    found = await kept(world, running)
    assert [(one.id, one.kept) for one in found] == [(told, KeptFor.ASKED) for told in world.told]
    assert [one.client_request for one in found] == ["mine-False", "mine-True"]
    assert all(one.weighing.candidates for one in found)


@pytest.mark.parametrize("anybody", [False, True])
async def test_a_client_without_a_key_may_as_the_settings_say(world: World, anybody: bool) -> None:
    running = await ready(world, explains_without_key=anybody)
    answer = await running.ask(headers=EXPLAIN)
    assert answer.headers["x-fairlead-decision-kept"] == ("true" if anybody else "false; key-not-allowed")
    assert [one.kept for one in await kept(world, running)] == ([KeptFor.ASKED] if anybody else [])


async def test_what_no_scheduler_decides_says_so_and_every_answer_has_an_id(world: World) -> None:
    running = await ready(world)
    chat = {"model": "mock", "messages": [{"role": "user", "content": "x"}]}
    answers = [
        await running.client.post("/tokenize", json=chat, headers=EXPLAIN),
        await running.client.get("/v1/models", headers=EXPLAIN),
        await running.client.get("/nothing", headers=EXPLAIN),
        await running.client.post("/v1/chat/completions", content=b"{", headers=EXPLAIN),
        await running.ask(model="none", headers=EXPLAIN),
    ]
    assert [answer.headers.get_list("x-fairlead-decision-kept") for answer in answers] == [["false; no-decision"]] * len(answers)
    assert all(answer.headers.get_list("x-request-id") for answer in answers)
    assert await kept(world, running) == []


async def test_more_than_may_be_asked_for_are_told_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_decisions, "ASKED_PER_MINUTE", 1.0)
    running = await ready(world)
    told = [(await running.ask(headers=EXPLAIN)).headers["x-fairlead-decision-kept"] for _ in range(2)]
    assert told[0] == "true"
    assert told[1] in ("false; too-many-asked", "true")  # a machine may take a minute for it
    assert len(await kept(world, running)) == told.count("true")


async def test_a_retried_request_tells_its_attempts(world: World) -> None:
    running = await ready(world)
    while not running.pool.counters.retries:
        answer = await running.ask(script="hang-up@i0")
        assert answer.headers["x-fairlead-instance"] == "i1"
    (one,) = await kept(world, running)
    assert (one.kept, one.served_by, one.outcome) == (KeptFor.RETRIED, "i1", "served")
    assert [(attempt.instance, attempt.failure) for attempt in one.attempts] == [("i0", "lost")]


async def test_all_decisions_of_a_watched_session_are_kept_and_others_are_not(world: World) -> None:
    running = await ready(world)
    scheduler = running.scheduler
    until_then = running.router.now() + 10 * PATIENCE_SECONDS
    world.api.state.set_kept_sessions(KeptSession(pool=CHAT, session="mine", until=until_then))
    await until(lambda: bool(scheduler._state.recorder.decisions.sessions))
    for session in ("mine", "other", "mine"):
        assert (await running.ask(headers={"x-session-id": session})).status_code == 200
    world.api.state.set_kept_sessions()
    await until(lambda: not scheduler._state.recorder.decisions.sessions)
    await running.ask(headers={"x-session-id": "mine"})
    found = await kept(world, running)
    assert [(one.session, one.kept) for one in found] == [("mine", KeptFor.SESSION)] * 2

"""Every way in which a request can end, over real HTTP: its charge, its count and its client's answer."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any, NamedTuple

import httpx
import pytest

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.instances import Role
from fairlead.reports.decisions import KeptFor, RequestOutcome
from fairlead.tables import EarlyRejectionFacts, ModelledFacts, Outlook
from fairlead_router import main
from fairlead_router.metrics.endings import CONSEQUENCES, Charged, Ending, Outcome
from fairlead_router.protocols.rendered_chats import mark
from fairlead_router.relaying import passing
from fairlead_router.settings import Timeouts
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import CHUNK, USAGE, RunningRouter, World, until

SECRET = "flk_the-secret-of-a-team-0123456789"
SHOWN = {"authorization": f"Bearer {SECRET}", "x-request-id": "mine", "x-fairlead-explain": "1"}
PROMPT = ("word " * 400)[len(mark("user")) :]
PROMPT_TOKENS = 500
"""As the router counts them; the scripted engines tell USAGE of every prompt."""

CHAT_EVENT = f"data: {httpx.Response(200, json=CHUNK).text}\n\n"
USAGE_EVENT = f"data: {httpx.Response(200, json={**CHUNK, 'choices': [], 'usage': USAGE}).text}\n\n"


class Ended(NamedTuple):
    """The end of a scenario's request: its client's status (None if it left) and the tokens charged."""

    status: int | None
    prompt_tokens: int
    output_tokens: set[int]


Scenario = Callable[[World], Awaitable[Ended]]
SCENARIOS: list[tuple[Ending, Scenario]] = []


def ends(ending: Ending) -> Callable[[Scenario], Scenario]:
    def known(scenario: Scenario) -> Scenario:
        SCENARIOS.append((ending, scenario))
        return scenario

    return known


async def started(world: World, engines: int = 1, timeouts: Timeouts | None = None, **table: Any) -> RunningRouter:
    await world.start_engines(engines)
    key = GatewayKeyFacts(id="team", digest=sha256(SECRET.encode()).hexdigest(), tokens_per_minute=10**6, explain=True)
    world.api.state.set_gateway_keys(key)
    outlook = table.pop("outlook", None)
    made = world.table(**table)
    world.api.state.set_table(made if outlook is None else replace(made, outlook=outlook))
    changes: dict[str, Any] = {} if timeouts is None else {"timeouts": timeouts}
    running = await world.start_router(**changes)
    await until(lambda: running.router.informing.synced)
    return running


async def ask(world: World, **asked: Any) -> httpx.Response:
    answer = await world.routers[0].ask(text=PROMPT, headers=SHOWN, **asked)
    told = tuple(answer.headers.get(name) for name in ("x-request-id", "x-fairlead-decision-kept"))
    assert told == ("mine", "true"), "every answer tells the request's id, and whether its decision is kept"
    world.told.append(answer.headers["x-fairlead-decision"])
    return answer


async def leave(world: World, when: Callable[[], bool], **asked: Any) -> None:
    """Send a request, and hang up when the condition holds."""
    task = asyncio.create_task(ask(world, **asked))
    await until(when)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def leave_in_stream(world: World, events: int, **asked: Any) -> None:
    """Ask for a stream, let the engine continue step by step, and hang up after this many of its events."""
    body = {"model": "mock", "messages": [{"role": "user", "content": PROMPT}], "stream": True, "max_tokens": 20, **asked}
    headers = {**SHOWN, "x-script": "stepwise"}
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        world.routers[0].client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer,
    ):
        seen = b""
        async for piece in answer.aiter_raw():
            seen += piece
            if seen.count(b"\n\n") >= events:
                return
            world.engines[0].step.set()


@ends(Ending.SERVED)
async def whole(world: World) -> Ended:
    await started(world)
    return Ended((await ask(world)).status_code, 8, {3})


@ends(Ending.SERVED)
async def whole_after_another_engine_failed(world: World) -> Ended:
    await started(world, 2)
    return Ended((await ask(world, script="hang-up@i0")).status_code, 8, {3})


@ends(Ending.SERVED)
async def streamed(world: World) -> Ended:
    await started(world)
    return Ended((await ask(world, stream=True, stream_options={"include_usage": True})).status_code, 8, {3})


@ends(Ending.SERVED)
async def closed_by_its_client_at_the_last_event(world: World) -> Ended:
    await started(world)
    engine = world.engines[0]
    engine.events, engine.stepwise_events = [CHAT_EVENT, CHAT_EVENT, USAGE_EVENT, "data: [DONE]\n\n", ": never sent\n\n"], True
    await leave_in_stream(world, 4, stream_options={"include_usage": True})
    await until(lambda: world.routers[0].busy() == 0)
    engine.step.set()
    return Ended(None, 8, {3})


@ends(Ending.REFUSED)
async def refused_at_once(world: World) -> Ended:
    await started(world, 0, outlook=Outlook.CLOSED)
    return Ended((await ask(world)).status_code, 0, {0})


@ends(Ending.REFUSED)
async def refused_when_it_had_waited_for_too_long(world: World) -> Ended:
    await started(world, 0, Timeouts(total=0.5), outlook=Outlook.COMING)
    return Ended((await ask(world)).status_code, 0, {0})


@ends(Ending.REFUSED_AFTER_PREFILL)
async def refused_after_its_prefill(world: World) -> Ended:
    roles = (Role.PREFILL, Role.DECODE)
    slow, rejection = ModelledFacts(decode_base_seconds=0.2), EarlyRejectionFacts(mode="AfterPrefill")
    running = await started(world, 2, policy="least-loaded", roles=roles, modelled=slow, early_rejection=rejection)
    other = asyncio.create_task(running.ask(stream=True, script="silent@i1"))
    await until(lambda: bool(world.engines[1].seen))
    status = (await ask(world, stream=True)).status_code
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
    return Ended(status, 0, {0})


@ends(Ending.EXHAUSTED)
async def failed_by_every_engine(world: World) -> Ended:
    await started(world, 2)
    return Ended((await ask(world, script="error-500")).status_code, 0, {0})


@ends(Ending.EXHAUSTED)
async def lost_in_an_unstreamed_answer(world: World) -> Ended:
    await started(world)
    return Ended((await ask(world, script="die-halfway")).status_code, 0, {0})


@ends(Ending.LOST)
async def lost_in_a_stream_that_had_begun_without_content(world: World) -> Ended:
    await started(world)
    engine = world.engines[0]
    engine.events, engine.hang_up_after_events = [f": {'x' * (passing.HELD_BYTES + 1)}\n\n"], True
    answer = await ask(world, stream=True)
    assert answer.text.count("ended early") == 1
    return Ended(answer.status_code, 0, {0})


@ends(Ending.BROKEN_OFF)
async def lost_in_the_middle_of_a_stream(world: World) -> Ended:
    await started(world)
    return Ended((await ask(world, stream=True, script="die-mid-stream")).status_code, PROMPT_TOKENS, {1, 2})


@ends(Ending.BROKEN_OFF)
async def out_of_time_in_the_middle_of_a_stream(world: World) -> Ended:
    await started(world, timeouts=Timeouts(total=2.0))
    engine = world.engines[0]
    engine.events, engine.stepwise_events = [CHAT_EVENT * 3, "never"], True
    return Ended((await ask(world, stream=True)).status_code, PROMPT_TOKENS, {2, 3})


@ends(Ending.OUT_OF_TIME)
async def out_of_time_before_anything_of_its_answer(world: World) -> Ended:
    await started(world, timeouts=Timeouts(total=0.5))
    return Ended((await ask(world, script="silent")).status_code, PROMPT_TOKENS, {0})


@ends(Ending.DECLINED)
async def declined_by_its_engine(world: World) -> Ended:
    await started(world)
    return Ended((await ask(world, script="bad-request")).status_code, 0, {0})


@ends(Ending.LEFT_WAITING)
async def left_while_held(world: World) -> Ended:
    running = await started(world, 0, outlook=Outlook.COMING)
    await leave(world, lambda: running.busy() > 0)
    return Ended(None, 0, {0})


@ends(Ending.LEFT_WAITING)
async def left_in_the_queue(world: World) -> Ended:
    running = await started(world, prefills_in_flight=1)
    first = asyncio.create_task(running.ask(stream=True, script="silent"))
    await until(lambda: bool(world.engines[0].seen))
    await leave(world, lambda: len(running.pool.account.tickets) == 2)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    return Ended(None, 0, {0})


@ends(Ending.LEFT_UNANSWERED)
async def left_before_an_unstreamed_answer(world: World) -> Ended:
    await started(world)
    await leave(world, lambda: bool(world.engines[0].seen), script="silent")
    return Ended(None, PROMPT_TOKENS, {0})


@ends(Ending.LEFT_UNANSWERED)
async def left_before_the_first_byte_of_a_stream(world: World) -> Ended:
    await started(world)
    await leave(world, lambda: bool(world.engines[0].seen), stream=True, script="silent")
    return Ended(None, PROMPT_TOKENS, {0})


@ends(Ending.LEFT_UNANSWERED)
async def left_while_its_prefill_was_computed(world: World) -> Ended:
    await started(world, 2, policy="least-loaded", roles=(Role.PREFILL, Role.DECODE))
    await leave(world, lambda: bool(world.engines[0].seen), stream=True, script="silent")
    return Ended(None, PROMPT_TOKENS, {0})


@ends(Ending.LEFT_UNANSWERED)
async def left_at_a_second_engine(world: World) -> Ended:
    await started(world, 2)
    world.engines[0].broken = True
    await leave(world, lambda: bool(world.engines[1].seen), script="silent@i1")
    return Ended(None, PROMPT_TOKENS, {0})


@ends(Ending.LEFT_ANSWERED)
async def left_in_the_middle_of_a_stream(world: World) -> Ended:
    await started(world)
    await leave_in_stream(world, 3)
    return Ended(None, PROMPT_TOKENS, {2, 3})


OUTCOMES = {
    Ending.SERVED: RequestOutcome.SERVED,
    Ending.REFUSED: RequestOutcome.REFUSED,
    Ending.REFUSED_AFTER_PREFILL: RequestOutcome.REFUSED,
    Ending.EXHAUSTED: RequestOutcome.REFUSED,
    Ending.LOST: RequestOutcome.FAILED,
    Ending.BROKEN_OFF: RequestOutcome.FAILED,
    Ending.OUT_OF_TIME: RequestOutcome.FAILED,
    Ending.DECLINED: RequestOutcome.DECLINED,
    Ending.LEFT_WAITING: RequestOutcome.CANCELLED,
    Ending.LEFT_UNANSWERED: RequestOutcome.CANCELLED,
    Ending.LEFT_ANSWERED: RequestOutcome.CANCELLED,
}
SLO = {"judged": "judged", "refused": "refused", "failed": "failed"}


@pytest.mark.parametrize(("ending", "scenario"), SCENARIOS, ids=lambda one: one.__name__ if callable(one) else "")
async def test_a_request_that_ends_is_charged_counted_and_answered_as_the_table_says(
    world: World, ending: Ending, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "GOODBYE_SECONDS", PATIENCE_SECONDS)  # a busy machine may need longer to report all of it
    status, prompt_tokens, output_tokens = await scenario(world)
    row, running = CONSEQUENCES[ending], world.routers[0]
    await until(lambda: running.busy() == 0)
    assert running.router.metrics.accounting_errors == 0
    counters = running.pool.counters
    counted = {
        Outcome.SERVED: counters.served,
        Outcome.FAILED: counters.failed,
        Outcome.CANCELLED: counters.cancelled - (counters.submitted - 1),  # the other request of a scenario is left too
        Outcome.REFUSED: sum(counters.refused.values()),
        Outcome.REJECTED_BY_ENGINE: counters.rejected_by_engine,
    }
    others = counters.submitted - 1
    assert {outcome: count for outcome, count in counted.items() if count} == {row.counted: 1}, others
    await until(lambda: any(one.client_request == "mine" for one in world.api.state.stored("decisions")))
    await world.stop_router(running)
    kept = [one for one in world.api.state.stored("decisions") if one.client_request == "mine"]
    assert [(one.kept, one.outcome) for one in kept] == [(KeptFor.ASKED, OUTCOMES[ending])]
    assert set(world.told) <= {one.id for one in kept}
    assert all(one.attempts for one in kept if ending in (Ending.EXHAUSTED, Ending.LOST, Ending.BROKEN_OFF))
    uses = world.api.state.stored("key_use")
    assert [sum(one.requests for one in uses if one.refusal is None), sum(one.requests for one in uses if one.refusal)] == [1, 0]
    charged = sum(one.prompt_tokens for one in uses), sum(one.output_tokens for one in uses)
    assert charged[0] == prompt_tokens
    assert charged[1] in output_tokens
    assert (bool(charged[0]), bool(charged[1])) == (row.charged is not Charged.NOTHING, row.charged is Charged.TOKENS)
    assert (row.answered == "") is (status is None) or ending is Ending.SERVED
    samples = world.api.state.stored("slo_samples")
    slo = {name: sum(getattr(one, name) for one in samples) for name in SLO}
    assert slo["refused"] == (row.slo == "refused")
    assert slo["failed"] == (row.slo == "failed")


def test_every_way_to_end_has_a_scenario_and_consequences() -> None:
    assert {ending for ending, _ in SCENARIOS} == set(Ending) == CONSEQUENCES.keys()

"""Random storms of requests, failures, departures and table changes, after which all counts are zero."""

import asyncio
import random

import pytest

from fairlead.instances import InstanceState
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

SCRIPTS = ("", "", "", "", "error-500", "hang-up", "busy", "die-mid-stream", "die-halfway", "bad-request", "silent", "stepwise")


async def _one(running: RunningRouter, dice: random.Random) -> str:
    script = dice.choice(SCRIPTS)
    if script and dice.random() < 0.5:
        script += f"@i{dice.randrange(4)}"
    patience = dice.choice((0.01, 0.05, 0.2, 1.0))
    headers = {"x-session-id": f"s{dice.randrange(20)}"}
    text = f"document {dice.randrange(10)} " * dice.choice((1, 300, 2000))
    try:
        async with asyncio.timeout(patience):
            answer = await running.ask(script=script, stream=dice.random() < 0.6, text=text, headers=headers)
    except TimeoutError:
        return "left"
    return str(answer.status_code)


@pytest.mark.parametrize(("policy", "seed"), [("dualmap", 2), ("ear", 3)])
async def test_after_a_storm_nothing_is_counted_anywhere(world: World, policy: str, seed: int) -> None:
    dice = random.Random(seed)
    running = await world.ready(count=4, policy=policy, prefills_in_flight=2, prefill_tokens_per_second=100_000.0)
    version = 1
    outcomes: list[str] = []
    for _ in range(7):
        requests = [asyncio.create_task(_one(running, dice)) for _ in range(25)]
        version += 1
        states = {f"i{number}": dice.choice((InstanceState.SERVING, InstanceState.SERVING, InstanceState.DRAINING)) for number in range(4)}
        world.api.state.set_table(
            world.table(version=version, policy=policy, states=states, prefills_in_flight=2, prefill_tokens_per_second=100_000.0)
        )
        world.engines[dice.randrange(4)].broken = dice.random() < 0.3
        outcomes += await asyncio.gather(*requests)
    for engine in world.engines:
        engine.broken = False
    await until(lambda: running.busy() == 0)
    counters = running.pool.counters
    ended = counters.served + counters.failed + counters.cancelled + counters.rejected_by_engine + sum(counters.refused.values())
    assert running.router.metrics.accounting_errors == 0
    assert ended == counters.submitted
    assert len(outcomes) - outcomes.count("left") <= counters.submitted <= len(outcomes)
    assert 0 < counters.cancelled <= outcomes.count("left")
    assert 0 < outcomes.count("200") <= counters.served + counters.failed
    version += 1
    world.api.state.set_table(world.table(version=version, policy=policy))
    await until(lambda: running.pool.table.version == version)
    answers = await asyncio.gather(*(running.ask(stream=True) for _ in range(8)))
    assert [answer.status_code for answer in answers].count(200) >= 1

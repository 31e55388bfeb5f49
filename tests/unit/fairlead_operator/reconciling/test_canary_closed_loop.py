"""The operator, a router's scheduler and the judge together, in virtual time, with simulated engines."""

from random import Random
from typing import Any

import pytest

from fairlead.canaries.judging import Judge
from fairlead.canaries.verdicts import CanaryRules
from fairlead.pool_states import PoolState
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.table_content import table_of
from fairlead.tables import RoutingTable
from fairlead_api.pools.mirroring import facts_of
from fairlead_testing.worlds.operator_stages import KEY, VirtualStage

OLD, NEW = ({"prefillTokensPerSecond": speed} for speed in (1000, 2000))
ROLLOUT = {"canary": {"steps": [{"share": 50, "hold": "20s"}], "warmCaches": "0s"}}
A_SECOND = 16
"""The number of requests per second."""


def routed(state: PoolState, version: int) -> RoutingTable:
    facts = facts_of(state)
    assert facts is not None
    made = table_of(KEY, state.uid, state.generation, facts.table, state.instances, canary=state.canary)
    return RoutingTable(**{**{name: getattr(made, name) for name in RoutingTable.__slots__}, "version": version})


class World:
    """Requests of sessions of four turns. At the new revision, answers take `slower` times as long."""

    def __init__(self, stage: VirtualStage, slower: float) -> None:
        self.stage, self.slower, self.random, self.sent = stage, slower, Random(1), 0
        self.pool = PoolScheduler(routed(stage.api.states[-1], 1), "router-0", 1)
        self.judge: Judge | None = None
        self.step = ""
        self.served: list[tuple[bool, str]] = []

    async def second(self) -> None:
        self.stage.pods_become_ready()
        self.stage.now += 1
        await self.stage.round()
        self.pool.update_table(routed(self.stage.api.states[-1], int(self.stage.now)), self.stage.now)
        for number in range(A_SECOND):
            self._request(self.stage.now + number / A_SECOND)
        self._judge()

    def _request(self, now: float) -> None:
        self.sent += 1
        name, session = f"r{self.sent}", f"s{self.sent // 4}"
        blocks = (self.sent // 4, self.sent)
        request = RoutingRequest(id=name, arrived_at=now, prompt_tokens=1024, blocks=blocks, first_bytes_hash=blocks[0], session=session)
        for outcome in self.pool.submit(request, now):
            if isinstance(outcome, Dispatch):
                facts = self.stage.api.states[-1].canary
                new = facts is not None and outcome.instance in facts.instances
                self.served.append((new, session))
                seconds = 0.01 * self.random.lognormvariate(0.0, 0.2) * (self.slower if new else 1.0)
                self.pool.first_token(name, now + seconds)
                self.pool.complete(name, now + 2 * seconds, 5, 512)

    def _judge(self) -> None:
        facts = self.stage.api.states[-1].canary
        if facts is None or not facts.share:
            self.pool.take_records(self.stage.now)
            return
        if facts.step != self.step:
            self.step, self.judge = facts.step, Judge(CanaryRules(warming_seconds=0.0), self.stage.now)
        assert self.judge is not None
        for sample in self.pool.take_records(self.stage.now).canary_samples:
            if sample.step == self.step:
                self.judge.add(sample)
        self.stage.api.canary = self.judge.judgement().verdict.value


async def rolled_out(slower: float, seconds: int) -> tuple[World, str]:
    stage = VirtualStage()
    stage.apply(replicas=2, engine=OLD, rollout=ROLLOUT)
    await stage.settle()
    stage.now += 60
    old = stage.pods()[0]["metadata"]["annotations"]["fairlead.dev/spec-hash"]
    stage.apply(replicas=2, engine=NEW, rollout=ROLLOUT)
    world = World(stage, slower)
    for _ in range(seconds):
        await world.second()
    return world, old


def templates(stage: VirtualStage) -> list[Any]:
    return [pod["metadata"]["annotations"]["fairlead.dev/spec-hash"] for pod in stage.pods()]


async def test_a_slow_revision_is_found_and_taken_back() -> None:
    world, old = await rolled_out(1.3, 240)
    assert templates(world.stage) == [old, old]
    assert "CanaryRejected" in world.stage.reasons()
    assert world.stage.condition("Progressing")["message"].startswith("In the canary the time ")
    assert not world.served[-1][0]


@pytest.mark.parametrize("slower", [1.0, 0.8])
async def test_a_revision_that_is_as_good_reaches_every_instance(slower: float) -> None:
    world, old = await rolled_out(slower, 300)
    assert old not in templates(world.stage)
    assert "CanaryPassed" in world.stage.reasons()
    served: dict[str, set[bool]] = {}
    for new, session in world.served[: len(world.served) // 3]:
        served.setdefault(session, set()).add(new)
    mixed = sum(len(arms) > 1 for arms in served.values())
    assert mixed <= 2, "sessions stay with their revision, but for those whose instance left"

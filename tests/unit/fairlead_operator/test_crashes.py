"""The operator is killed at every call that it makes, before and after the call takes effect, and a new one continues.

After every kill, the pool becomes what its spec wants. No request is cut off, no name is given twice, no more pods live
than wanted, and at least the minimum of instances accept requests (`operator_crashes` asserts that at every step). Of
the events, a kill repeats at most one, and loses at most those of the round that it ended.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from fairlead_operator.cluster import Resource
from fairlead_testing.worlds.operator_crashes import FAILING_ENGINE, Copy, CrashingWorld, has_failing_engine

Event = tuple[str, str | None]
"""The reason and the instance of an event."""

SPEC = {"roles": [{"name": "both", "minReplicas": 2, "maxReplicas": 6}]}
NEW_ENGINE = {"simulated": {"decodeStep": "30ms"}}


def is_settled(world: CrashingWorld) -> bool:
    if "status" not in world.stage.pool():
        return False
    pool, status = world.stage.pool(), world.stage.pool()["status"]
    wanted = sum(role.get("replicas", pool["spec"]["replicas"]) for role in pool["spec"]["roles"])
    return bool(
        status["observedGeneration"] == pool["metadata"]["generation"]
        and status["serving"] == wanted == len(world.stage.pods())
        and world.stage.condition("Ready")["status"] == "True"
        and world.stage.condition("Progressing")["status"] == "False"
    )


def is_gone(world: CrashingWorld) -> bool:
    return not world.stage.exists() and not world.api.told


def nothing_runs_and_the_deletion_is_told(world: CrashingWorld) -> bool:
    return bool(world.api.deleted) and not world.api.running


def nothing_failed(world: CrashingWorld) -> bool:
    return is_settled(world) and all(pod["status"]["phase"] == "Running" for pod in world.stage.pods())


def drain_the_first_pod(world: CrashingWorld) -> None:
    """Request a drain, as `kubectl annotate pod NAME fairlead.dev/drain=true` does."""
    pod = world.stage.pods()[0]
    pod["metadata"]["annotations"]["fairlead.dev/drain"] = "true"
    world.cluster.put(Resource.PODS, pod)


def the_drained_pod_is_replaced(world: CrashingWorld) -> bool:
    return is_settled(world) and not any("fairlead.dev/drain" in pod["metadata"]["annotations"] for pod in world.stage.pods())


def lose_a_pod_and_roll_out_an_engine_that_fails(world: CrashingWorld) -> None:
    """Lose a pod and change the engine. The pod's successor has the new engine and fails, which stops the rollout.

    Nothing warms, to save time.
    """
    world.fail_a_pod()
    rollout = {"regression": {"window": "0s"}}
    world.stage.apply(replicas=2, engine=FAILING_ENGINE, rollout=rollout, routing={"warming": {"duration": "0s"}}, **SPEC)


def the_rollout_stopped_and_the_former_engine_runs(world: CrashingWorld) -> bool:
    stopped = is_settled(world) and world.stage.condition("Progressing")["reason"] == "RolloutRegressed"
    return stopped and not any(has_failing_engine(pod) for pod in world.stage.pods())


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """A change of the pool, and the condition for its end. At most `most_live` pods may live meanwhile."""

    change: Callable[[CrashingWorld], None]
    most_live: int
    least_serving: int = 2
    done: Callable[[CrashingWorld], bool] = is_settled
    ends_with: Callable[[CrashingWorld], bool] = lambda world: True


def the_replacement_knows_of_one_failure(world: CrashingWorld) -> bool:
    failures = [pod["metadata"]["annotations"].get("fairlead.dev/failures") for pod in world.stage.pods()]
    return sorted(failures, key=str) == ["1", None, None, None, None]


def pair(prefill: int, decode: int) -> Callable[[CrashingWorld], None]:
    """Return a pool of two roles with this many instances each."""
    roles = [{"name": "prefill", "replicas": prefill}, {"name": "decode", "replicas": decode}]
    return lambda world: world.stage.apply(replicas=1, roles=roles)


def the_same_pods_have_the_new_roles(world: CrashingWorld) -> bool:
    roles = [pod["metadata"]["labels"]["llm-d.ai/role"] for pod in world.stage.pods()]
    ordinals = {pod["metadata"]["annotations"]["fairlead.dev/ordinal"] for pod in world.stage.pods()}
    return sorted(roles) == ["decode", "prefill", "prefill", "prefill"] and ordinals == {"1", "2", "3", "4"}


def scale_to_zero_when_idle(world: CrashingWorld) -> None:
    """Make mode SLO set the numbers of prefill and decode, and let the clients leave."""
    roles = [{"name": "prefill", "replicas": 3}, {"name": "decode", "replicas": 1}]
    world.stage.apply(replicas=1, roles=roles, scaling={"mode": "SLO", "zero": {"idleAfter": "5s"}})
    world.clients_leave()


def nothing_is_left_and_that_is_well(world: CrashingWorld) -> bool:
    ready = world.stage.condition("Ready")
    return not world.stage.pods() and (ready["status"], ready["reason"]) == ("True", "ScaledToZero")


def what_was_held_is_served_by_one_of_each_role(world: CrashingWorld) -> bool:
    roles = sorted(pod["metadata"]["labels"]["llm-d.ai/role"] for pod in world.stage.pods())
    return roles == ["decode", "prefill"] and world.stage.pool()["status"]["serving"] == 2 and not world.api.held


CHAPTERS = {
    "create": Chapter(change=lambda world: world.stage.apply(replicas=3, **SPEC), most_live=3, least_serving=0),
    "scale out": Chapter(change=lambda world: world.stage.apply(replicas=5, **SPEC), most_live=5),
    "failure": Chapter(
        change=lambda world: world.fail_a_pod(),
        most_live=6,
        done=nothing_failed,
        ends_with=the_replacement_knows_of_one_failure,
    ),
    "scale in": Chapter(change=lambda world: world.stage.apply(replicas=2, **SPEC), most_live=5),
    "rollout": Chapter(change=lambda world: world.stage.apply(replicas=2, engine=NEW_ENGINE, **SPEC), most_live=3),
    "halted rollout": Chapter(
        change=lose_a_pod_and_roll_out_an_engine_that_fails,
        most_live=4,
        least_serving=1,
        done=the_rollout_stopped_and_the_former_engine_runs,
    ),
    "drain": Chapter(change=drain_the_first_pod, most_live=3, done=the_drained_pod_is_replaced),
    "delete": Chapter(
        change=lambda world: world.stage.delete(),
        most_live=2,
        least_serving=0,
        done=is_gone,
        ends_with=nothing_runs_and_the_deletion_is_told,
    ),
    "create again": Chapter(change=lambda world: world.stage.apply(replicas=2, **SPEC), most_live=2, least_serving=0),
    "delete in foreground": Chapter(
        change=lambda world: world.delete_in_foreground(),
        most_live=2,
        least_serving=0,
        done=is_gone,
        ends_with=nothing_runs_and_the_deletion_is_told,
    ),
    "create prefill and decode": Chapter(change=pair(2, 2), most_live=4, least_serving=0),
    "flip": Chapter(change=pair(3, 1), most_live=4, least_serving=3, ends_with=the_same_pods_have_the_new_roles),
    # The next operator trusts no idleness at first. It goes on, as the status told the decision before the first mark.
    "to zero": Chapter(change=scale_to_zero_when_idle, most_live=4, least_serving=0, done=nothing_is_left_and_that_is_well),
    "from zero": Chapter(
        change=lambda world: world.clients_come_back(held=3),
        most_live=2,
        least_serving=0,
        done=what_was_held_is_served_by_one_of_each_role,
    ),
}


@dataclass(slots=True, kw_only=True)
class Told:
    """The course of a chapter without a kill, and every place at which a kill could happen."""

    copies: list[Copy]
    writes: int
    history: Counter[Event]
    most_at_once: int
    """The largest number of events in a round."""


@dataclass(slots=True)
class Story:
    """All chapters, run once without a kill."""

    told: dict[str, Told] = field(default_factory=dict)

    async def live(self) -> None:
        world = CrashingWorld.create()
        for name, chapter in CHAPTERS.items():
            before = len(world.api.events)
            chapter.change(world)
            world.most_live, world.least_serving = chapter.most_live, chapter.least_serving
            world.copies, world.keeps_copies, world.writes = [], True, 0
            await world.live_until(chapter.done)
            world.keeps_copies = False
            assert chapter.ends_with(world)
            seconds = Counter(int(event.at) for event in world.api.events[before:])  # the events of a round are microseconds apart
            self.told[name] = Told(
                copies=world.copies, writes=world.writes, history=history(world, before), most_at_once=max(seconds.values(), default=0)
            )


def history(world: CrashingWorld, before: int) -> Counter[Event]:
    """Return the reported events after the first `before`, by reason and instance."""
    return Counter((event.reason, event.instance) for event in world.api.events[before:])


@pytest.fixture(scope="module")
def story() -> Story:
    found = Story()
    asyncio.run(found.live())
    return found


async def live_again(chapter: Chapter, told: Told, world: CrashingWorld, what: str) -> Counter[Event]:
    """Run the chapter to its end and return its history."""
    world.most_live = chapter.most_live
    try:
        await world.live_until(chapter.done)
        assert chapter.ends_with(world)
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from error
    return history(world, len(told.copies[0].history))


@pytest.mark.parametrize("name", CHAPTERS)
async def test_wherever_the_operator_is_killed_the_next_one_brings_the_pool_to_its_spec(story: Story, name: str) -> None:
    chapter, told = CHAPTERS[name], story.told[name]
    assert len(told.copies) > 15, "a chapter has many calls"
    for left in {found.essence(): found for found in told.copies}.values():
        killed = f"killed {left.call} at {left.now:.0f}"
        found = await live_again(chapter, told, CrashingWorld.resume(left), killed)
        assert all(times <= told.history[event] + 1 for event, times in found.items()), f"{killed}: {found}"
        lost = told.history - found
        assert lost.total() <= told.most_at_once, f"{killed}: {lost} lost"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", CHAPTERS)
async def test_a_write_that_gets_no_answer_is_made_good_whether_it_took_effect_or_not(story: Story, name: str, when: str) -> None:
    chapter, told = CHAPTERS[name], story.told[name]
    made = 0
    for number in range(told.writes):
        world = CrashingWorld.resume(told.copies[0])
        world.trouble_at = (number, when)
        await live_again(chapter, told, world, f"no answer {when} write {number}")
        made += world.trouble_at is None
    assert made * 2 >= told.writes, "most of the writes are made again"

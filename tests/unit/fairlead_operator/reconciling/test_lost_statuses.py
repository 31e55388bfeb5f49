"""A pool whose status is removed or set to nonsense, as a whole or in one field. Decisions may come later, but nothing
else changes, because the Kubernetes API does not promise more for a status.
"""

import asyncio
import copy
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.crds import custom_resource_definition
from fairlead.instances import Role
from fairlead.scaling.signals import PoolDemand, PoolSignals
from fairlead_operator.cluster import Resource
from fairlead_operator.reconciling.revisions import ROLLOUT_ANNOTATION as NOTE
from fairlead_operator.reconciling.rollouts import read_rollout, read_rollout_note, rollout_document
from fairlead_operator.times import format_second
from fairlead_testing.builders.scaling import pool_signals, role_signals
from fairlead_testing.examples import examples
from fairlead_testing.worlds.operator_stages import VirtualStage

STATUS = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
ROUND_SECONDS = 10.0
SLO: dict[str, Any] = {"mode": "SLO", "period": "5s"}
HASTY: dict[str, Any] = {
    **SLO,
    "scaleUp": {"stabilizationWindow": "0s", "instances": 4, "period": "10s"},
    "scaleDown": {"stabilizationWindow": "0s", "instances": 1, "percent": 0, "period": "60s", "cooldown": "0s"},
}
"""A scaling spec that limits steps down only to one instance a minute."""

BOTH = [{"name": "both", "minReplicas": 1, "maxReplicas": 8}]
MIGHT_SLEEP = [{"name": "both", "minReplicas": 0, "maxReplicas": 8}]
PAIR = [{"name": "prefill", "minReplicas": 1, "maxReplicas": 8}, {"name": "decode", "minReplicas": 1, "maxReplicas": 8}]
DECLARED_PAIR = [{**role, "replicas": 3} for role in PAIR]
OLD, NEW = {"prefillTokensPerSecond": 1000}, {"prefillTokensPerSecond": 1001}


def paths(schema: Mapping[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the fields of the status by the CRD, including fields of its objects and of items of its lists.

    Fields that the API demands are left out.
    """
    for name, inner in schema.get("properties", {}).items():
        if name not in schema.get("required", ()):
            yield (*at, name)
        yield from paths(inner.get("items", inner), (*at, name))


FIELDS = [path for path in paths(STATUS) if path[0] != "conditions" or len(path) == 1]
MEMORY = [("scaling", "memory", name) for name in ("roles", "ratio")]


def nonsense(schema: Mapping[str, Any]) -> Any:
    """Return a value that the schema accepts and that nobody would have written."""
    match schema.get("type"):
        case "integer":
            return 7_777
        case "number":
            return 0.123
        case "boolean":
            return True
        case "array":
            return []
        case "object":
            return {"roles": "many", "ratio": 3} if schema.get("x-kubernetes-preserve-unknown-fields") else {}
        case _:
            return "2001-01-01T00:00:00Z" if schema.get("format") else "nonsense"


def taken(status: dict[str, Any], path: tuple[str, ...], value: Any = None) -> dict[str, Any]:
    """Return the status without the field, or with another value in it; in a list, each item is changed."""
    name, *inner = path
    found = copy.deepcopy(status)
    if not inner:
        found.pop(name, None)
        return found if value is None else {**found, name: value}
    held = found.get(name)
    if isinstance(held, dict):
        found[name] = taken(held, tuple(inner), value)
    elif isinstance(held, list):
        found[name] = [taken(item, tuple(inner), value) for item in held]
    return found


def there_to_lose(status: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the fields that this status has. Losing any other field would change nothing."""
    return [path for path in (*FIELDS, *MEMORY) if taken(status, path) != status]


def schema_of(path: tuple[str, ...]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = STATUS
    for name in path:
        found = found.get("items", found).get("properties", {}).get(name, {})
    return found


@dataclass(slots=True)
class Watched:
    """A pool in virtual time, with counts of the operator's actions on it."""

    stage: VirtualStage
    starts: bool = True
    """Whether new pods become ready."""
    gone: Counter[float] = field(default_factory=Counter)
    """The number of instances that were taken out of service, by time."""
    wanted: list[int] = field(default_factory=list)

    async def pass_time(self, seconds: float) -> None:
        until = self.stage.now + seconds
        while self.stage.now < until:
            await self.round()

    async def round(self) -> None:
        before = self.there()
        self.stage.now += ROUND_SECONDS
        if self.starts:
            self.stage.pods_become_ready()
        await self.stage.round()
        if lost := len(before) - len(self.there()):
            self.gone[self.stage.now] += lost
        self.wanted.append(len(self.there()))

    def there(self) -> set[str]:
        """Return the instances that are not given up."""
        marks = {body["metadata"]["name"]: body["metadata"]["annotations"] for body in self.stage.pods()}
        return {name for name, known in marks.items() if known["fairlead.dev/state"] != "Draining" or "fairlead.dev/flip-to" in known}

    def roles(self) -> Counter[str]:
        labels = (body["metadata"]["labels"] for body in self.stage.pods() if body["metadata"]["name"] in self.there())
        return Counter(one["llm-d.ai/role"] for one in labels)

    def most_in_a_minute(self) -> int:
        return max((sum(count for at, count in self.gone.items() if begin <= at < begin + 60.0) for begin in self.gone), default=0)


def load(tokens: float, *roles: Role) -> PoolSignals:
    """Return signals of this many prompt tokens per second.

    An instance computes a thousand, and is to be used to 0.8 of it.
    """
    return pool_signals(*(role_signals(role, prompt_tokens_per_second=tokens, output_tokens_per_second=0.0) for role in roles))


async def started(tokens: float, **spec: Any) -> Watched:
    stage = VirtualStage()
    stage.apply(**spec)
    stage.pool()["metadata"]["creationTimestamp"] = format_second(stage.now)
    await stage.settle()
    stage.api.signals = load(tokens, *(Role(role["name"]) for role in spec.get("roles", BOTH)))
    return Watched(stage=stage)


async def five_of_one(scaling: Mapping[str, Any] = SLO) -> Watched:
    """Return a pool that declares one instance and has five, without load."""
    world = await started(4000.0, replicas=1, roles=BOTH, scaling=dict(scaling))
    await world.pass_time(120)
    assert world.roles() == {"both": 5}
    world.stage.api.signals = load(0.0, Role.BOTH)
    return world


async def five_of_one_that_may_shrink_at_once() -> Watched:
    return await five_of_one(HASTY)


async def of_two_roles() -> Watched:
    world = await started(4000.0, replicas=1, roles=PAIR, scaling=SLO)
    await world.pass_time(120)
    world.stage.api.signals = load(0.0, Role.PREFILL, Role.DECODE)
    return world


async def with_a_ratio_of_its_own() -> Watched:
    world = await started(0.0, replicas=1, roles=DECLARED_PAIR, ratio={"mode": "Auto", "method": "Replace", "period": "5s", "periods": 2})
    arriving = {"serving": 3, "prompt_tokens_per_second": 4500.0, "output_tokens_per_second": 300.0}
    world.stage.api.signals = pool_signals(
        role_signals(Role.PREFILL, prefill_load=1.5, **arriving), role_signals(Role.DECODE, decode_load=0.1, **arriving)
    )
    await world.pass_time(30)
    world.stage.api.signals = None
    await world.pass_time(300)
    assert world.roles() == {"prefill": 4, "decode": 2}
    return world


async def at_zero() -> Watched:
    world = await started(0.0, replicas=1, roles=MIGHT_SLEEP, scaling={**SLO, "zero": {"idleAfter": "10s"}})
    world.stage.api.demand = PoolDemand(held_requests=0, held_prompt_tokens=0, in_flight=0, idle_seconds=1000.0)
    await world.pass_time(60)
    assert world.roles() == {}
    return world


async def while_a_template_is_rolled_out() -> Watched:
    world = await five_of_one()
    world.starts = False
    world.stage.apply(**{**world.stage.pool()["spec"], "engine": NEW})
    await world.pass_time(15)
    return world


async def while_an_instance_drains() -> Watched:
    world = await five_of_one(HASTY)
    world.stage.api.in_flight = {body["metadata"]["name"]: 1 for body in world.stage.pods()}
    await world.pass_time(10)
    assert world.roles() == {"both": 4}
    return world


async def under_a_schedule() -> Watched:
    window = {"name": "busy", "cron": "* * * * *", "duration": "1h", "roles": [{"name": "both", "minReplicas": 3}]}
    return await five_of_one({**SLO, "schedules": [window]})


async def of_a_fixed_number() -> Watched:
    world = await started(0.0, replicas=4, roles=BOTH)
    await world.pass_time(30)
    return world


WORLDS: list[Callable[[], Awaitable[Watched]]] = [
    five_of_one,
    five_of_one_that_may_shrink_at_once,
    of_two_roles,
    with_a_ratio_of_its_own,
    at_zero,
    while_a_template_is_rolled_out,
    while_an_instance_drains,
    under_a_schedule,
    of_a_fixed_number,
]


async def life(begin: Watched, lose: Callable[[VirtualStage], None]) -> Watched:
    """Return the pool after two minutes from a fixed beginning, with the loss at once."""
    begin.stage.reconciler = None
    world = copy.deepcopy(begin)
    lose(world.stage)
    world.stage.restart()
    world.gone.clear()
    world.wanted = [len(world.there())]
    await world.pass_time(120)
    return world


def lose_all(stage: VirtualStage) -> None:
    stage.pool().pop("status")


def spoil_all(stage: VirtualStage) -> None:
    stage.pool()["status"] = {name: nonsense(inner) for name, inner in STATUS["properties"].items() if name not in {"conditions", "roles"}}


def re_create(stage: VirtualStage) -> None:
    """Create the pool again, as `kubectl delete --cascade=orphan` and `kubectl apply` do."""
    pool = stage.pool()
    for (resource, _), body in stage.cluster.objects.items():
        if resource is not Resource.POOLS:
            body["metadata"].pop("ownerReferences", None)
    del stage.cluster.objects[Resource.POOLS, "chat"]
    stage.apply(**pool["spec"])


def check(name: str, lost: Watched, untouched: Watched) -> None:
    assert lost.most_in_a_minute() <= max(1, untouched.most_in_a_minute()), f"{name}: {lost.gone}"
    assert all(now >= then for now, then in zip(lost.wanted, untouched.wanted, strict=True)), (
        f"{name}: {lost.wanted}, not {untouched.wanted}"
    )
    assert max(lost.wanted) <= max(untouched.wanted), f"{name}: {lost.wanted}, not {untouched.wanted}"
    assert len(lost.stage.pool()["status"]) >= len(untouched.stage.pool()["status"]) - 1, "what is lost is written again"


@pytest.mark.parametrize("make", WORLDS, ids=lambda make: make.__name__)
async def test_whatever_field_of_the_status_is_lost_nothing_happens_that_would_not_have(make: Callable[[], Awaitable[Watched]]) -> None:
    begin = await make()
    untouched = await life(begin, lambda stage: None)
    for path in there_to_lose(begin.stage.pool()["status"]):

        def take(stage: VirtualStage, path: tuple[str, ...] = path) -> None:
            stage.pool()["status"] = taken(stage.pool()["status"], path)

        check(f"without {'.'.join(path)}", await life(begin, take), untouched)


@pytest.mark.parametrize("lose", [lose_all, spoil_all, re_create], ids=lambda lose: lose.__name__)
@pytest.mark.parametrize("make", [make for make in WORLDS if make is not at_zero], ids=lambda make: make.__name__)
async def test_a_pool_without_its_status_or_re_created_goes_on_from_its_instances(
    make: Callable[[], Awaitable[Watched]], lose: Callable[[VirtualStage], None]
) -> None:
    begin = await make()
    lost, untouched = await life(begin, lose), await life(begin, lambda stage: None)
    assert lost.most_in_a_minute() <= 1, lost.gone
    assert all(now >= then for now, then in zip(lost.wanted, untouched.wanted, strict=True)), (lost.wanted, untouched.wanted)


@pytest.mark.parametrize("lose", [lose_all, spoil_all], ids=lambda lose: lose.__name__)
async def test_a_pool_at_zero_sleeps_on_without_its_status(lose: Callable[[VirtualStage], None]) -> None:
    lost = await life(await at_zero(), lose)
    assert set(lost.wanted) == {0}
    lost.stage.api.demand = PoolDemand(held_requests=1, held_prompt_tokens=10, in_flight=0, idle_seconds=0.0)
    await lost.pass_time(10)
    assert lost.roles() == {"both": 1}, "a request wakes it"


async def test_nonsense_in_a_field_of_the_status_takes_no_instances() -> None:
    begin = await five_of_one_that_may_shrink_at_once()
    for path in FIELDS:

        def spoil(stage: VirtualStage, path: tuple[str, ...] = path) -> None:
            stage.pool()["status"] = taken(stage.pool()["status"], path, nonsense(schema_of(path)))

        lost = await life(begin, spoil)
        assert lost.most_in_a_minute() <= 1, f"{path}: {lost.gone}"


LOSSES = st.sampled_from(["no status", "no memory", "no roles", "round", "round", "round", "restart", "re-created", "half a minute"])


@given(st.lists(LOSSES, max_size=20))
@examples(25)
def test_however_often_the_status_is_lost_an_instance_goes_in_a_minute_at_most_and_each_step_is_told(losses: list[str]) -> None:
    asyncio.run(_lose(losses))


async def _lose(losses: list[str]) -> None:
    world = await five_of_one(HASTY)
    world.gone.clear()
    for loss in losses:
        match loss:
            case "no status":
                world.stage.pool().pop("status", None)
            case "no memory":
                world.stage.pool().get("status", {}).pop("scaling", None)
            case "no roles":
                world.stage.pool().get("status", {}).pop("roles", None)
            case "re-created":
                re_create(world.stage)
            case "half a minute":
                await world.pass_time(30)
        if loss in {"restart", "re-created"}:
            world.stage.restart()
        await world.round()
    assert world.most_in_a_minute() <= 1, world.gone
    assert world.stage.reasons().count("ScalingDown") == sum(world.gone.values()), world.stage.events


async def test_a_pool_that_declares_fewer_than_stand_says_so_when_it_is_re_created() -> None:
    world = await of_a_fixed_number()
    world.stage.pool()["spec"]["replicas"] = 1
    re_create(world.stage)
    world.stage.restart()
    await world.pass_time(30)
    [told] = [message for _, reason, message in world.stage.events if reason == "ScalingDown"]
    assert told.startswith("Instances wanted: 4 → 1 (spec.replicas set by")


async def test_names_are_not_given_again_when_nothing_knows_which_were() -> None:
    world = await of_a_fixed_number()
    known = {body["metadata"]["name"] for body in world.stage.pods()}
    world.stage.apply(replicas=0, roles=MIGHT_SLEEP)
    await world.pass_time(30)
    world.stage.pool().pop("status")
    world.stage.restart()
    await world.pass_time(10)
    world.stage.apply(replicas=4, roles=BOTH)
    await world.pass_time(10)
    names = {body["metadata"]["name"] for body in world.stage.pods()}
    assert len(names) == 4
    assert not names & known


async def test_a_rollout_that_was_stopped_stays_so_without_its_status() -> None:
    world = await started(0.0, replicas=3, roles=BOTH, engine=OLD)
    world.stage.api.slo_attainment = 0.95
    await world.pass_time(60)
    declared = {"replicas": 3, "roles": BOTH, "engine": NEW, "rollout": {"regression": {"window": "0s"}}}
    world.stage.apply(**declared)
    await world.pass_time(10)
    world.stage.api.slo_attainment = 0.6
    await world.pass_time(20)
    assert world.stage.condition("Progressing")["reason"] == "RolloutRegressed"
    former = world.stage.pool()["status"]["currentRevision"]
    hashes = Counter(body["metadata"]["annotations"]["fairlead.dev/spec-hash"] for body in world.stage.pods())
    for _ in range(3):
        world.stage.pool().pop("status")
        world.stage.restart()
        await world.pass_time(60)
        assert world.stage.condition("Progressing")["reason"] == "RolloutRegressed"
        assert world.stage.pool()["status"]["currentRevision"] == former
        assert Counter(body["metadata"]["annotations"]["fairlead.dev/spec-hash"] for body in world.stage.pods()) == hashes
    world.stage.api.slo_attainment = 0.95
    world.stage.apply(**{**declared, "engine": OLD})
    await world.pass_time(120)
    world.stage.apply(**declared)
    await world.pass_time(300)
    assert world.stage.condition("Progressing")["reason"] == "Settled", "applied again it is judged anew"


MEMBERS = ("key", "beganAt", "attainmentBefore", "updatedByRole", "updatedAt", "worseSince", "measured", "regressed", "step", "stepSince")
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(("", "a", "both", "0001-01-01T00:00:00+23:59")),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from((*MEMBERS, "both")), inner, max_size=3),
)


@given(st.dictionaries(st.sampled_from(MEMBERS), ANYTHING) | ANYTHING)
@examples(200)
def test_whatever_a_revisions_note_or_a_status_says_of_a_rollout_it_is_read_or_passed_over(document: Any) -> None:
    found = [read_rollout(document), read_rollout_note(json.dumps(document)), read_rollout_note("[" * 100_000)]
    assert all(one is None or rollout_document(one)["key"] for one in found)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"data": None},
        {"data": []},
        {"data": {"engine": [1]}},
        {"data": {"roles": 7}},
        {"metadata": {"annotations": {NOTE: '{"key":"a","step":[1]}'}}},
    ],
    ids=str,
)
async def test_a_revision_that_nobody_can_read_does_not_end_the_work_on_its_pool(spoilt: dict[str, Any]) -> None:
    """Anybody may write such an annotation, or create a revision with the labels that the operator uses."""
    world = await started(0.0, replicas=2, roles=BOTH, engine=OLD)
    await world.pass_time(20)
    world.stage.apply(replicas=2, roles=BOTH, engine=NEW)
    await world.pass_time(5)
    world.stage.pool().pop("status")
    [*_, newest] = sorted(world.stage.cluster.all(Resource.REVISIONS), key=lambda one: int(one["revision"]))
    metadata = {**newest["metadata"], **spoilt.get("metadata", {})}
    if "data" in spoilt:
        metadata = {"name": "chat-foreign", "namespace": "default", "labels": newest["metadata"]["labels"]}
    world.stage.cluster.put(Resource.REVISIONS, {**newest, **spoilt, "metadata": metadata, "revision": 99})
    world.stage.restart()
    await world.pass_time(120)
    assert world.stage.condition("Progressing")["reason"] == "Settled"
    assert world.roles() == {"both": 2}

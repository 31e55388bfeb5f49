"""InferenceObjectives of a pool become classes of its requests; one that cannot reports the reason."""

from dataclasses import replace
from typing import Any

import pytest

from fairlead.instances import InstanceState, Role
from fairlead.pool_states import InstanceReport
from fairlead.pools import parse_spec
from fairlead.priority_classes import PriorityClasses
from fairlead.table_content import table_of
from fairlead.tables import PoolKey, PriorityClass
from fairlead_operator.cluster import ClusterRefused, Resource
from fairlead_operator.gateways.objectives import Objectives, read_objectives
from fairlead_operator.settings import PickerSettings, ServiceName
from fairlead_testing.worlds.operator_stages import SETTINGS, VirtualStage

OURS = PriorityClass(name="batch", priority=-10, share=0.6)


def objective(called: str, priority: int | None = None, **ref: str) -> dict[str, Any]:
    told = {"priority": priority} if priority is not None else {}
    return {"metadata": {"name": called, "namespace": "default"}, "spec": {"poolRef": {"name": "chat", **ref}, **told}}


def read(*documents: dict[str, Any]) -> Objectives:
    return read_objectives(documents, "chat", [OURS])


def test_objectives_of_the_pool_are_classes_and_without_a_number_their_priority_is_0() -> None:
    found = read(objective("search", 50), objective("chores"), objective("own", 1, group="fairlead.dev"))
    assert {one.name: (one.priority, one.share) for one in found.classes} == {"search": (50, 1.0), "chores": (0, 1.0), "own": (1, 1.0)}
    assert found.unused == ()


@pytest.mark.parametrize("ref", [{"name": "other"}, {"kind": "Service"}, {"group": "example.com"}])
def test_objectives_of_others_are_none_of_the_pools_business(ref: dict[str, str]) -> None:
    assert read(objective("search", 50, **ref)) == Objectives()


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([objective("batch", 5)], "batch: spec.priorityClasses declares a class of this name"),
        ([objective("default", 5)], "default: this is the class of requests without a class"),
        ([objective("a.b", 5)], "a.b: has a dot"),
        ([objective("twice", 1), objective("twice", 2)], "twice: another objective of this name has priority 1"),
        ([objective(f"c{number}", 1) for number in range(8)], "c7: a pool has at most 8 classes"),
    ],
)
def test_an_objective_that_can_be_no_class_says_why_and_costs_no_other(documents: list[dict[str, Any]], words: str) -> None:
    found = read(*documents, objective("a-good-one", 3))
    assert PriorityClass(name="a-good-one", priority=3) in found.classes
    assert len(found.unused) >= 1
    assert found.unused[-1].startswith(words)
    assert len({one.name for one in found.classes}) == len(found.classes) <= 7


def test_an_objective_that_stands_in_both_groups_is_one() -> None:
    assert read(objective("search", 50), objective("search", 50)) == read(objective("search", 50))


def test_a_table_has_them_beside_the_specs_classes() -> None:
    facts = parse_spec({"model": "m", "priorityClasses": [{"name": "batch", "priority": -10}]}).facts()
    instance = InstanceReport(
        id="a", pod_uid="u", address="127.0.0.1:8000", role=Role.BOTH, state=InstanceState.SERVING, reason="r", created_at=0.0
    )
    table = table_of(PoolKey(namespace="n", name="p"), "u", 1, facts, [instance], objectives=read(objective("search", 50)).classes)
    classes = PriorityClasses(table.priority_classes)
    assert [classes.rank(name) for name in ("search", "nobody", "batch")] == [0, 1, 2]


async def asking() -> VirtualStage:
    """Return a settled pool that asks for gateways, on a cluster with InferenceObjectives."""
    picker = PickerSettings(service=ServiceName(namespace="default", name="routers"))
    stage = VirtualStage(settings=replace(SETTINGS, picker=picker))
    stage.cluster.put(Resource.SERVICES, {"metadata": {"name": "routers"}, "spec": {"ports": [{"port": picker.port}]}})
    stage.apply(gateway={}, priorityClasses=[{"name": "batch", "priority": -10}])
    await stage.settle()
    await stage.look_at_gateways()
    await stage.settle()
    return stage


def told(stage: VirtualStage) -> dict[str, int]:
    return {one.name: one.priority for one in stage.api.states[-1].objectives}


@pytest.mark.parametrize("resource", [Resource.OBJECTIVES, Resource.FORMER_OBJECTIVES])
async def test_what_objectives_say_reaches_the_control_api_with_the_next_look(resource: Resource) -> None:
    stage = await asking()
    for changes in (50, 20):
        stage.cluster.put(resource, objective("search", changes))
        assert await stage.look_at_gateways() == 1
        await stage.round()
        assert told(stage) == {"search": changes}
    del stage.cluster.objects[resource, "search"]
    assert await stage.look_at_gateways() == 1
    await stage.round()
    assert told(stage) == {}


async def test_a_name_that_is_taken_makes_the_pool_degraded_until_it_is_free() -> None:
    stage = await asking()
    stage.cluster.put(Resource.OBJECTIVES, objective("batch", 5))
    await stage.look_at_gateways()
    await stage.settle()
    found = stage.condition("Degraded")
    assert (found["status"], found["reason"]) == ("True", "ObjectiveNotUsed")
    assert "batch: spec.priorityClasses declares" in found["message"]
    assert stage.condition("Ready")["status"] == "True"
    assert told(stage) == {}
    del stage.cluster.objects[Resource.OBJECTIVES, "batch"]
    await stage.look_at_gateways()
    await stage.settle()
    assert stage.condition("Degraded")["status"] == "False"


async def test_a_cluster_without_objectives_or_the_right_to_them_costs_nothing_else() -> None:
    stage = await asking()
    stage.cluster.unknown = {Resource.FORMER_OBJECTIVES}
    stage.cluster.refuse = lambda verb, resource, name: ClusterRefused(403, "Forbidden", "no") if resource is Resource.OBJECTIVES else None
    stage.apply(gateway={}, replicas=3)
    await stage.settle()
    assert stage.pool()["status"]["serving"] == 3
    assert stage.condition("Degraded")["status"] == "False"


async def test_a_pool_that_asks_for_no_gateway_reads_no_objectives() -> None:
    stage = VirtualStage(settings=replace(SETTINGS, picker=PickerSettings(service=ServiceName(namespace="default", name="routers"))))
    stage.apply()
    await stage.settle()
    assert not [call for call in stage.cluster.calls if call[1] in {Resource.OBJECTIVES, Resource.FORMER_OBJECTIVES}]

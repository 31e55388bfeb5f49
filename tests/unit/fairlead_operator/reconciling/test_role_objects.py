"""InferencePoolRoles on a fake cluster, in virtual time: they are made, followed, pinned, bounded and restored."""

from collections import Counter
from typing import Any

from fairlead_operator.cluster import Resource
from fairlead_testing.worlds.operator_stages import SETTINGS, VirtualStage

FREE: list[dict[str, Any]] = [{"name": "prefill", "minReplicas": 2, "maxReplicas": 4}, {"name": "decode"}]


def numbers(stage: VirtualStage) -> dict[str, int]:
    """Return the number of pods of each role."""
    return Counter(pod["metadata"]["labels"]["llm-d.ai/role"] for pod in stage.pods())


def role_object(stage: VirtualStage, role: str) -> dict[str, Any]:
    return stage.cluster.objects[Resource.ROLES, f"chat-{role}"]


def scale(stage: VirtualStage, role: str, replicas: int, manager: str = "kubectl") -> None:
    """Write the scale subresource, as kubectl and autoscalers do."""
    document = role_object(stage, role)
    document["spec"]["replicas"] = replicas
    document["metadata"]["generation"] = document["metadata"].get("generation", 1) + 1
    document["metadata"]["managedFields"] = [
        {"manager": manager, "operation": "Update", "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    ]
    stage.cluster.put(Resource.ROLES, document)
    assert stage.reconciler is not None
    stage.reconciler.children_changed()  # what the handler does


async def split_stage(roles: list[dict[str, Any]] = FREE) -> VirtualStage:
    stage = VirtualStage()
    stage.apply(replicas=1, roles=roles)
    await stage.settle()
    return stage


async def test_a_role_whose_number_nobody_declares_starts_with_the_fewest_and_follows_its_object() -> None:
    stage = await split_stage()
    assert numbers(stage) == {"prefill": 2, "decode": 1}
    assert role_object(stage, "prefill")["spec"] == {"pool": "chat", "role": "prefill", "replicas": 2}
    assert role_object(stage, "prefill")["metadata"]["ownerReferences"][0]["kind"] == "InferencePool"
    scale(stage, "prefill", 4, "autoscaler")
    await stage.settle()
    assert numbers(stage) == {"prefill": 4, "decode": 1}
    prefill, _ = stage.pool()["status"]["roles"]
    assert prefill["lastScale"] | {"at": ""} == {
        "at": "",
        "from": 2,
        "to": 4,
        "reason": "replicas of its InferencePoolRole set by autoscaler",
    }
    assert role_object(stage, "prefill")["status"] == {
        "observedGeneration": 2,
        "replicas": 4,
        "serving": 4,
        "desired": 4,
        "message": "replicas of its InferencePoolRole set by autoscaler",
        "selector": "fairlead.dev/pool=chat,llm-d.ai/role=prefill",
    }
    assert "ScaleBounded" not in stage.reasons()


async def test_a_number_beyond_the_roles_bounds_is_bounded_and_told_once() -> None:
    stage = await split_stage()
    scale(stage, "prefill", 20)
    await stage.settle()
    await stage.round()
    assert numbers(stage) == {"prefill": 4, "decode": 1}
    limited = stage.condition("ScalingLimited")
    assert limited["message"] == "20 prefill instances are recommended, but the role allows only 2 to 4"
    words = "20 replicas of its InferencePoolRole set by kubectl; roles[prefill].maxReplicas makes it 4"
    assert role_object(stage, "prefill")["status"]["message"] == words
    assert [event for event in stage.events if event[1] == "ScaleBounded"] == [("Warning", "ScaleBounded", words)]
    scale(stage, "prefill", 1)
    await stage.settle()
    assert numbers(stage) == {"prefill": 2, "decode": 1}
    assert role_object(stage, "prefill")["status"]["message"].endswith("roles[prefill].minReplicas makes it 2")
    assert role_object(stage, "prefill")["spec"]["replicas"] == 1, "what was asked for is not written over"


async def test_a_number_that_the_pool_declares_pins_the_object_and_lets_it_go_again() -> None:
    stage = await split_stage()
    declared = [{**FREE[0], "replicas": 3}, FREE[1]]
    stage.apply(replicas=1, roles=declared)
    await stage.settle()
    assert numbers(stage) == {"prefill": 3, "decode": 1}
    assert role_object(stage, "prefill")["spec"] == {"pool": "chat", "role": "prefill", "replicas": 3, "pinned": 3}
    stage.apply(replicas=1, roles=FREE)
    await stage.settle()
    assert role_object(stage, "prefill")["spec"] == {"pool": "chat", "role": "prefill", "replicas": 3}
    assert numbers(stage) == {"prefill": 3, "decode": 1}, "nothing is scaled by letting go"


async def test_a_pin_that_was_taken_off_by_hand_is_restored() -> None:
    stage = await split_stage([{"name": "prefill", "replicas": 2}, {"name": "decode", "replicas": 1}])
    del role_object(stage, "prefill")["spec"]["pinned"]
    scale(stage, "prefill", 5)
    await stage.settle()
    assert role_object(stage, "prefill")["spec"] == {"pool": "chat", "role": "prefill", "replicas": 2, "pinned": 2}
    assert numbers(stage) == {"prefill": 2, "decode": 1}


async def test_an_object_that_was_deleted_comes_back_with_the_number_that_was_wanted() -> None:
    stage = await split_stage()
    scale(stage, "prefill", 3)
    await stage.settle()
    del stage.cluster.objects[Resource.ROLES, "chat-prefill"]
    stage.restart()
    await stage.settle()
    assert role_object(stage, "prefill")["spec"]["replicas"] == 3
    assert numbers(stage) == {"prefill": 3, "decode": 1}


async def test_an_object_of_the_same_name_that_is_not_the_pools_is_left_alone_and_told() -> None:
    stage = VirtualStage()
    theirs = {"metadata": {"name": "chat-prefill"}, "spec": {"pool": "chat", "role": "prefill", "replicas": 4}}
    stage.cluster.put(Resource.ROLES, theirs)
    stage.apply(replicas=1, roles=FREE)
    await stage.settle()
    assert stage.condition("Degraded")["reason"] == "ChildNotOurs"
    assert numbers(stage) == {"prefill": 2, "decode": 1}
    assert role_object(stage, "prefill")["spec"] == theirs["spec"]


async def test_a_pool_of_the_role_both_has_no_such_object_and_clears_away_those_of_an_earlier_pool() -> None:
    stage = VirtualStage()
    stage.apply(replicas=2)
    labels = {"fairlead.dev/pool": "chat", "app.kubernetes.io/managed-by": "fairlead"}
    stage.cluster.put(Resource.ROLES, {"metadata": {"name": "chat-decode", "labels": labels}, "spec": {}})
    await stage.settle()
    stage.now += SETTINGS.pace.children
    await stage.round()
    assert stage.cluster.all(Resource.ROLES) == []

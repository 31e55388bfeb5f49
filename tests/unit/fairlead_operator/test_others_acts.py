"""Other programs' changes of a pool's pods are repaired or reported, also if no operator ran. In virtual time."""

import asyncio
import copy
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_operator.cluster import ClusterUnavailable, Resource
from fairlead_testing.examples import examples
from fairlead_testing.worlds.operator_crashes import TERMINATING
from fairlead_testing.worlds.operator_stages import VirtualStage

MARKS = {
    "labels": ("fairlead.dev/pool", "fairlead.dev/instance", "llm-d.ai/role", "app.kubernetes.io/managed-by"),
    "annotations": (
        "fairlead.dev/spec-hash",
        "fairlead.dev/kv-revision",
        "fairlead.dev/created-at",
        "fairlead.dev/ordinal",
        "fairlead.dev/state",
        "fairlead.dev/state-since",
        "fairlead.dev/state-reason",
    ),
}
SPLIT = {
    "replicas": 1,
    "routing": {"policy": "static-pd"},
    "roles": [{"name": "prefill", "replicas": 1}, {"name": "decode", "replicas": 2}],
}


async def settled(**spec: Any) -> VirtualStage:
    stage = VirtualStage()
    stage.apply(**spec)
    await stage.settle()
    stage.events.clear()
    return stage


def names(stage: VirtualStage) -> set[str]:
    return {pod["metadata"]["name"] for pod in stage.pods()}


def told(stage: VirtualStage, reason: str) -> list[str]:
    return [message for _, found, message in stage.events if found == reason]


@pytest.mark.parametrize("restarted", [False, True], ids=["watched", "while no operator ran"])
async def test_a_pod_deleted_without_grace_is_told_and_its_successor_names_it(restarted: bool) -> None:
    stage = await settled(replicas=3)
    victim = sorted(names(stage))[1]
    del stage.cluster.objects[Resource.PODS, victim]
    if restarted:
        stage.restart()
    await stage.settle()
    assert [kind for kind, reason, _ in stage.events if reason == "InstanceVanished"] == ["Warning"]
    assert told(stage, "InstanceVanished")[0].startswith(f"{victim} is gone: ")
    (created,) = told(stage, "InstanceCreated")
    assert created.endswith(f"(Replacing {victim})")
    assert "InstanceVanished" in {event.reason for event in stage.api.events}, "the pool's history has it too"


async def test_each_of_several_has_a_successor_of_its_own() -> None:
    stage = await settled(replicas=4)
    victims = sorted(names(stage))[:3]
    for victim in victims:
        del stage.cluster.objects[Resource.PODS, victim]
    await stage.settle()
    assert sorted(words.rpartition("Replacing ")[2].rstrip(")") for words in told(stage, "InstanceCreated")) == victims


async def test_a_pod_that_somebody_deletes_is_told_once_and_is_no_loss() -> None:
    stage = await settled(replicas=2)
    victim = sorted(names(stage))[0]
    pod = stage.cluster.objects[Resource.PODS, victim]
    pod["metadata"] |= TERMINATING
    await stage.round()
    stage.cluster.objects[Resource.PODS, victim]["status"] = {"phase": "Succeeded"}  # as kubelets since 1.27 write before it goes
    await stage.round()
    del stage.cluster.objects[Resource.PODS, victim]
    await stage.settle()
    assert told(stage, "PodDeleted") == [f"{victim} takes no new requests: its pod is being deleted, not by Fairlead (PodDeleted)"]
    assert told(stage, "InstanceCreated")[0].endswith(f"(Replacing {victim})")
    assert not {"InstanceLost", "InstanceGone", "InstanceVanished"} & set(stage.reasons())


async def test_what_the_operator_removes_itself_is_told_by_its_own_events_only() -> None:
    stage = await settled(replicas=3)
    stage.apply(replicas=1)
    await stage.settle()
    assert stage.reasons().count("Drained") == 2
    assert not {"InstanceLost", "InstanceGone", "InstanceVanished", "PodDeleted"} & set(stage.reasons())


async def test_more_instances_are_added_and_replace_none() -> None:
    stage = await settled(replicas=1)
    stage.apply(replicas=3)
    await stage.settle()
    assert [words.rpartition("(")[2] for words in told(stage, "InstanceCreated")] == ["Added)", "Added)"]


@pytest.mark.parametrize("restarted", [False, True], ids=["watched", "while no operator ran"])
@pytest.mark.parametrize("mark", [name for names in MARKS.values() for name in names])
@pytest.mark.parametrize("spec", [{"replicas": 2}, SPLIT], ids=["one role", "prefill and decode"])
async def test_a_mark_that_somebody_removes_is_put_back_and_moves_nothing(spec: dict[str, Any], mark: str, restarted: bool) -> None:
    stage = await settled(**spec)
    before = copy.deepcopy({pod["metadata"]["name"]: pod["metadata"] for pod in stage.pods()})
    victim = sorted(before)[-1]
    metadata = stage.cluster.objects[Resource.PODS, victim]["metadata"]
    (metadata["labels"] if mark in MARKS["labels"] else metadata["annotations"]).pop(mark)
    if restarted:
        stage.restart()
    await stage.settle()
    after = {pod["metadata"]["name"]: pod["metadata"] for pod in stage.pods()}
    assert after.keys() == before.keys()
    assert not {"InstanceCreated", "Draining", "InstanceDeleted", "InstanceLost", "RolloutBegan"} & set(stage.reasons())
    part = "labels" if mark in MARKS["labels"] else "annotations"
    if not restarted or mark in (*MARKS["labels"], "fairlead.dev/spec-hash", "fairlead.dev/ordinal"):
        assert after[victim][part][mark] == before[victim][part][mark]
        assert told(stage, "InstanceMarksRestored")[0].startswith(f"{victim} lacked {mark}, which somebody had removed (")


async def test_all_marks_at_once_are_put_back_too() -> None:
    stage = await settled(replicas=2)
    victim = sorted(names(stage))[0]
    metadata = stage.cluster.objects[Resource.PODS, victim]["metadata"]
    before = copy.deepcopy(metadata)
    metadata["labels"], metadata["annotations"] = {}, {}
    await stage.settle()
    assert len(names(stage)) == 2
    metadata = stage.cluster.objects[Resource.PODS, victim]["metadata"]
    warmed = {
        "fairlead.dev/warmed-restarts": before["annotations"]["fairlead.dev/warmed-restarts"]
    }  # without it, it only warms up once more
    assert (metadata["labels"], {**metadata["annotations"], **warmed}) == (before["labels"], before["annotations"])


async def test_an_owner_reference_that_somebody_removes_is_put_back() -> None:
    stage = await settled(replicas=2)
    victim = sorted(names(stage))[0]
    stage.cluster.objects[Resource.PODS, victim]["metadata"]["ownerReferences"] = []
    await stage.settle()
    assert len(names(stage)) == 2
    assert [owner["uid"] for owner in stage.cluster.objects[Resource.PODS, victim]["metadata"]["ownerReferences"]] == ["uid-1"]
    assert told(stage, "InstanceAdopted") == [f"{victim} had lost its ownerReference, which is put back"]
    assert "InstanceCreated" not in stage.reasons()


async def test_a_mark_that_is_taken_off_again_and_again_does_not_keep_the_pool_from_being_worked_on() -> None:
    stage = await settled(replicas=2)
    victim = sorted(names(stage))[0]
    stage.apply(replicas=3)
    for _ in range(20):
        stage.cluster.objects[Resource.PODS, victim]["metadata"]["annotations"].pop("fairlead.dev/ordinal", None)
        stage.pods_become_ready()
        stage.now += 1
        await stage.round()
    assert len(names(stage)) == 3
    assert stage.reasons().count("InstanceMarksRestored") == 1


CHANGED = {
    "fairlead.dev/pool": ("other", "chatty", ""),
    "fairlead.dev/instance": ("chat-bnobody",),
    "llm-d.ai/role": ("encoder", "both-"),
    "app.kubernetes.io/managed-by": ("Helm",),
    "fairlead.dev/spec-hash": ("000000000000",),
    "fairlead.dev/created-at": ("2001-01-01T00:00:00.000000Z", "yesterday"),
    "fairlead.dev/ordinal": ("7", "99999999999999999999", "9" * 5000),
}
"""Labels and annotations that the operator writes only once, with values that another program may write."""


def change(stage: VirtualStage, name: str, mark: str, value: str) -> None:
    metadata = stage.cluster.objects[Resource.PODS, name]["metadata"]
    (metadata["labels"] if mark in MARKS["labels"] else metadata["annotations"])[mark] = value


ONLY_REMEMBERED = {"fairlead.dev/spec-hash", "fairlead.dev/created-at"}
"""Labels and annotations whose former values are stored nowhere else."""
ACTS = [
    (mark, value, restarted)
    for mark, values in CHANGED.items()
    for value in values
    for restarted in (False, True)
    if not (restarted and mark in ONLY_REMEMBERED)
]


@pytest.mark.parametrize(("mark", "value", "restarted"), ACTS, ids=lambda one: str(one)[:24])
@pytest.mark.parametrize("spec", [{"replicas": 2}, SPLIT], ids=["one role", "prefill and decode"])
async def test_a_mark_that_somebody_changes_is_put_back_and_moves_nothing(
    spec: dict[str, Any], mark: str, value: str, restarted: bool
) -> None:
    stage = await settled(**spec)
    before = copy.deepcopy({pod["metadata"]["name"]: pod["metadata"] for pod in stage.pods()})
    told_before = len(stage.api.states)
    for name in before:
        change(stage, name, mark, value)
    if restarted:
        stage.restart()
    await stage.settle()
    after = {pod["metadata"]["name"]: pod["metadata"] for pod in stage.pods()}
    assert after.keys() == before.keys(), "nothing is made in their place"
    part = "labels" if mark in MARKS["labels"] else "annotations"
    assert {name: one[part][mark] for name, one in after.items()} == {name: one[part][mark] for name, one in before.items()}
    words = f"had another {mark}, which somebody had written ("
    assert all(any(line.startswith(f"{name} {words}") for line in told(stage, "InstanceMarksRestored")) for name in before)
    assert stage.pool()["status"]["lastOrdinal"] == len(before)
    if not restarted:
        assert all({one.id for one in state.instances} == set(before) for state in stage.api.states[told_before:]), "none left the table"


async def test_a_mark_that_somebody_overwrites_for_good_is_put_back_less_and_less_often() -> None:
    stage = await settled(replicas=2)
    victim, tries = sorted(names(stage))[0], []
    for _ in range(6 * 60):
        change(stage, victim, "app.kubernetes.io/managed-by", "Helm")
        stage.now += 60
        await stage.round()
        if stage.cluster.objects[Resource.PODS, victim]["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "fairlead":
            tries.append(stage.now)
    pauses = [round(after - before) for before, after in pairwise(tries)]
    assert pauses[:6] == [60, 120, 240, 480, 960, 1920]
    assert max(pauses) == 3600


async def test_an_operator_whose_restored_label_does_not_stay_goes_on_with_the_pool() -> None:
    stage = await settled(replicas=2)
    victim = sorted(names(stage))[0]
    for _ in range(20):
        change(stage, victim, "fairlead.dev/pool", "other")
        stage.pods_become_ready()
        stage.now += 1
        await stage.round()
    assert len([pod for pod in stage.pods() if pod["metadata"]["labels"]["fairlead.dev/pool"] == "chat"]) == 2
    assert stage.reasons().count("InstanceMarksRestored") == 1


async def test_an_instance_is_never_taken_to_be_gone_because_an_annotation_says_so() -> None:
    stage = await settled(replicas=2)
    victim = sorted(names(stage))[0]
    for state in ("Gone", "nonsense"):
        change(stage, victim, "fairlead.dev/state", state)
        stage.apply(replicas=2, slo={"ttft": f"{len(state)}s"})
        await stage.settle()
        assert stage.cluster.objects[Resource.PODS, victim]["metadata"]["annotations"]["fairlead.dev/state"] == "Serving"


WRITTEN = [
    *(
        (Resource.PODS, name)
        for name in ("cordoned", "drain", "weight", "kv-revision", "spec-hash", "state", "state-since", "state-reason")
    ),
    *(
        (Resource.PODS, name)
        for name in ("draining-since", "drain-reason", "flip-to", "warmed-restarts", "created-at", "ordinal", "failures")
    ),
    *((Resource.POOLS, name) for name in ("changed-by", "change-reason", "plan", "owner", "engines-file")),
    (Resource.BUDGETS, "replicas"),
    (Resource.REVISIONS, "rollout"),
]
NONSENSE = [
    "",
    "x",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "0001-01-01",
    "-1",
    "9" * 5000,
    "nan",
    "1e999",
    "{}",
    "[1]",
    "²",
]


@given(st.sampled_from(WRITTEN), st.sampled_from(NONSENSE), st.booleans())
@examples(200)
def test_no_annotation_that_anybody_writes_ends_the_work_on_a_pool(place: tuple[Resource, str], text: str, is_split: bool) -> None:
    asyncio.run(_live_with(place, text, SPLIT if is_split else {"replicas": 2}))


async def _live_with(place: tuple[Resource, str], text: str, spec: dict[str, Any]) -> None:
    stage = await settled(**spec)
    resource, name = place
    stage.cluster.all(resource)[0]["metadata"].setdefault("annotations", {})[f"fairlead.dev/{name}"] = text
    stage.pool().pop("status")
    for restarted in (False, True):
        if restarted:
            stage.restart()
        await stage.settle()
    assert stage.condition("Ready")["status"] == "True"


@pytest.mark.parametrize("graceful", [False, True])
async def test_pods_whose_label_is_taken_at_admission_are_not_made_without_end(graceful: bool) -> None:
    """They are in no list and so do not count as instances. With a grace period, a deleted pod still exists when its
    name is used again.
    """
    made: list[str] = []

    def strip(resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
        if resource is Resource.PODS:
            made.append(body["metadata"]["name"])
            del body["metadata"]["labels"]["fairlead.dev/pool"]
            if graceful:
                body["metadata"]["finalizers"] = ["example.com/grace"]
        return body

    stage = VirtualStage()
    stage.cluster.admit = strip
    stage.apply(replicas=2)
    for _ in range(300):
        stage.now += 1
        await stage.round()
    assert len(made) <= 12, "the pause between two tries grows"
    assert all(pod["metadata"].get("deletionTimestamp") for pod in stage.pods())
    assert "without its label fairlead.dev/pool" in stage.condition("Degraded")["message"]
    stage.cluster.admit = lambda resource, body: body
    for name in made:
        stage.cluster.objects.pop((Resource.PODS, name), None)
    stage.now += 300
    await stage.settle()
    assert len(stage.pods()) == 2
    assert stage.condition("Degraded")["status"] == "False"


async def test_a_pod_that_lost_its_label_at_admission_and_could_not_be_deleted_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def strip(resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
        if resource is Resource.PODS:
            del body["metadata"]["labels"]["fairlead.dev/pool"]
        return body

    async def unavailable(*_: object) -> bool:
        raise ClusterUnavailable("away")

    stage = VirtualStage()
    stage.apply(replicas=1)
    with monkeypatch.context() as patched:
        patched.setattr(stage.cluster, "admit", strip)
        patched.setattr(type(stage.cluster), "delete", unavailable)
        with suppress(ClusterUnavailable):
            await stage.round()
    [left] = stage.pods()
    assert "fairlead.dev/pool" not in left["metadata"]["labels"]
    stage.restart()
    for _ in range(30):
        stage.now += 1
        await stage.round()
    assert [pod["metadata"]["labels"]["fairlead.dev/pool"] for pod in stage.pods()] == ["chat"]
    assert stage.condition("Degraded")["status"] == "False"

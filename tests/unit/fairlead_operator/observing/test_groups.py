"""How the operator observes a group of pods: the leader is the instance, in every state of its set and pods."""

from typing import Any

import pytest

from fairlead.instances import InstanceState, Role
from fairlead.pools import parse_spec
from fairlead.reconciling.observed import PodHealth
from fairlead.reconciling.states import next_state
from fairlead_operator.manifests import disruption_budget, group, pod
from fairlead_operator.observing.groups import LEADERLESS_SECONDS, with_groups
from fairlead_operator.observing.lost_marks import ordinal_of, pool_of
from fairlead_operator.observing.pods import Pod, read_pods
from fairlead_operator.pod_marks import STATE_ANNOTATION
from fairlead_operator.pod_templates import spec_hash
from fairlead_operator.pool_identity import PoolIdentity
from fairlead_operator.reconciling.pool_state import troubles_of

IDENTITY = PoolIdentity(namespace="default", name="wide", uid="u-1")
TEMPLATE = {
    "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "inference"}},
    "spec": {"containers": [{"name": "engine", "image": "vllm:1"}]},
}
WORKER = {"spec": {"containers": [{"name": "engine", "image": "worker:1"}]}}
NOW = "2026-11-29T00:00:00Z"
MADE_AT = 1795910400.0
READY = {"phase": "Running", "podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]}


def spec_of(**role: Any) -> Any:
    return parse_spec({"model": "m", "engine": {"type": "vllm"}, "roles": [{"name": "both", "template": TEMPLATE, "nodes": 2, **role}]})


def made(spec: Any = None) -> dict[str, Any]:
    """Return the set of an instance as the cluster has it."""
    spec = spec or spec_of()
    leader = pod(IDENTITY, spec, role=Role.BOTH, ordinal=1, image="i", reason="PoolCreated", now=NOW)
    body = group(IDENTITY, spec, leader, Role.BOTH, 2)
    return {**body, "metadata": {**body["metadata"], "uid": "set-1"}}


def leader_of(found: dict[str, Any], status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    template = found["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    owner = {"kind": "StatefulSet", "name": found["metadata"]["name"], "uid": "sts-1", "controller": True}
    own = {**template["metadata"], "name": f"{found['metadata']['name']}-0", "uid": "pod-1", "ownerReferences": [owner], **metadata}
    return {"metadata": own, "spec": template["spec"], "status": status}


def worker_of(found: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    template = found["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    labels = {**template["metadata"]["labels"], "leaderworkerset.sigs.k8s.io/name": found["metadata"]["name"]}
    return {"metadata": {"name": f"{found['metadata']['name']}-0-1", "labels": labels}, "status": status}


def seen(found: dict[str, Any] | None, *pods: dict[str, Any]) -> tuple[Pod, ...]:
    sets = [found] if found is not None else []
    leaders = [one for one in pods if one["metadata"]["name"].count("-0-1") == 0]
    return read_pods(with_groups(leaders, sets, pods), IDENTITY.uid, spec_of())


def marked(pod_: dict[str, Any], state: InstanceState) -> dict[str, Any]:
    pod_["metadata"]["annotations"] = {**pod_["metadata"]["annotations"], STATE_ANNOTATION: state.value}
    return pod_


def test_the_leader_is_the_instance_and_its_set_is_what_ends_it() -> None:
    found = made()
    [one] = seen(found, leader_of(found, READY), worker_of(found, READY))
    assert (one.instance.id, one.instance.group) == (f"{found['metadata']['name']}-0", found["metadata"]["name"])
    assert (one.instance.health, one.ip, one.uid, one.instance.ordinal) == (PodHealth.READY, "10.0.0.7", "pod-1", 1)
    assert one.instance.spec_hash == spec_hash(spec_of(), Role.BOTH)


def test_a_set_without_pods_is_an_instance_that_starts_and_soon_a_trouble() -> None:
    found = made()
    [one] = pods = seen(found)
    assert (one.instance.health, one.instance.state, one.instance.terminating) == (PodHealth.PENDING, InstanceState.PENDING, False)
    assert troubles_of(pods, MADE_AT + LEADERLESS_SECONDS - 1) == ()
    [trouble] = troubles_of(pods, MADE_AT + LEADERLESS_SECONDS)
    assert (trouble.instance, trouble.reason) == (one.instance.id, "LeaderMissing")


@pytest.mark.parametrize(
    ("status", "metadata", "reason"),
    [
        (READY, {"deletionTimestamp": NOW}, "GroupRestarts"),
        ({"phase": "Failed", "reason": "Evicted"}, {}, "Evicted"),
        ({"phase": "Failed"}, {}, "GroupRestarts"),
    ],
)
def test_a_leader_that_ends_while_its_set_stays_is_lost_for_a_while_and_not_for_good(
    status: dict[str, Any], metadata: dict[str, Any], reason: str
) -> None:
    found = made()
    [one] = seen(found, marked(leader_of(found, status, **metadata), InstanceState.SERVING))
    assert (one.instance.health, one.instance.terminating) == (PodHealth.PENDING, False)
    assert next_state(one.instance, in_every_table=True) == (InstanceState.LOST, reason)


def test_a_set_that_is_being_deleted_ends_its_instance() -> None:
    found = made()
    found["metadata"]["deletionTimestamp"] = NOW
    [one] = seen(found, leader_of(found, READY))
    assert one.instance.terminating


def test_a_leader_left_over_from_a_deleted_set_is_no_instance() -> None:
    assert seen(None, leader_of(made(), READY)) == ()


def test_the_trouble_of_a_worker_is_its_instances() -> None:
    found = made()
    waiting = {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]}
    [trouble] = troubles_of(seen(found, leader_of(found, READY), worker_of(found, waiting)), MADE_AT)
    assert (trouble.instance, trouble.reason) == (f"{found['metadata']['name']}-0-1", "ErrImagePull")


def test_a_pod_of_a_group_wakes_its_pool_and_its_name_shows_its_number() -> None:
    found = made()
    assert pool_of(worker_of(found, READY)["metadata"]) == pool_of(leader_of(found, READY)["metadata"]) == "wide"
    assert ordinal_of(f"{found['metadata']['name']}-0", IDENTITY, Role.BOTH, last=1) == 1


def test_nodes_and_the_workers_template_are_part_of_the_hash_and_one_node_changes_no_hash() -> None:
    plain = parse_spec({"model": "m", "engine": {"type": "vllm"}, "roles": [{"name": "both", "template": TEMPLATE}]})
    hashes = [spec_hash(one, Role.BOTH) for one in (plain, spec_of(), spec_of(nodes=3), spec_of(workerTemplate=WORKER))]
    assert len(set(hashes)) == 4
    assert spec_hash(spec_of(nodes=1), Role.BOTH) == spec_hash(plain, Role.BOTH)


def test_the_set_has_the_labels_of_the_template_where_kueue_looks_and_workers_answer_for_no_pool() -> None:
    found = made(spec_of(workerTemplate=WORKER))
    assert found["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "inference"
    template = found["spec"]["leaderWorkerTemplate"]
    assert (found["spec"]["replicas"], template["size"], template["restartPolicy"]) == (1, 2, "RecreateGroupOnPodRestart")
    assert "fairlead.dev/pool" not in template["workerTemplate"]["metadata"]["labels"]
    [worker] = template["workerTemplate"]["spec"]["containers"]
    assert (worker["image"], "readinessProbe" in worker, "ports" in worker) == ("worker:1", False, False)


def test_a_budget_counts_every_pod_of_a_group_and_lets_one_go_at_a_time() -> None:
    budget = disruption_budget(IDENTITY, Role.BOTH, 3, leaving=1, nodes=2)["spec"]
    assert budget["minAvailable"] == 7
    assert budget["selector"]["matchLabels"]["fairlead.dev/group-of"] == "wide"

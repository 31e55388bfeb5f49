"""Deployments roll their pods out, in the sandbox and in any cluster."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from processkube.testing.workloads import Document, WorkloadNamespace, condition, deployment, is_ready

REVISION = "deployment.kubernetes.io/revision"


def sizes(namespace: WorkloadNamespace) -> list[int]:
    """Return the sizes of the ReplicaSets, oldest first by their revision."""
    found = sorted(namespace.every("replicasets"), key=lambda one: int(one["metadata"]["annotations"][REVISION]))
    return [one["spec"]["replicas"] for one in found]


def in_an_hour() -> str:
    return (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")


def scalings(namespace: WorkloadNamespace, name: str) -> list[str]:
    """Return the Deployment's events about scaling, with `A`, `B`, … for the ReplicaSets in their order of
    appearance.
    """
    letters: dict[str, str] = {}

    def letter(found: re.Match[str]) -> str:
        return letters.setdefault(found[0], "ABC"[len(letters)])

    return [re.sub(rf"{name}-[a-z0-9]+", letter, event) for event in namespace.events(name)]


def test_a_deployment_has_a_replica_set_named_after_its_template_and_this_has_the_pods(namespace: WorkloadNamespace) -> None:
    namespace.create("deployments", deployment("web", 2))
    item = namespace.rolled_out("web")
    (owned,) = namespace.every("replicasets")
    template_hash = owned["metadata"]["labels"]["pod-template-hash"]
    assert owned["metadata"]["name"] == f"web-{template_hash}"
    assert owned["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": "web",
            "uid": item["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    labels = {"app": "web", "pod-template-hash": template_hash}
    assert (
        owned["metadata"]["labels"] == owned["spec"]["selector"]["matchLabels"] == owned["spec"]["template"]["metadata"]["labels"] == labels
    )
    assert owned["metadata"]["annotations"] == {
        REVISION: "1",
        "deployment.kubernetes.io/desired-replicas": "2",
        "deployment.kubernetes.io/max-replicas": "3",
    }
    assert item["metadata"]["annotations"] == {REVISION: "1"}
    for pod in namespace.pods():
        assert re.fullmatch(rf"web-{template_hash}-[a-z0-9]{{5}}", pod["metadata"]["name"])
        assert pod["metadata"]["generateName"] == f"web-{template_hash}-"
        assert pod["metadata"]["labels"] == labels
        assert [(one["kind"], one["uid"], one["controller"]) for one in pod["metadata"]["ownerReferences"]] == [
            ("ReplicaSet", owned["metadata"]["uid"], True)
        ]
    assert scalings(namespace, "web") == ["ScalingReplicaSet: Scaled up replica set A from 0 to 2"]


def test_the_status_tells_the_counts_and_why_the_rollout_is_done(namespace: WorkloadNamespace) -> None:
    namespace.create("deployments", deployment("web", 2))

    def observed() -> Document | None:
        item = namespace.get("deployments", "web")
        return item if item["status"].get("unavailableReplicas") == 2 == item["status"].get("updatedReplicas") else None

    item = namespace.until(observed, "the pods are there and not available")
    assert {name: count for name, count in item["status"].items() if name != "conditions"} == {
        "observedGeneration": 1,
        "replicas": 2,
        "updatedReplicas": 2,
        "unavailableReplicas": 2,
        "terminatingReplicas": 0,
    }
    assert (condition(item, "Available")["status"], condition(item, "Available")["reason"]) == ("False", "MinimumReplicasUnavailable")
    item = namespace.rolled_out("web")
    assert {name: count for name, count in item["status"].items() if name != "conditions"} == {
        "observedGeneration": 1,
        "replicas": 2,
        "updatedReplicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "terminatingReplicas": 0,
    }
    (owned,) = namespace.every("replicasets")
    said = {one["type"]: (one["status"], one["reason"], one["message"]) for one in item["status"]["conditions"]}
    assert said == {
        "Available": ("True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
        "Progressing": (
            "True",
            "NewReplicaSetAvailable",
            f'ReplicaSet "{owned["metadata"]["name"]}" has successfully progressed.',
        ),
    }
    assert owned["status"] == {
        "replicas": 2,
        "fullyLabeledReplicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "terminatingReplicas": 0,
        "observedGeneration": 1,
    }


@pytest.mark.parametrize(
    ("surge", "unavailable", "least_ready", "most"),
    [(1, 0, 3, 4), (0, 1, 2, 3), ("34%", "34%", 2, 5)],
    ids=["one more", "one less", "percentages, rounded up and down"],
)
def test_a_rolling_update_stays_within_its_limits(
    namespace: WorkloadNamespace, surge: int | str, unavailable: int | str, least_ready: int, most: int
) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    namespace.create("deployments", deployment("web", 3, strategy=strategy))
    namespace.rolled_out("web")
    namespace.set_image("web", "web:2")

    def moved() -> bool:
        pods = namespace.pods()
        assert sum(map(is_ready, pods)) >= least_ready
        assert len(pods) <= most
        for pod in pods:  # one at a time, so that every step of the rollout is seen
            if not is_ready(pod):
                namespace.start(pod["metadata"]["name"])
                break
        status = namespace.get("deployments", "web")["status"]
        return namespace.images() == ["web:2"] * 3 and status.get("updatedReplicas") == status.get("availableReplicas") == 3

    namespace.until(moved, "all pods have the new image")
    item = namespace.rolled_out("web")
    assert item["metadata"]["annotations"][REVISION] == "2"
    assert sizes(namespace) == [0, 3]


def test_one_more_at_a_time_is_told_in_this_order(namespace: WorkloadNamespace) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    namespace.create("deployments", deployment("web", 2, strategy=strategy))
    namespace.rolled_out("web")
    namespace.set_image("web", "web:2")
    namespace.rolled_out("web")
    told = [
        "Scaled up replica set A from 0 to 2",
        "Scaled up replica set B from 0 to 1",
        "Scaled down replica set A from 2 to 1",
        "Scaled up replica set B from 1 to 2",
        "Scaled down replica set A from 1 to 0",
    ]
    namespace.until(lambda: len(namespace.events("web")) == len(told), "all steps are told")
    assert scalings(namespace, "web") == [f"ScalingReplicaSet: {one}" for one in told]


def test_a_rollout_that_does_not_get_ready_leaves_the_old_pods_and_times_out(namespace: WorkloadNamespace) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    namespace.create("deployments", deployment("web", 2, strategy=strategy, progressDeadlineSeconds=1))
    namespace.until(
        lambda: condition(namespace.get("deployments", "web"), "Progressing").get("reason") == "NewReplicaSetAvailable",
        "the first template is rolled out",
        running=True,
    )
    namespace.set_image("web", "broken:1")
    namespace.until(lambda: namespace.images() == ["broken:1", "web:1", "web:1"], "the broken pod is there beside them")

    def timed_out() -> Document | None:
        item = namespace.get("deployments", "web")
        return item if condition(item, "Progressing").get("reason") == "ProgressDeadlineExceeded" else None

    item = namespace.until(timed_out, "the rollout has timed out")
    name = next(one["metadata"]["name"] for one in namespace.every("replicasets") if one["spec"]["replicas"] == 1)
    assert condition(item, "Progressing")["status"] == "False"
    assert condition(item, "Progressing")["message"] == f'ReplicaSet "{name}" has timed out progressing.'
    assert condition(item, "Available")["status"] == "True"
    assert namespace.images() == ["broken:1", "web:1", "web:1"]

    namespace.set_image("web", "web:1")
    namespace.until(lambda: namespace.images() == ["web:1"] * 2, "rolled back, the broken pod is gone")


def test_rolling_back_uses_the_old_replica_set_and_numbers_it_anew(namespace: WorkloadNamespace) -> None:
    namespace.create("deployments", deployment("web", 1))
    namespace.rolled_out("web")
    (first,) = (one["metadata"]["name"] for one in namespace.every("replicasets"))
    namespace.set_image("web", "web:2")
    namespace.rolled_out("web")
    namespace.set_image("web", "web:1")
    item = namespace.rolled_out("web")
    assert item["metadata"]["annotations"][REVISION] == "3"
    assert len(namespace.every("replicasets")) == 2
    again = namespace.get("replicasets", first)
    assert again["spec"]["replicas"] == 1
    assert again["metadata"]["annotations"][REVISION] == "3"
    assert again["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"] == "1"


def test_recreating_ends_every_old_pod_before_the_first_new_one(namespace: WorkloadNamespace) -> None:
    namespace.create("deployments", deployment("web", 2, strategy={"type": "Recreate"}))
    namespace.rolled_out("web")
    for pod in namespace.pods():  # a finalizer keeps them, as a kubelet's grace period would
        namespace.patch("pods", pod["metadata"]["name"], {"metadata": {"finalizers": ["acme.dev/held"]}})
    namespace.set_image("web", "web:2")
    namespace.until(lambda: not namespace.pods(), "the old pods are being deleted")
    status = namespace.until(
        lambda: (found := namespace.get("deployments", "web")["status"]).get("terminatingReplicas") == 2 and found,
        "the Deployment counts them as terminating",
    )
    assert "updatedReplicas" not in status
    held = [pod["metadata"]["name"] for pod in namespace.every("pods")]
    assert len(held) == 2
    for name in held:
        assert namespace.images() == []
        namespace.patch("pods", name, {"metadata": {"finalizers": None}})
    namespace.rolled_out("web")
    assert namespace.images() == ["web:2"] * 2
    assert sizes(namespace) == [0, 2]


def test_a_paused_deployment_scales_but_does_not_roll(namespace: WorkloadNamespace) -> None:
    namespace.create("deployments", deployment("web", 1))
    namespace.rolled_out("web")
    namespace.patch("deployments", "web", {"spec": {"paused": True}})
    namespace.set_image("web", "web:2")
    namespace.scale("deployments", "web", 2)
    namespace.until(lambda: len(namespace.pods()) == 2, "the pods of the old template are two")
    item = namespace.get("deployments", "web")
    assert (condition(item, "Progressing")["status"], condition(item, "Progressing")["reason"]) == ("Unknown", "DeploymentPaused")
    assert namespace.images() == ["web:1"] * 2

    namespace.patch("deployments", "web", {"spec": {"paused": False}})
    namespace.rolled_out("web")
    assert namespace.images() == ["web:2"] * 2


def test_a_scaling_in_the_middle_of_a_rollout_is_shared_out(namespace: WorkloadNamespace) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}
    namespace.create("deployments", deployment("web", 6, strategy=strategy))
    namespace.rolled_out("web")
    namespace.set_image("web", "broken:1")
    namespace.until(lambda: sizes(namespace) == [6, 2], "the rollout stands with two pods that do not get ready")
    namespace.scale("deployments", "web", 12)
    namespace.until(lambda: sizes(namespace) == [11, 3], "both got their share")
    namespace.scale("deployments", "web", 6)
    namespace.until(lambda: sizes(namespace) == [6, 2], "both gave their share")


def test_old_replica_sets_go_beyond_the_limit_of_the_history(namespace: WorkloadNamespace) -> None:
    namespace.create("deployments", deployment("web", 1, revisionHistoryLimit=1))
    for number in (1, 2, 3):
        namespace.set_image("web", f"web:{number}")
        namespace.rolled_out("web")

    def images() -> list[str]:
        return sorted(one["spec"]["template"]["spec"]["containers"][0]["image"] for one in namespace.every("replicasets"))

    namespace.until(lambda: images() == ["web:2", "web:3"], "the oldest is gone")


def test_pods_are_available_when_they_were_ready_for_long_enough(namespace: WorkloadNamespace) -> None:
    namespace.create("deployments", deployment("web", 1, minReadySeconds=2))
    (pod,) = namespace.until(namespace.pods, "there is a pod")
    namespace.start(pod["metadata"]["name"], since=in_an_hour())  # so that it is not for long enough, however slow this machine is
    item = namespace.until(
        lambda: (found := namespace.get("deployments", "web"))["status"].get("readyReplicas") == 1 and found, "the pod is ready"
    )
    assert "availableReplicas" not in item["status"]
    assert condition(item, "Available")["status"] == "False"
    namespace.start(pod["metadata"]["name"])
    namespace.rolled_out("web")
    (owned,) = namespace.every("replicasets")
    assert owned["spec"]["minReadySeconds"] == 2


def test_a_deployment_takes_its_pods_with_it_or_leaves_them(namespace: WorkloadNamespace) -> None:
    namespace.create("deployments", deployment("web", 2))
    namespace.rolled_out("web")
    namespace.delete("deployments", "web", propagationPolicy="Orphan")
    namespace.until(lambda: not namespace.exists("deployments", "web"), "the Deployment is gone")
    (left,) = namespace.every("replicasets")
    assert "ownerReferences" not in left["metadata"]
    assert len(namespace.pods()) == 2
    before = {pod["metadata"]["uid"] for pod in namespace.pods()}

    namespace.create("deployments", deployment("web", 2))
    namespace.rolled_out("web")
    assert {pod["metadata"]["uid"] for pod in namespace.pods()} == before, "the same Deployment again adopts them"
    (adopted,) = namespace.every("replicasets")
    assert (adopted["metadata"]["name"], adopted["metadata"]["uid"]) == (left["metadata"]["name"], left["metadata"]["uid"])

    namespace.delete("deployments", "web", propagationPolicy="Background")
    namespace.until(lambda: not namespace.pods() and not namespace.every("replicasets"), "nothing is left")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}},
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
        ),
        (
            {"strategy": {"rollingUpdate": {"maxUnavailable": "101%"}}},
            'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%',
        ),
        (
            {"strategy": {"rollingUpdate": {"maxSurge": "many"}}},
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%'",
        ),
        ({"strategy": {"type": "Canary"}}, 'supported values: "Recreate", "RollingUpdate"'),
        (
            {"strategy": {"type": "Recreate", "rollingUpdate": {}}},
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ),
        (
            {"progressDeadlineSeconds": 5, "minReadySeconds": 5},
            "spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds",
        ),
        ({"revisionHistoryLimit": -1}, "spec.revisionHistoryLimit: Invalid value: -1: must be greater than or equal to 0"),
        (
            {
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
                }
            },
            'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
        ),
    ],
)
def test_a_deployment_that_cannot_roll_is_refused(namespace: WorkloadNamespace, spec: Document, message: str) -> None:
    assert message in namespace.refusal("deployments", deployment("web", 1, **spec))

"""Jobs run pods to their end and report the outcome, in the sandbox and in any cluster."""

from __future__ import annotations

from typing import Any

import pytest

from processkube.testing.workloads import Document, WorkloadNamespace, condition


def job(**spec: Any) -> Document:
    template = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "migrate:1"}]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "migrate"}, "spec": {"template": template, **spec}}


def new_pod(namespace: WorkloadNamespace, *but: str) -> str:
    """Return the name of the pod that exists besides these."""

    def look() -> str | None:
        return next((name for pod in namespace.pods() if (name := pod["metadata"]["name"]) not in but), None)

    return namespace.until(look, "the Job has a new pod")


def ended(namespace: WorkloadNamespace) -> Document:
    def look() -> Document | None:
        item = namespace.get("jobs", "migrate")
        return item if condition(item, "Complete") or condition(item, "Failed") else None

    return namespace.until(look, "the Job has ended")


def told(item: Document) -> dict[str, tuple[str, str, str]]:
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in item["status"]["conditions"]}


def test_a_job_completes_with_its_pod(namespace: WorkloadNamespace) -> None:
    made = namespace.create("jobs", job())
    uid = made["metadata"]["uid"]
    pod = new_pod(namespace)
    item = namespace.get("pods", pod)
    labels = {
        "controller-uid": uid,
        "job-name": "migrate",
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "migrate",
    }
    assert item["metadata"]["labels"] == labels
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert item["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    status = namespace.until(
        lambda: (found := namespace.get("jobs", "migrate")["status"]).get("active") == 1 and found, "the status counts the pod"
    )
    assert (status["ready"], status["terminating"], "startTime" in status) == (0, 0, True)
    namespace.start(pod)
    namespace.until(lambda: namespace.get("jobs", "migrate")["status"]["ready"] == 1, "the pod is ready")
    namespace.end(pod, "Succeeded")
    item = ended(namespace)
    reason = ("True", "CompletionsReached", "Reached expected number of succeeded pods")
    assert told(item) == {"SuccessCriteriaMet": reason, "Complete": reason}
    status = item["status"]
    assert {name: status[name] for name in status if name not in {"conditions", "startTime", "completionTime"}} == {
        "succeeded": 1,
        "ready": 0,
        "terminating": 0,
        "uncountedTerminatedPods": {},
    }
    namespace.until(lambda: "finalizers" not in namespace.get("pods", pod)["metadata"], "the pod is released and stays")


def test_beyond_the_limit_of_failures_the_job_fails(namespace: WorkloadNamespace) -> None:
    namespace.create("jobs", job(backoffLimit=0))
    namespace.end(new_pod(namespace), "Failed")
    item = ended(namespace)
    reason = ("True", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    assert told(item) == {"FailureTarget": reason, "Failed": reason}
    assert item["status"]["failed"] == 1
    assert "completionTime" not in item["status"]


def test_a_failed_pod_is_followed_by_another_one_after_a_pause(namespace: WorkloadNamespace) -> None:
    namespace.create("jobs", job())
    first = new_pod(namespace)
    namespace.end(first, "Failed")
    second = new_pod(namespace, first)
    namespace.end(second, "Succeeded")
    item = ended(namespace)
    assert (item["status"]["failed"], item["status"]["succeeded"]) == (1, 1)
    assert "Complete" in told(item)


def test_a_job_over_its_time_fails_and_its_pod_is_deleted(namespace: WorkloadNamespace) -> None:
    namespace.create("jobs", job(activeDeadlineSeconds=3600))
    new_pod(namespace)
    namespace.patch("jobs", "migrate", {"spec": {"activeDeadlineSeconds": 1}})  # only now: it may be over before there is a pod
    item = ended(namespace)
    reason = ("True", "DeadlineExceeded", "Job was active longer than specified deadline")
    assert told(item) == {"FailureTarget": reason, "Failed": reason}
    namespace.until(lambda: not namespace.every("pods"), "the pod is gone")


def test_several_pods_at_once_until_enough_have_succeeded(namespace: WorkloadNamespace) -> None:
    namespace.create("jobs", job(parallelism=2, completions=3))
    namespace.until(lambda: len(namespace.pods()) == 2, "two run at once")
    first, second = (pod["metadata"]["name"] for pod in namespace.pods())
    namespace.end(first, "Succeeded")
    third = new_pod(namespace, first, second)
    for pod in (second, third):
        namespace.end(pod, "Succeeded")
    assert ended(namespace)["status"]["succeeded"] == 3
    assert len(namespace.pods()) == 3


def test_a_job_that_is_over_is_deleted_after_its_time_to_live(namespace: WorkloadNamespace) -> None:
    namespace.create("jobs", job(ttlSecondsAfterFinished=0))
    namespace.end(new_pod(namespace), "Succeeded")
    namespace.until(lambda: not namespace.exists("jobs", "migrate") and not namespace.every("pods"), "Job and pod are gone")


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_a_deleted_job_takes_its_running_pod_with_it(namespace: WorkloadNamespace, policy: str) -> None:
    namespace.create("jobs", job())
    new_pod(namespace)
    namespace.delete("jobs", "migrate", propagationPolicy=policy)
    namespace.until(lambda: not namespace.exists("jobs", "migrate") and not namespace.every("pods"), "Job and pod are gone")


def test_a_job_that_cannot_end_is_refused(namespace: WorkloadNamespace) -> None:
    always = job()
    always["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    wanted = 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    assert wanted in namespace.refusal("jobs", always)
    assert "spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0" in namespace.refusal("jobs", job(backoffLimit=-1))

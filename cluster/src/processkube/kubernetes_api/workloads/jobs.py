"""Jobs: run pods until enough have succeeded, too many have failed, or the time is over. Indexed Jobs are not
supported.

This module follows pkg/controller/job of Kubernetes. A finished pod keeps a finalizer until the Job's status has
counted it. Until then, the status lists the pod as uncounted, so that no pod is counted twice after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from processkube.kubernetes_api.objects.objects import Object, at_path, copy_of, parse_timestamp, timestamp
from processkube.kubernetes_api.workloads.conditions import condition_in
from processkube.kubernetes_api.workloads.plans import Change, ChangeStatus, Create, Delete, Plan, Tell, Write
from processkube.kubernetes_api.workloads.pod_states import is_active, is_deleted, is_terminating
from processkube.kubernetes_api.workloads.scale_in import first_to_go
from processkube.kubernetes_api.workloads.templates import pod_from
from processkube.kubernetes_api.writing.pods import is_ready

TRACKING = "batch.kubernetes.io/job-tracking"
COMPLETE, FAILED = "Complete", "Failed"
_INTERIM = {"SuccessCriteriaMet": COMPLETE, "FailureTarget": FAILED}
"""Condition that is set as soon as the outcome is certain → condition that is set once all pods have ended."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 10, 600


def finished_at(job: Object) -> datetime | None:
    """Return the time at which a Job completed or failed; None if it has not finished."""
    for condition in at_path(job, "status", "conditions", default=[]):
        if condition["type"] in {COMPLETE, FAILED} and condition["status"] == "True":
            return parse_timestamp(condition["lastTransitionTime"])
    return None


def decide_job(job: Object, pods: Sequence[Object], now: datetime) -> Plan:
    """Return the writes of a Job's next step. `pods` are the pods that the Job controls."""
    if (ended := finished_at(job)) is not None:
        return _after_the_end(job, ended, now)
    look = _Look(job, pods, now)
    outcome = look.outcome()
    if outcome is not None:
        look.end_active()
    elif not is_deleted(job):
        look.manage()
        outcome = look.completion()
    return look.plan(outcome)


def _after_the_end(job: Object, ended: datetime, now: datetime) -> Plan:
    lifetime = job["spec"].get("ttlSecondsAfterFinished")
    if lifetime is None or is_deleted(job):
        return Plan()
    over = ended + timedelta(seconds=lifetime)
    return Plan(writes=(Delete(item=job, propagation="Foreground"),)) if over <= now else Plan(look_again_at=over)


def without_tracking(pod: Object) -> Change:
    """Return the write that removes from a pod the finalizer by which its Job counts it."""
    released: Object = copy_of(pod)
    if others := [name for name in released["metadata"].pop("finalizers") if name != TRACKING]:
        released["metadata"]["finalizers"] = others
    return Change(item=released)


def is_tracked(pod: Object) -> bool:
    return TRACKING in pod["metadata"].get("finalizers", ())


class _Look:
    """The counts of a Job's pods in one step. They change as pods are created and deleted."""

    def __init__(self, job: Object, pods: Sequence[Object], now: datetime) -> None:
        self.job, self.pods, self.now = job, pods, now
        self.spec = job["spec"]
        self.status: Object = copy_of(job.get("status", {}))
        self.status.setdefault("startTime", timestamp(now))
        self.active = [pod for pod in pods if is_active(pod)]
        self.terminating = sum(is_terminating(pod) for pod in pods)
        self._writes: list[Write] = []
        self._again: list[datetime] = []
        self._count()

    def _count(self) -> None:
        """Count the pods that the status lists as uncounted and that have lost their finalizer. Then add to this list
        the other pods that have finished.
        """
        tracked = {pod["metadata"]["uid"] for pod in self.pods if is_tracked(pod)}
        named = self.status.get("uncountedTerminatedPods", {})
        uncounted: dict[str, list[str]] = {"succeeded": [], "failed": []}
        for outcome, uids in uncounted.items():
            known = named.get(outcome, [])
            self.status[outcome] = self.status.get(outcome, 0) + sum(uid not in tracked for uid in known)
            uids.extend(uid for uid in known if uid in tracked)
        seen = {uid for uids in uncounted.values() for uid in uids}
        for pod in self.pods:
            if is_tracked(pod) and (uid := pod["metadata"]["uid"]) not in seen and (outcome := _outcome_of(pod)):
                uncounted[outcome].append(uid)
        self._named = seen
        self.status["uncountedTerminatedPods"] = {name: uids for name, uids in uncounted.items() if uids}

    def total(self, outcome: str) -> int:
        """Return the number of pods with this outcome, `succeeded` or `failed`, including uncounted pods."""
        return int(self.status[outcome]) + len(self.status["uncountedTerminatedPods"].get(outcome, ()))

    def outcome(self) -> Object | None:
        """Return the condition with the Job's outcome if the outcome is certain already; otherwise None."""
        for kind in _INTERIM:
            if (said := condition_in(self.status.get("conditions", []), kind)) is not None and said["status"] == "True":
                return said
        if self.total("failed") > self.spec["backoffLimit"] or self._restarted_too_often():
            return self._condition("FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        if (seconds := self.spec.get("activeDeadlineSeconds")) is not None:
            deadline = parse_timestamp(self.status["startTime"]) + timedelta(seconds=seconds)
            if deadline <= self.now:
                return self._condition("FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline")
            self._again.append(deadline)
        return None

    def _restarted_too_often(self) -> bool:
        if self.spec["template"]["spec"]["restartPolicy"] != "OnFailure":
            return False
        statuses = (one for pod in self.active for one in at_path(pod, "status", "containerStatuses", default=[]))
        restarts, limit = sum(int(one.get("restartCount", 0)) for one in statuses), self.spec["backoffLimit"]
        return restarts >= limit if limit else restarts > 0

    def completion(self) -> Object | None:
        """Return the status condition that marks the Job as complete; None if the Job is not complete yet."""
        wanted = self.spec.get("completions")
        enough = self.total("succeeded") >= wanted if wanted is not None else self.total("succeeded") > 0
        if not enough or self.active:
            return None
        return self._condition("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")

    def manage(self) -> None:
        """Create the missing pods, or delete excess pods. After failures, pods are created only after a pause, which
        grows with the number of failures.
        """
        wanted = self._wanted()
        if len(self.active) > wanted:
            self._delete(first_to_go(self.active, self.active, len(self.active) - wanted, self.now))
        elif len(self.active) < wanted:
            if (resumes := self._pause_ends()) is not None and resumes > self.now:
                self._again.append(resumes)
                return
            for _ in range(wanted - len(self.active)):
                pod = pod_from(self.spec["template"], self.job)
                pod["metadata"].setdefault("finalizers", []).append(TRACKING)
                self._writes.append(Create(item=pod))
                self.active.append(pod)

    def _wanted(self) -> int:
        parallelism, completions = self.spec["parallelism"], self.spec.get("completions")
        if completions is None:
            return len(self.active) if self.total("succeeded") else int(parallelism)
        return int(min(parallelism, max(0, completions - self.total("succeeded"))))

    def _pause_ends(self) -> datetime | None:
        """Return the time from which the next pod may be created: 10 s after the last failure. The pause doubles with
        each further failure since the last success. Return None if there was no failure since the last success.

        The failures are counted from the existing pods, which stay until the Job is deleted.
        """
        ended = sorted((_ended_at(pod, self.now), outcome) for pod in self.pods if (outcome := _outcome_of(pod)))
        failures = 0
        while failures < len(ended) and ended[-1 - failures][1] == "failed":
            failures += 1
        if not failures:
            return None
        seconds = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 10))
        return ended[-1][0] + timedelta(seconds=seconds)

    def end_active(self) -> None:
        self._delete(self.active)

    def _delete(self, pods: Sequence[Object]) -> None:
        gone = {pod["metadata"]["uid"] for pod in pods}
        self._writes += [Delete(item=pod) for pod in pods]
        self.active = [pod for pod in self.active if pod["metadata"].get("uid") not in gone]
        self.terminating += len(gone)

    def plan(self, outcome: Object | None) -> Plan:
        """Return the writes in order: the pods, the status, and then the removal of finalizers from the pods that the
        status lists.
        """
        finished = [pod for pod in self.pods if is_tracked(pod) and pod["metadata"]["uid"] in self._named]
        if outcome is not None:
            self._conclude(outcome)
        status = self._status()
        if status != self.job.get("status"):
            self._writes.append(ChangeStatus(item={**self.job, "status": status}))
        return Plan(writes=(*self._writes, *map(without_tracking, finished)), look_again_at=min(self._again, default=None))

    def _conclude(self, outcome: Object) -> None:
        conditions: list[Object] = self.status.setdefault("conditions", [])
        if condition_in(conditions, outcome["type"]) is None:
            conditions.append(outcome)
        if self.terminating or self.status["uncountedTerminatedPods"] or self.active:
            return
        kind = _INTERIM[outcome["type"]]
        conditions.append(self._condition(kind, outcome["reason"], outcome["message"]))
        if kind == COMPLETE:
            self.status["completionTime"] = timestamp(self.now)
            self._writes.append(Tell(about=self.job, reason="Completed", message="Job completed"))
        else:
            self._writes.append(Tell(about=self.job, reason=outcome["reason"], message=outcome["message"], event_type="Warning"))

    def _status(self) -> Object:
        counts = {"active": len(self.active), "succeeded": self.status.pop("succeeded"), "failed": self.status.pop("failed")}
        self.status.pop("active", None)
        self.status |= {name: count for name, count in counts.items() if count}
        self.status["ready"] = sum(map(is_ready, self.active))
        self.status["terminating"] = self.terminating
        return self.status

    def _condition(self, kind: str, reason: str, message: str) -> Object:
        moment = timestamp(self.now)
        return {
            "type": kind,
            "status": "True",
            "lastProbeTime": moment,
            "lastTransitionTime": moment,
            "reason": reason,
            "message": message,
        }


def _outcome_of(pod: Object) -> str:
    """Return the outcome of a pod: `succeeded`, `failed`, or "" if it has not finished. A pod that is being deleted
    counts as failed unless it has succeeded.
    """
    phase = at_path(pod, "status", "phase")
    if phase == "Succeeded":
        return "succeeded"
    return "failed" if phase == "Failed" or is_deleted(pod) else ""


def _ended_at(pod: Object, now: datetime) -> datetime:
    """Return the time at which the pod's last container ended. If this time is unknown, return the first known time of
    these: the last change of the pod's condition Ready, the pod's deletion time, and `now`.
    """
    ends = [at_path(one, "state", "terminated", "finishedAt") for one in at_path(pod, "status", "containerStatuses", default=[])]
    if ends and all(ends):
        return max(map(parse_timestamp, ends))
    ready = condition_in(at_path(pod, "status", "conditions", default=[]), "Ready")
    moment = (ready or {}).get("lastTransitionTime") or pod["metadata"].get("deletionTimestamp")
    return parse_timestamp(moment) if moment else now

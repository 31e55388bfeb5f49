"""The controller of Jobs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from processkube.kubernetes_api.storing.store import Key, Stored, StoredChange
from processkube.kubernetes_api.workloads.executing import Writer
from processkube.kubernetes_api.workloads.following import JOBS, PODS, Controlled, Owners, Refused
from processkube.kubernetes_api.workloads.jobs import decide_job, is_tracked, without_tracking
from processkube.kubernetes_api.workloads.owners import controller_of
from processkube.kubernetes_api.workloads.plans import Create
from processkube.kubernetes_api.writing.resources import Resources

_NAME_LABEL = "batch.kubernetes.io/job-name"


class Jobs:
    """The controller of Jobs. It runs their pods, and removes its finalizer from pods whose Job is gone."""

    resource = JOBS

    def __init__(self, resources: Resources, controlled: Controlled) -> None:
        self._resources = resources
        self._store = resources.store
        self._controlled = controlled
        self._owners = Owners(self._store, JOBS)
        self._writer = Writer(resources, "job-controller")

    def concerned(self, change: StoredChange) -> Iterator[Key]:
        if change.now.resource == JOBS:
            self._owners.note(change)
            yield change.now.key
        elif change.now.resource == PODS:
            yield from self._owners.concerned(change)

    def look(self, stored: Stored) -> datetime | None:
        job = stored.object
        self.clear(stored.key)
        plan = decide_job(job, self._controlled.of(PODS, stored.uid), self._resources.clock())
        creations = [write for write in plan.writes if isinstance(write, Create)]
        failure = self._writer.write_for(job, creations)
        self._writer.carry_out(write for write in plan.writes if not isinstance(write, Create))
        if failure:
            raise Refused(failure)
        return plan.look_again_at

    def clear(self, key: Key) -> None:
        """Remove the finalizer from the pods of a Job that is gone."""
        namespace, name = key
        for pod in self._store.list(PODS, namespace, (_NAME_LABEL, name)):
            owner = controller_of(pod.object)
            if is_tracked(pod.object) and (owner is None or self._store.by_uid(owner["uid"]) is None):
                self._writer.write(without_tracking(pod.object))

"""Follows the store and passes each changed workload to its controller, one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from processkube.kubernetes_api.objects.errors import ApiError
from processkube.kubernetes_api.storing.store import Key, Store, StoredChange
from processkube.kubernetes_api.workloads.deploying import Deployments, ReplicaSets
from processkube.kubernetes_api.workloads.following import Controlled, Controller, Refused
from processkube.kubernetes_api.workloads.queueing import WorkQueue
from processkube.kubernetes_api.workloads.running_jobs import Jobs
from processkube.kubernetes_api.workloads.running_leader_worker_sets import LeaderWorkerSets
from processkube.kubernetes_api.workloads.running_stateful_sets import StatefulSets
from processkube.kubernetes_api.writing.resources import Resources

_log = logging.getLogger(__name__)


class WorkloadControllers:
    """All controllers of workloads over one store. `run` must run as a task; it ends only when cancelled."""

    def __init__(self, resources: Resources) -> None:
        self._store: Store = resources.store
        self._controlled = Controlled(self._store)
        self._controllers: Sequence[Controller] = (
            Deployments(resources, self._controlled),
            ReplicaSets(resources, self._controlled),
            StatefulSets(resources, self._controlled),
            Jobs(resources, self._controlled),
            LeaderWorkerSets(resources, self._controlled),
        )
        self._by_resource = {one.resource: one for one in self._controllers}
        self._queue: WorkQueue[tuple[str, Key]] = WorkQueue(resources.clock)
        self._wake = asyncio.Event()
        self._unsubscribe = self._store.subscribe(self._note)
        for resource in self._by_resource:
            for stored in self._store.list(resource):
                self._queue.add((resource, stored.key))

    async def run(self) -> None:
        try:
            while True:
                self._wake.clear()
                await self._step_while_due()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._queue.pause_seconds()):
                        await self._wake.wait()
        finally:
            self._unsubscribe()

    async def _step_while_due(self) -> None:
        """Process all objects that are due. After each object, other tasks run, so that requests are served."""
        due = True
        while due:
            due = self.step()
            await asyncio.sleep(0)

    def step(self) -> bool:
        """Process the next object that is due. Return False if no object is due."""
        item = self._queue.take()
        if item is None:
            return False
        resource, (namespace, name) = item
        stored = self._store.get(resource, namespace, name)
        controller = self._by_resource[resource]
        try:
            again_at = controller.look(stored) if stored is not None else controller.clear((namespace, name))
        except (ApiError, Refused) as error:
            _log.warning("a controller's write was refused", extra={"object": f"{resource} {namespace}/{name}", "error": str(error)})
            self._queue.retry(item)
            return True
        self._queue.succeeded(item)
        if again_at is not None:
            self._queue.add_at(item, again_at)
        return True

    def _note(self, change: StoredChange) -> None:
        self._controlled.note(change)
        for controller in self._controllers:
            for key in controller.concerned(change):
                self._queue.add((controller.resource, key))
        self._wake.set()

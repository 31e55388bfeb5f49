"""The node's agent. It watches the cluster's pods, binds pending pods to the node, and keeps one worker per pod.

It continues after outages of the Kubernetes API.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from processkube.errors import ClusterProblem
from processkube.identities import end_processes, is_alive
from processkube.kubelet import state_file
from processkube.kubelet.addresses import AddressPool
from processkube.kubelet.container_states import ContainerState, PodState, after_adoption, after_exit
from processkube.kubelet.deciding import restarts_allowed
from processkube.kubelet.pod_specs import PodSpec, read_pod
from processkube.kubelet.pod_worker import PodWorker, utc_stamp
from processkube.kubelet.pods_api import PodsApi
from processkube.kubelet.preparation import Preparation
from processkube.kubelet.refusals import PodRefused
from processkube.kubelet.runtime import ProcessRuntime
from processkube.kubelet.scheduling import refusal
from processkube.kubelet.statuses import refused_status, unscheduled_message, unscheduled_status

log = logging.getLogger(__name__)

STARTS_AT_ONCE = 4
RELIST_SECONDS = 1.0
FAREWELL_SECONDS = 3.0


class NodeAgent:
    """Runs all pods of one node.

    `memory` is the state that the previous kubelet saved. The agent writes the state to `memory_path` when a pod's
    state has changed.
    """

    def __init__(
        self,
        *,
        node: str,
        cluster: PodsApi,
        runtime: ProcessRuntime,
        preparation: Preparation,
        memory: state_file.Memory,
        memory_path: Path,
        address_node: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._cluster = cluster
        self._runtime = runtime
        self._preparation = preparation
        self._memory_path = memory_path
        self._clock = clock
        self._remembered = dict(memory.pods)
        self._addresses = AddressPool(node=address_node, position=memory.address_position, used={pod.ip for pod in memory.pods.values()})
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._forgetting: set[asyncio.Task[None]] = set()
        self._refused: dict[str, str] = {}
        self._node_object: Mapping[str, Any] | None = None
        """The Node object as the API has it; None before it is created."""
        self._waiting: dict[str, Mapping[str, Any]] = {}
        """Uid → manifest of each pod that this node cannot accept now."""
        self._placed: dict[str, Mapping[str, Any]] = {}
        """Uid → manifest of each pod that uses this node's resources, because it is bound to the node and has not
        ended.
        """
        self._slots = asyncio.Semaphore(STARTS_AT_ONCE)
        self._dirty = asyncio.Event()

    async def follow(self) -> None:
        """List all pods, then watch their changes. If the watch is lost, list all pods again. Never returns."""
        while True:
            try:
                pods, version = await self._cluster.list_pods()
                await self._reconcile(pods)
                async for event in self._cluster.watch_pods(version):
                    if event["type"] == "BOOKMARK":
                        continue
                    if event["type"] == "DELETED":
                        self._forget(event["object"]["metadata"]["uid"])
                        await self._take_waiting()
                    else:
                        await self._take(event["object"])
            except ClusterProblem as problem:
                log.warning("pods cannot be followed", extra={"error": str(problem)})
                await asyncio.sleep(RELIST_SECONDS)

    async def follow_node(self) -> None:
        """Watch the Node object. When it changes, check again whether the waiting pods fit. Never returns."""
        while True:
            try:
                node, version = await self._cluster.list_node()
                await self._node_changed(node)
                async for event in self._cluster.watch_node(version):
                    if event["type"] != "BOOKMARK":
                        await self._node_changed(None if event["type"] == "DELETED" else event["object"])
            except ClusterProblem as problem:
                log.warning("the node cannot be followed", extra={"error": str(problem)})
                await asyncio.sleep(RELIST_SECONDS)

    async def save_memory(self) -> None:
        """Save the state each time after it has changed; changes within a short time are saved together. Never
        returns.
        """
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            self.save_now()
            await asyncio.sleep(0.05)

    def save_now(self) -> None:
        """Save the state to disk at once."""
        memory = state_file.Memory(address_node=self._addresses.node, address_position=self._addresses.position, pods=self._remembered)
        state_file.save(self._memory_path, memory)

    async def end_all(self, grace_seconds: float) -> None:
        """Take the node down: end the processes of all pods, and report in the pods' status that the pods are not
        ready.

        The Pod objects stay, and the next kubelet starts their containers again. If the API does not respond, give up
        the reports after `FAREWELL_SECONDS`.
        """
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        processes = [
            container.process for pod in self._remembered.values() for container in pod.containers if container.process is not None
        ]
        await asyncio.to_thread(end_processes, processes, grace_seconds=grace_seconds)
        workers = list(self._workers.values())
        for worker in workers:
            worker.state = self._adopt(worker.pod, worker.state)
            self._remembered[worker.pod.uid] = worker.state
        self.save_now()
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                await asyncio.gather(*(worker.report() for worker in workers))
        except TimeoutError:
            log.warning("the pods are down, but the Kubernetes API could not be informed: it does not answer")

    async def _reconcile(self, pods: list[dict[str, Any]]) -> None:
        """Process a list of all pods. A pod that is missing from the list was deleted, whether this agent runs it or
        only the saved state has it.
        """
        present = {pod["metadata"]["uid"] for pod in pods}
        for uid in [uid for uid in self._workers if uid not in present]:
            self._forget(uid)
        self._waiting = {uid: manifest for uid, manifest in self._waiting.items() if uid in present}
        self._placed = {uid: manifest for uid, manifest in self._placed.items() if uid in present}
        for uid, state in list(self._remembered.items()):
            if uid not in present and uid not in self._workers:
                self._end_remembered(uid, state)
        for pod in pods:
            await self._take(pod)

    async def _take(self, manifest: Mapping[str, Any]) -> None:
        """Process the manifest of a new or changed pod."""
        metadata, spec = manifest["metadata"], manifest["spec"]
        if spec.get("nodeName") not in {None, "", self._node} or spec.get("schedulingGates"):
            return
        if spec.get("nodeName"):
            await self._note_place(manifest)
        if not spec.get("nodeName") and not await self._fits(manifest):
            return
        try:
            pod = read_pod(manifest)
        except PodRefused as problem:
            await self._tolerantly(self._refuse(manifest, problem), pod_name(manifest))
            return
        worker = self._workers.get(metadata["uid"])
        if worker is not None:
            worker.update(pod, manifest)
        elif not pod.node:
            self._placed[metadata["uid"]] = manifest
            await self._tolerantly(self._bind(pod), pod_name(manifest))
        elif (manifest.get("status") or {}).get("phase") not in {"Succeeded", "Failed"} or pod.deleted:
            self._begin(pod, manifest)

    async def _note_place(self, manifest: Mapping[str, Any]) -> None:
        """Record that a bound pod uses this node's resources. If the pod has ended, free its resources, and check the
        waiting pods again.
        """
        uid = manifest["metadata"]["uid"]
        if (manifest.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}:
            self._placed[uid] = manifest
        elif self._placed.pop(uid, None) is not None:
            await self._take_waiting()

    async def _fits(self, manifest: Mapping[str, Any]) -> bool:
        """Return whether this node accepts the pod. If it does not, the pod waits for a change of the node or of other
        pods, and the reason is reported in the pod's status.
        """
        uid = manifest["metadata"]["uid"]
        allocated = await self._allocated(manifest)
        problem = refusal(self._node_object, manifest, self._placed.values(), allocated) if self._node_object is not None else None
        if problem is None and self._node_object is not None:
            self._waiting.pop(uid, None)
            return True
        self._waiting[uid] = manifest
        status = manifest.get("status") or {}
        if problem is not None and unscheduled_message(status) != problem:
            await self._tolerantly(self._report_unscheduled(manifest, problem), pod_name(manifest))
        return False

    async def _allocated(self, manifest: Mapping[str, Any]) -> frozenset[str]:
        """Return the names of the pod's ResourceClaims that have an allocated device."""
        names = {str(one["resourceClaimName"]) for one in manifest["spec"].get("resourceClaims") or () if one.get("resourceClaimName")}
        namespace = manifest["metadata"]["namespace"]
        return frozenset([name for name in sorted(names) if await self._cluster.has_device(namespace, name)])

    async def _report_unscheduled(self, manifest: Mapping[str, Any], problem: str) -> None:
        pod, seen = self._without_containers(manifest), manifest["metadata"].get("resourceVersion")
        status = unscheduled_status(problem, manifest.get("status") or {}, utc_stamp())
        await self._cluster.patch_status(pod, status, of_version=seen)  # another node may have taken it meanwhile
        self._cluster.record_event(pod, "Warning", "FailedScheduling", problem, utc_stamp())

    async def _node_changed(self, node: Mapping[str, Any] | None) -> None:
        self._node_object = node
        await self._take_waiting()

    async def _take_waiting(self) -> None:
        for manifest in list(self._waiting.values()):
            await self._take(manifest)

    def _without_containers(self, manifest: Mapping[str, Any]) -> PodSpec:
        """Return a PodSpec without containers, for requests about a pod that this kubelet does not run."""
        metadata = manifest["metadata"]
        return PodSpec(uid=metadata["uid"], namespace=metadata["namespace"], name=metadata["name"], node=self._node, containers=())

    async def _tolerantly(self, request: Awaitable[None], pod: str) -> None:
        """Await a request about one pod. If the API refuses the request, only log this, so that the other pods are
        still processed.

        Raises ClusterProblem if the API cannot be reached. The agent then lists all pods again soon.
        """
        try:
            await request
        except ClusterProblem as problem:
            if problem.worth_retrying:
                raise
            log.warning("a request about a pod was refused", extra={"pod": pod, "error": str(problem)})

    async def _bind(self, pod: PodSpec) -> None:
        await self._cluster.bind(pod)
        self._cluster.record_event(pod, "Normal", "Scheduled", f"Assigned {pod.namespace}/{pod.name} to {self._node}", utc_stamp())

    def _begin(self, pod: PodSpec, manifest: Mapping[str, Any]) -> None:
        state = self._remembered.get(pod.uid)
        if state is None:
            containers = tuple(ContainerState(name=container.name) for container in pod.every_container)
            state = PodState(
                uid=pod.uid,
                namespace=pod.namespace,
                name=pod.name,
                ip=self._addresses.take(),
                start_time=utc_stamp(),
                containers=containers,
            )
        else:
            state = self._adopt(pod, state)
        worker = PodWorker(
            pod,
            manifest,
            state,
            cluster=self._cluster,
            runtime=self._runtime,
            preparation=self._preparation,
            start_slots=self._slots,
            clock=self._clock,
            remember=self._remember,
        )
        self._workers[pod.uid] = worker
        self._remember(state)
        task = asyncio.create_task(worker.run(), name=f"{pod.namespace}/{pod.name}")
        self._tasks[pod.uid] = task
        task.add_done_callback(lambda done: self._ended(pod, done))

    def _adopt(self, pod: PodSpec, state: PodState) -> PodState:
        """Return the pod's state with the processes of an earlier kubelet that still run.

        A process that no longer runs counts as ended now. If its container is restarted, this happens at once.
        """
        now = self._clock()
        containers = []
        for container in state.containers:
            taken = after_adoption(container, now)
            if taken.process is not None and not is_alive(taken.process):
                taken = after_exit(
                    taken,
                    exit_code=255,
                    signal=0,
                    message="The node went down",
                    restarts_allowed=restarts_allowed(pod, container.name, exit_code=255, signal=0),
                    stamp=utc_stamp(),
                    now=now,
                )
                taken = replace(taken, start_at=now)
            containers.append(taken)
        return replace(state, containers=tuple(containers))

    async def _refuse(self, manifest: Mapping[str, Any], problem: PodRefused) -> None:
        """Report in the pod's status why this kubelet cannot run the pod; the same reason is reported only once. If the
        pod is being deleted, finish the deletion instead.
        """
        pod = self._without_containers(manifest)
        if manifest["metadata"].get("deletionTimestamp"):
            await self._cluster.finish_deletion(pod)
            return
        if self._refused.get(pod.uid) == str(problem):
            return
        status = refused_status(manifest["spec"]["containers"], problem.reason, str(problem), manifest.get("status") or {}, utc_stamp())
        if not manifest["spec"].get("nodeName"):
            await self._cluster.bind(pod)
        await self._cluster.patch_status(pod, status)
        self._refused[pod.uid] = str(problem)
        self._cluster.record_event(pod, "Warning", "Failed", str(problem), utc_stamp())

    def _forget(self, uid: str) -> None:
        """Drop a pod whose object is gone from the API, and end its processes."""
        self._refused.pop(uid, None)
        self._waiting.pop(uid, None)
        self._placed.pop(uid, None)
        if uid in self._workers:
            self._workers[uid].abandon()

    def _end_remembered(self, uid: str, state: PodState) -> None:
        """End the processes of a pod that was deleted while no kubelet ran."""
        log.info("pod is gone from the API: its processes are ended", extra={"pod": f"{state.namespace}/{state.name}"})
        left = [container.process for container in state.containers if container.process is not None and is_alive(container.process)]
        end_processes(left, grace_seconds=1.0)
        self._drop(uid, state)

    def _remember(self, state: PodState) -> None:
        self._remembered[state.uid] = state
        self._dirty.set()

    def _ended(self, pod: PodSpec, task: "asyncio.Task[None]") -> None:
        if task.cancelled():  # the node is being taken down
            return
        worker = self._workers.pop(pod.uid, None)
        self._tasks.pop(pod.uid, None)
        if task.exception() is not None:
            log.error(
                "the worker of a pod failed; it is started again when pods are listed again",
                exc_info=task.exception(),
                extra={"pod": f"{pod.namespace}/{pod.name}"},
            )
            return
        if worker is not None:
            self._drop(pod.uid, worker.state)

    def _drop(self, uid: str, state: PodState) -> None:
        self._remembered.pop(uid, None)
        self._addresses.give_back(state.ip)
        self._runtime.remove_log(state.namespace, state.name)
        self._dirty.set()
        forgetting = asyncio.create_task(self._preparation.forget(uid), name=f"forgetting {uid}")
        self._forgetting.add(forgetting)
        forgetting.add_done_callback(self._forgetting.discard)


def pod_name(manifest: Mapping[str, Any]) -> str:
    """Return the pod's `namespace/name`, for messages."""
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"

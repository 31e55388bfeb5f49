"""Runs one pod on the node: calls `decide`, carries out the actions, and reports the pod's status to the API.

There is one task per pod. A request that fails because of the API is usually sent again later.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from processkube.errors import ClusterProblem
from processkube.kubelet.container_states import (
    ContainerState,
    PodState,
    after_answer,
    after_exit,
    after_refusal,
    after_start,
)
from processkube.kubelet.deciding import (
    Action,
    AskProbe,
    FinishDeletion,
    KillContainer,
    StartContainer,
    StopContainer,
    decide,
    restarts_allowed,
)
from processkube.kubelet.pod_specs import ContainerSpec, PodSpec
from processkube.kubelet.pods_api import PodsApi
from processkube.kubelet.preparation import Preparation
from processkube.kubelet.probe_specs import ProbeSpec
from processkube.kubelet.refusals import PodRefused
from processkube.kubelet.runtime import ProcessRuntime
from processkube.kubelet.statuses import pod_status, readiness
from processkube.probing import ProbeAnswer, ask_http, ask_tcp

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
STARTING_SECONDS = 8.0
"""Maximum seconds for which a container that starts may hold one of the node's few start slots. It gives its slot back
earlier when one of its probes passes.
"""


class PodWorker:
    """Runs one pod until its deletion is finished.

    `remember` is called with the pod's state after every change that must survive a restart of the kubelet.
    """

    def __init__(
        self,
        pod: PodSpec,
        manifest: Mapping[str, Any],
        state: PodState,
        *,
        cluster: PodsApi,
        runtime: ProcessRuntime,
        preparation: Preparation,
        start_slots: asyncio.Semaphore,
        clock: Callable[[], float],
        remember: Callable[[PodState], None],
    ) -> None:
        self.pod = pod
        self.state = state
        self._manifest = manifest
        self._cluster = cluster
        self._runtime = runtime
        self._preparation = preparation
        self._slots = start_slots
        self._clock = clock
        self._remember = remember
        self._wake = asyncio.Event()
        self._abandoned = False
        self._reported: dict[str, Any] | None = None
        self._status_retry_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting: set[str] = set()
        self._slot_holders: dict[str, asyncio.Event] = {}

    def update(self, pod: PodSpec, manifest: Mapping[str, Any]) -> None:
        """Take over the pod's changed object. For example, its deletion was requested, or another client has written a
        condition.

        If the pod's readiness in the API differs from the readiness that this kubelet has reported, the API has counted
        the node as lost. Then the whole status is reported again.
        """
        self.pod = pod
        self._manifest = manifest
        if self._reported is not None and readiness(manifest.get("status") or {}) != readiness(self._reported):
            self._reported = None
        self._wake.set()

    def abandon(self) -> None:
        """End the pod's processes without a report, because the Pod object is gone from the API."""
        self._abandoned = True
        self.pod = replace(self.pod, deletion_at=self.pod.deletion_at or 0.0, grace_seconds=min(self.pod.grace_seconds, 2.0))
        self._wake.set()

    async def run(self) -> None:
        """Run the pod until it is gone. Processes that an earlier kubelet started and that still run are taken over."""
        for container in self.state.containers:
            if container.process is not None:
                self._spawn(self._watch(container))
        self._spawn(self._preparation.keep_tokens(self.pod))
        try:
            while True:
                self._wake.clear()
                step = decide(self.pod, self.state, self._clock())
                for action in step.actions:
                    if isinstance(action, FinishDeletion) and await self._finish():
                        return
                    self._do(action)
                wake_at = min(step.wake_at, await self.report())
                try:
                    async with asyncio.timeout(max(0.0, wake_at - self._clock())):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            for task in self._tasks:
                task.cancel()

    def _do(self, action: Action) -> None:
        match action:
            case StartContainer(container=name):
                if name not in self._starting:
                    self._starting.add(name)
                    self._spawn(self._start(self._spec(name)))
            case AskProbe(container=name, probe=probe):
                container = self.state.container(name)
                probe_state = getattr(container, probe)
                self._change(replace(container, **{probe: replace(probe_state, asking=True)}), keep=False)
                self._spawn(self._ask(self._spec(name), probe))
            case StopContainer(container=name, why=why):
                container = self.state.container(name)
                self._event("Normal" if self.pod.deleted else "Warning", "Killing" if self.pod.deleted else "Unhealthy", why)
                hooked = self._spec(name).before_stop is not None
                self._change(replace(container, stop_at=self._clock(), hook_runs=hooked))
                if hooked:
                    self._spawn(self._stop_after_hook(name))
                elif container.process is not None:
                    self._runtime.stop(container.process, self._preparation.stop_signal(self._spec(name)))
            case KillContainer(container=name):
                container = self.state.container(name)
                self._change(replace(container, killed=True))
                if container.process is not None:
                    self._runtime.kill(container.process)
            case FinishDeletion():
                pass  # either it is done, or it is tried again when the API is back

    async def _start(self, spec: ContainerSpec) -> None:
        """Start one container as soon as a start slot is free.

        The slots limit how many containers start at the same time. Starting Python takes much CPU time, and if 64
        containers started at once, their probes would fail.
        """
        await self._slots.acquire()
        try:
            prepared = await self._preparation.start(self.pod, spec, self._manifest, self.state.ip)
            container = self.state.container(spec.name)
            if self.pod.deleted or container.process is not None:
                self._slots.release()
                return
            if container.restarts and len(self.pod.containers) == 1:  # several containers write to one file, which stays whole
                self._runtime.keep_previous_log(self.pod.namespace, self.pod.name)
            process = self._runtime.start(prepared.line, prepared.variables, self._runtime.log_path(self.pod.namespace, self.pod.name))
        except (PodRefused, ClusterProblem, OSError) as problem:
            self._slots.release()
            reason = problem.reason if isinstance(problem, PodRefused) else "RunContainerError"
            self._event("Warning", "Failed", str(problem))
            self._change(after_refusal(self.state.container(spec.name), reason=reason, message=str(problem), now=self._clock()))
            self._wake.set()
            return
        finally:
            self._starting.discard(spec.name)
        started = after_start(container, spec, process=process, stamp=utc_stamp(), now=self._clock())
        self._change(started)
        self._event("Normal", "Started", f"Started container {spec.name} as process {process.pid} at {self.state.ip}")
        self._spawn(self._watch(started))
        self._spawn(self._hold_slot(spec.name))
        self._wake.set()

    async def _hold_slot(self, name: str) -> None:
        settled = self._slot_holders[name] = asyncio.Event()
        try:
            async with asyncio.timeout(STARTING_SECONDS):
                await settled.wait()
        except TimeoutError:
            pass
        finally:
            self._slots.release()

    async def _watch(self, container: ContainerState) -> None:
        if container.process is None:
            return
        ending = await self._runtime.wait(container.process)
        allowed = restarts_allowed(self.pod, container.name, exit_code=ending.exit_code, signal=ending.signal)
        before = self.state.container(container.name)
        after = after_exit(
            before,
            exit_code=ending.exit_code,
            signal=ending.signal,
            message=ending.message,
            restarts_allowed=allowed,
            stamp=utc_stamp(),
            now=self._clock(),
        )
        self._settle_slot(container.name)
        self._change(after)
        if allowed:
            self._event(
                "Warning",
                "BackOff",
                f"Container {container.name} ended with {_words(ending.exit_code, ending.signal)}; {after.waiting_message}",
            )
        self._wake.set()

    async def _ask(self, spec: ContainerSpec, probe: str) -> None:
        probe_spec: ProbeSpec = getattr(spec, probe)
        asked_of = self.state.container(spec.name).process
        host = probe_spec.host or self.state.ip
        if probe_spec.command:
            answer = await self._run_within(spec, probe_spec.command, probe_spec.timeout)
        elif probe_spec.path is not None:
            answer = await ask_http(
                host,
                probe_spec.port,
                probe_spec.path,
                timeout_seconds=probe_spec.timeout,
                headers=probe_spec.headers,
                tls=probe_spec.tls,
            )
        else:
            answer = await ask_tcp(host, probe_spec.port, timeout_seconds=probe_spec.timeout)
        before = self.state.container(spec.name)
        if before.process != asked_of:
            return  # the container was restarted meanwhile, and the answer is about the process before
        after = after_answer(before, spec, probe, ok=answer.ok, detail=answer.detail, now=self._clock())
        if answer.ok:
            self._settle_slot(spec.name)
        if before.ready and not after.ready:
            self._event("Warning", "Unhealthy", f"Readiness probe failed: {answer.detail}")
        self._change(after, keep=(before.ready, before.started) != (after.ready, after.started))
        self._wake.set()

    async def _run_within(self, spec: ContainerSpec, command: tuple[str, ...], timeout_seconds: float) -> ProbeAnswer:
        """Run a command in the container. Return a healthy answer if the command ends with code 0 within the timeout,
        else an answer with the reason.
        """
        process = self.state.container(spec.name).process
        if process is None:
            return ProbeAnswer(ok=False, detail="the container does not run")
        try:
            prepared = await self._preparation.within(self.pod, spec, self._manifest, self.state.ip, process.pid, command)
        except (PodRefused, ClusterProblem, OSError) as problem:
            return ProbeAnswer(ok=False, detail=str(problem))
        return await self._runtime.run(prepared.line, prepared.variables, timeout_seconds)

    async def _stop_after_hook(self, name: str) -> None:
        """Run the container's preStop hook, and then ask the container to end. If the hook takes longer than the pod's
        grace period, it is ended.
        """
        spec = self._spec(name)
        if spec.before_stop is not None:
            await asyncio.sleep(spec.before_stop.sleep_seconds)
            if spec.before_stop.command:
                answer = await self._run_within(spec, spec.before_stop.command, self.pod.grace_seconds)
                if not answer.ok:
                    self._event("Warning", "FailedPreStopHook", f"PreStopHook failed: {answer.detail}")
        container = self.state.container(name)
        self._change(replace(container, hook_runs=False))
        if container.process is not None:
            self._runtime.stop(container.process, self._preparation.stop_signal(self._spec(name)))

    async def report(self) -> float:
        """Report the pod's status to the API if it has changed.

        Return the time of the next attempt, in seconds of the monotonic clock; infinity if nothing is left to report.
        """
        if self._abandoned:
            return float("inf")
        live = self._manifest.get("status") or {}
        status = pod_status(self.pod, self.state, self._reported or live, utc_stamp(), live=live)
        if status == self._reported:
            return float("inf")
        if self._clock() < self._status_retry_at:
            return self._status_retry_at
        try:
            await self._cluster.patch_status(self.pod, status)
        except ClusterProblem as problem:
            if problem.status == 404 or (problem.status == 409 and problem.reason == "Conflict"):
                self.abandon()
                return self._clock()
            log.warning("a pod's status could not be reported, and is reported again", extra={"pod": self._name, "error": str(problem)})
            self._status_retry_at = self._clock() + RETRY_SECONDS
            return self._status_retry_at
        self._reported = status
        return float("inf")

    async def _finish(self) -> bool:
        """Report the pod's last phase, and remove the Pod object. Return False if the API refused the request or could
        not be reached, so that the deletion must be tried again.
        """
        if not self._abandoned:
            await self.report()
            try:
                await self._cluster.finish_deletion(self.pod)
            except ClusterProblem as problem:
                log.warning("a pod's deletion could not be finished, and is tried again", extra={"pod": self._name, "error": str(problem)})
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()
                return False
        return True

    def _settle_slot(self, name: str) -> None:
        settled = self._slot_holders.pop(name, None)
        if settled is not None:
            settled.set()

    def _change(self, container: ContainerState, *, keep: bool = True) -> None:
        self.state = self.state.with_container(container)
        if keep:
            self._remember(self.state)

    @property
    def _name(self) -> str:
        return f"{self.pod.namespace}/{self.pod.name}"

    def _spec(self, name: str) -> ContainerSpec:
        return next(container for container in self.pod.every_container if container.name == name)

    def _event(self, kind: str, reason: str, message: str) -> None:
        log.info("pod event", extra={"pod": self._name, "reason": reason, "text": message})
        self._cluster.record_event(self.pod, kind, reason, message, utc_stamp())

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task of a pod failed", exc_info=task.exception(), extra={"pod": self._name})


def utc_stamp() -> str:
    """Return the current time as Kubernetes writes it: in RFC 3339, UTC, with whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _words(exit_code: int, signal: int) -> str:
    return f"signal {signal}" if signal else f"exit code {exit_code}"

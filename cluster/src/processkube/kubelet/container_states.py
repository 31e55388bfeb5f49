"""The kubelet's state of containers and pods, and how each event changes the state.

This module is pure. The state file contains these classes unchanged.
"""

from dataclasses import dataclass, replace

from processkube.backoff import Backoff
from processkube.identities import ProcessIdentity
from processkube.kubelet.pod_specs import ContainerSpec, PodSpec
from processkube.kubelet.probe_states import ProbeState, begin, observe

RESTARTS = Backoff(first_seconds=0.5, longest_seconds=60.0, forgive_after_seconds=60.0)
"""Delays before restarts. They are shorter than a real kubelet's (10 s to 5 min), because here a person waits at a
terminal.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Termination:
    """How a container's process ended. Times are in RFC 3339."""

    exit_code: int
    signal: int
    reason: str
    message: str
    started_at: str | None
    finished_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """The state of one container. Times other than `started_at` are in seconds of the monotonic clock.

    - `process`: the running process; None if the container does not run.
    - `start_at`: the time from which a container that does not run may be started.
    - `ended`: whether the container has ended and is not started again.
    - `stop_at`: the time at which the kubelet began to stop the container; None if it did not.
    - `hook_runs`: whether the preStop hook still runs, which delays the signal.
    - `killed`: whether SIGKILL was sent.
    - `waiting_reason`, `waiting_message`: why the container does not run.
    """

    name: str
    process: ProcessIdentity | None = None
    started_at: str | None = None
    started_monotonic: float = 0.0
    start_at: float = 0.0
    restarts: int = 0
    ended: bool = False
    backoff: Backoff = RESTARTS
    last: Termination | None = None
    waiting_reason: str = "ContainerCreating"
    waiting_message: str = ""
    stop_at: float | None = None
    killed: bool = False
    hook_runs: bool = False
    startup: ProbeState | None = None
    readiness: ProbeState | None = None
    liveness: ProbeState | None = None

    @property
    def started(self) -> bool:
        """Whether the container runs and, if it has a startup probe, this probe has passed."""
        return self.process is not None and (self.startup is None or self.startup.passed is True)

    @property
    def succeeded(self) -> bool:
        """Whether the container has ended successfully and is not started again."""
        return self.ended and self.last is not None and self.last.exit_code == 0

    @property
    def ready(self) -> bool:
        """Whether the container is started and, if it has a readiness probe, this probe has passed."""
        return self.started and (self.readiness is None or self.readiness.passed is True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """The state of one pod on this node: its address, which never changes, and its containers in the order of the
    spec.
    """

    uid: str
    namespace: str
    name: str
    ip: str
    start_time: str
    containers: tuple[ContainerState, ...]

    def container(self, name: str) -> ContainerState:
        """Return the state of the container with this name. Raises KeyError if the pod has no such container."""
        for container in self.containers:
            if container.name == name:
                return container
        raise KeyError(name)

    def with_container(self, changed: ContainerState) -> "PodState":
        """Return the pod's state with the new state of one container."""
        return replace(self, containers=tuple(changed if item.name == changed.name else item for item in self.containers))


def is_terminated(pod: PodSpec, state: PodState) -> bool:
    """Return whether the pod is being deleted and none of its processes runs any more.

    A kubelet since version 1.27 writes the phase Succeeded or Failed for such a pod before the Pod object is removed
    (TerminatePod of its status manager).
    """
    return pod.deleted and all(container.process is None for container in state.containers)


def after_start(state: ContainerState, spec: ContainerSpec, *, process: ProcessIdentity, stamp: str, now: float) -> ContainerState:
    """Return the container's state after its process was started.

    The startup probe begins now. The liveness and readiness probes begin only after the startup probe has passed;
    without a startup probe, they begin now.
    """
    waits = spec.startup is not None
    return replace(
        state,
        process=process,
        started_at=stamp,
        started_monotonic=now,
        waiting_reason="",
        waiting_message="",
        stop_at=None,
        killed=False,
        hook_runs=False,
        startup=begin(spec.startup, now) if spec.startup else None,
        readiness=begin(spec.readiness, now) if spec.readiness and not waits else (ProbeState(next_at=now) if spec.readiness else None),
        liveness=begin(spec.liveness, now) if spec.liveness and not waits else (ProbeState(next_at=now) if spec.liveness else None),
    )


def after_refusal(state: ContainerState, *, reason: str, message: str, now: float) -> ContainerState:
    """Return the container's state after a failed start. The start is tried again later, because the image or the
    configuration may have changed by then.
    """
    backoff, delay = state.backoff.after_exit(0.0)
    return replace(state, backoff=backoff, start_at=now + max(delay, 5.0), waiting_reason=reason, waiting_message=message)


def after_answer(state: ContainerState, spec: ContainerSpec, probe: str, *, ok: bool, detail: str, now: float) -> ContainerState:
    """Return the container's state after one result of the probe `startup`, `readiness` or `liveness`."""
    known = {
        "startup": (state.startup, spec.startup),
        "readiness": (state.readiness, spec.readiness),
        "liveness": (state.liveness, spec.liveness),
    }
    before, probe_spec = known[probe]
    if before is None or probe_spec is None or state.process is None:
        return state
    after = observe(before, probe_spec, ok=ok, detail=detail, now=now)
    if probe == "readiness":
        return replace(state, readiness=after)
    if probe == "liveness":
        return replace(state, liveness=after)
    state = replace(state, startup=after)
    if after.passed and before.passed is None:
        state = replace(
            state,
            readiness=begin(spec.readiness, now) if spec.readiness else None,
            liveness=begin(spec.liveness, now) if spec.liveness else None,
        )
    return state


def after_exit(
    state: ContainerState, *, exit_code: int, signal: int, message: str, restarts_allowed: bool, stamp: str, now: float
) -> ContainerState:
    """Return the container's state after its process has ended.

    `restarts_allowed` says whether the container is to be restarted, as `deciding.restarts_allowed` decides.
    """
    failed_probe = next((probe for probe in (state.liveness, state.startup) if probe is not None and probe.passed is False), None)
    last = Termination(
        exit_code=128 + signal if signal else exit_code,
        signal=signal,
        reason="Completed" if exit_code == 0 and not signal else "Error",
        message=message or (f"probe failed: {failed_probe.detail}" if failed_probe else ""),
        started_at=state.started_at,
        finished_at=stamp,
    )
    backoff, delay = state.backoff.after_exit(now - state.started_monotonic)
    return replace(
        state,
        process=None,
        ended=not restarts_allowed,
        backoff=backoff,
        start_at=now + delay,
        restarts=state.restarts + 1 if restarts_allowed else state.restarts,
        last=last,
        waiting_reason="CrashLoopBackOff" if restarts_allowed else "",
        waiting_message=f"back-off {delay:.3g} s before the next start" if restarts_allowed else "",
        startup=None,
        readiness=None,
        liveness=None,
    )


def after_adoption(state: ContainerState, now: float) -> ContainerState:
    """Return the container's state after the kubelet was restarted.

    The verdicts of probes are kept. A probe whose result was awaited is run again. A preStop hook that was running is
    started again.
    """

    def again(probe: ProbeState | None) -> ProbeState | None:
        return replace(probe, asking=False, next_at=now) if probe else None

    return replace(
        state,
        startup=again(state.startup),
        readiness=again(state.readiness),
        liveness=again(state.liveness),
        stop_at=None if state.hook_runs else state.stop_at,
        hook_runs=False,
        start_at=min(state.start_at, now + state.backoff.longest_seconds),
    )

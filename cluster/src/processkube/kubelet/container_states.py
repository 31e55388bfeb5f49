"""The kubelet's state of containers and pods, and how each event changes it.

Pure; the state file holds these classes unchanged.
"""

from dataclasses import dataclass, replace

from processkube.backoff import Backoff
from processkube.identities import ProcessIdentity
from processkube.kubelet.pod_specs import ContainerSpec, PodSpec
from processkube.kubelet.probe_states import ProbeState, begin, observe

RESTARTS = Backoff(first_seconds=0.5, longest_seconds=60.0, forgive_after_seconds=60.0)
"""Delays before restarts; a real kubelet waits 10 s to 5 min, but here a person waits at a terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Termination:
    """The end of a container's process; times are RFC 3339."""

    exit_code: int
    signal: int
    reason: str
    message: str
    started_at: str | None
    finished_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """The state of one container.

    `process`: the running process; None if the container does not run.
    `start_at`: the time (monotonic) at which a container that does not run is started.
    `ended`: it has ended and is not started again.
    `stop_at`: the time at which its stop began.
    `hook_runs`: its preStop hook still delays the signal.
    `killed`: it got SIGKILL.
    `waiting_reason`, `waiting_message`: why it does not run.
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
        """Whether the container runs and its startup probe, if any, has passed."""
        return self.process is not None and (self.startup is None or self.startup.passed is True)

    @property
    def succeeded(self) -> bool:
        """Whether the container has ended successfully and is not started again."""
        return self.ended and self.last is not None and self.last.exit_code == 0

    @property
    def ready(self) -> bool:
        """Whether the container is started and its readiness probe, if any, has passed."""
        return self.started and (self.readiness is None or self.readiness.passed is True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """One pod on this node: its address, which stays the same while it lives, and its containers in the order of the
    spec.
    """

    uid: str
    namespace: str
    name: str
    ip: str
    start_time: str
    containers: tuple[ContainerState, ...]

    def container(self, name: str) -> ContainerState:
        """Return the container of this name. Raises KeyError when the pod does not have it."""
        for container in self.containers:
            if container.name == name:
                return container
        raise KeyError(name)

    def with_container(self, changed: ContainerState) -> "PodState":
        """Return the pod with one container replaced."""
        return replace(self, containers=tuple(changed if item.name == changed.name else item for item in self.containers))


def is_terminated(pod: PodSpec, state: PodState) -> bool:
    """Return whether the pod is deleted and none of its processes runs any more.

    Since 1.27 a kubelet then writes Succeeded or Failed before the object is removed (its status manager's
    TerminatePod).
    """
    return pod.deleted and all(container.process is None for container in state.containers)


def after_start(state: ContainerState, spec: ContainerSpec, *, process: ProcessIdentity, stamp: str, now: float) -> ContainerState:
    """Return the state after the process was started: its probes begin.

    Liveness and readiness begin only after the startup probe has passed.
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
    """Return the state after a failed start. The start is tried again later, because the image or the configuration may
    have changed.
    """
    backoff, delay = state.backoff.after_exit(0.0)
    return replace(state, backoff=backoff, start_at=now + max(delay, 5.0), waiting_reason=reason, waiting_message=message)


def after_answer(state: ContainerState, spec: ContainerSpec, probe: str, *, ok: bool, detail: str, now: float) -> ContainerState:
    """Return the state after a result of one of the probes `startup`, `readiness` and `liveness`."""
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
    """Return the state after the process ended.

    `restarts_allowed` says whether the pod's restart policy wants a restart after this exit (False also while the pod
    is being deleted).
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
    """Return the state after a restart of the kubelet.

    The verdicts of probes are kept. Probes in progress are lost and run again, and a preStop hook in progress starts
    again.
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

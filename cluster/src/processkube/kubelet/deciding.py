"""Decides the next actions for one pod. This module is pure, and decides for every possible state.

The pod's worker carries out the actions, records their results in the state, and asks for the next decision.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from processkube.kubelet.container_states import ContainerState, PodState, is_terminated
from processkube.kubelet.pod_specs import ContainerSpec, PodSpec
from processkube.kubelet.probe_specs import ProbeSpec
from processkube.kubelet.probe_states import ProbeState, is_due

IDLE_SECONDS = 60.0
"""Maximum number of seconds between two decisions for a pod, in case an event was missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartContainer:
    """The action to start the container's process."""

    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskProbe:
    """The action to run the probe `startup`, `readiness` or `liveness` of a container once."""

    container: str
    probe: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopContainer:
    """The action to ask the container's process to end, after its preStop hook. `why` is the reason, as a text for an
    Event.
    """

    container: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KillContainer:
    """The action to end the container's process with SIGKILL."""

    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishDeletion:
    """The action to remove the Pod object and to drop the pod, because none of its processes runs any more."""


Action = StartContainer | AskProbe | StopContainer | KillContainer | FinishDeletion


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """The actions to take, and the time of the next decision unless an event comes first. The time is in seconds of the
    monotonic clock.
    """

    actions: tuple[Action, ...]
    wake_at: float


def decide(pod: PodSpec, state: PodState, now: float) -> NextStep:
    """Return the next actions for a pod in this state at the time `now`."""
    actions: list[Action] = []
    wakes = [now + IDLE_SECONDS]
    if is_terminated(pod, state):
        return NextStep(actions=(FinishDeletion(),), wake_at=now + IDLE_SECONDS)
    startable = _startable(pod, state)
    for spec in pod.every_container:
        container = state.container(spec.name)
        if container.process is None:
            if not pod.deleted and not container.ended and spec in startable:
                if container.start_at <= now:
                    actions.append(StartContainer(container=spec.name))
                else:
                    wakes.append(container.start_at)
            continue
        why = _reason_to_stop(pod, container)
        if why is not None and container.stop_at is None:
            actions.append(StopContainer(container=spec.name, why=why))
            wakes.append(now + pod.grace_seconds)
        elif container.stop_at is not None:
            deadline = container.stop_at + pod.grace_seconds
            if deadline <= now and not container.killed:
                actions.append(KillContainer(container=spec.name))
            elif not container.killed:
                wakes.append(deadline)
        for name, probe, probe_state in _active_probes(pod, spec, container):
            if is_due(probe_state, probe, now):
                actions.append(AskProbe(container=spec.name, probe=name))
            elif not probe_state.asking:
                wakes.append(probe_state.next_at)
    return NextStep(actions=tuple(actions), wake_at=min(wakes))


def restarts_allowed(pod: PodSpec, container: str, *, exit_code: int, signal: int) -> bool:
    """Return whether the container is to be restarted after this exit. The pod's restart policy decides; an init
    container is restarted only after a failure, and a pod that is being deleted restarts no container.
    """
    if pod.deleted or pod.restart_policy == "Never":
        return False
    failed = exit_code != 0 or signal != 0
    return failed or (pod.restart_policy == "Always" and container not in {spec.name for spec in pod.init_containers})


def _startable(pod: PodSpec, state: PodState) -> tuple[ContainerSpec, ...]:
    """Return the containers that may run now: the first init container that has not succeeded or, once all have
    succeeded, all other containers.
    """
    for spec in pod.init_containers:
        if not state.container(spec.name).succeeded:
            return (spec,)
    return pod.containers


def _reason_to_stop(pod: PodSpec, container: ContainerState) -> str | None:
    if pod.deleted:
        return "Stopping container: the pod is being deleted"
    if container.startup is not None and container.startup.passed is False:
        return f"Container failed its startup probe ({container.startup.detail}) and is restarted"
    if container.liveness is not None and container.liveness.passed is False:
        return f"Container failed its liveness probe ({container.liveness.detail}) and is restarted"
    return None


def _active_probes(pod: PodSpec, spec: ContainerSpec, container: ContainerState) -> Iterator[tuple[str, ProbeSpec, ProbeState]]:
    """Yield the probes to run: until the startup probe has passed, only this probe; then the liveness and readiness
    probes.

    While the container is being stopped, only its readiness probe is run.
    """
    if container.startup is not None and spec.startup is not None and container.startup.passed is None:
        if container.stop_at is None:
            yield "startup", spec.startup, container.startup
        return
    if not container.started:
        return
    if container.readiness is not None and spec.readiness is not None:
        yield "readiness", spec.readiness, container.readiness
    if container.liveness is not None and spec.liveness is not None and container.stop_at is None and not pod.deleted:
        yield "liveness", spec.liveness, container.liveness

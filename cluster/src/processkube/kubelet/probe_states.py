"""Turns the results of a probe into a verdict, by thresholds and periods. Pure; times are monotonic seconds."""

from dataclasses import dataclass, replace

from processkube.kubelet.probe_specs import ProbeSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeState:
    """The results of one probe since its container was last started.

    `passed`: the verdict; None before the first.
    `asking`: whether a result is awaited.
    """

    next_at: float
    passed: bool | None = None
    successes: int = 0
    failures: int = 0
    asking: bool = False
    detail: str = ""


def begin(spec: ProbeSpec, now: float) -> ProbeState:
    """Return the state when the container has just been started (or its startup probe has just passed)."""
    return ProbeState(next_at=now + spec.initial_delay)


def is_due(state: ProbeState, spec: ProbeSpec, now: float) -> bool:
    """Return whether the probe is due. A time in the far future counts as due: the monotonic clock has started again
    with the machine.
    """
    return not state.asking and (state.next_at <= now or state.next_at > now + spec.initial_delay + spec.period)


def observe(state: ProbeState, spec: ProbeSpec, *, ok: bool, detail: str, now: float) -> ProbeState:
    """Return the state after a result. The verdict changes only after a threshold of consecutive equal results."""
    successes = state.successes + 1 if ok else 0
    failures = 0 if ok else state.failures + 1
    passed = state.passed
    if successes >= spec.success_threshold:
        passed = True
    elif failures >= spec.failure_threshold:
        passed = False
    return replace(
        state, next_at=now + spec.period, successes=successes, failures=failures, passed=passed, asking=False, detail="" if ok else detail
    )

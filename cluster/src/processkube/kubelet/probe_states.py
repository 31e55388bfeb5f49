"""Turns the results of a probe into a verdict, by thresholds and periods. This module is pure; times are monotonic
seconds.
"""

from dataclasses import dataclass, replace

from processkube.kubelet.probe_specs import ProbeSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeState:
    """The results of one probe since its container was last started.

    - `passed`: the verdict; None until there is one.
    - `asking`: whether a run of the probe is in progress.
    """

    next_at: float
    passed: bool | None = None
    successes: int = 0
    failures: int = 0
    asking: bool = False
    detail: str = ""


def begin(spec: ProbeSpec, now: float) -> ProbeState:
    """Return the state of a probe that begins now: the container was started, or its startup probe has passed."""
    return ProbeState(next_at=now + spec.initial_delay)


def is_due(state: ProbeState, spec: ProbeSpec, now: float) -> bool:
    """Return whether the probe should run now. A due time in the far future counts as due, too: it was stored before a
    reboot of the machine, which restarts the monotonic clock.
    """
    return not state.asking and (state.next_at <= now or state.next_at > now + spec.initial_delay + spec.period)


def observe(state: ProbeState, spec: ProbeSpec, *, ok: bool, detail: str, now: float) -> ProbeState:
    """Return the state after a result. The verdict changes only after enough consecutive equal results
    (`success_threshold`, `failure_threshold`).
    """
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

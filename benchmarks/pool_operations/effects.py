"""Compares the expected effects of plans with the measured effects on live pools."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.pool_operations.loaded_pools import LoadedPool, NeverCame, begin_loads, pool_manifest
from benchmarks.pool_operations.work import Work, trace_rows, work_for

from fairlead_api.simulations.expected_figures import FEW_SESSIONS, alike
from fairlead_client.resources.expectations import ExpectationState, PlanExpectation, Quantity
from fairlead_simulator.replay.outcomes import ReplayVerdict, RequestOutcome
from fairlead_simulator.traces.rows import write_trace
from fairlead_testing.running.sandbox import RunningSandbox

TTFT_SECONDS, TPOT_SECONDS = 5.0, 0.1
POINT = 0.01
"""Maximum difference of two shares that count as equal."""
SIMULATING_SECONDS = 300.0
ANSWERING_SECONDS = 60.0
"""Seconds of load after the last measured request, in which it can be answered."""
PLANS: Mapping[str, Mapping[str, Any]] = {
    "scale-in": {"kind": "scale"},
    "drain": {"kind": "drain"},
    "policy": {"kind": "policy", "fields": {"policy": "least-loaded"}},
    "early-rejection": {"kind": "early-rejection", "fields": {"mode": "Load", "headroom": 0.5}},
}
"""The plans, by the name of the pool to which each is applied.

A scale-in removes one instance, a drain replaces the first instance.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """An applied plan: its expected effect, and the time at which it was applied, in seconds since the pool's load
    began and as Unix time.
    """

    pool: LoadedPool
    expected: PlanExpectation
    seconds: float
    unix: float

    @property
    def ends(self) -> float:
        """The time at which the measured period ends, so that it is as long as the simulated period."""
        return self.seconds + (self.expected.measured_seconds or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectsSettings:
    """The settings of the command line. `rate` is in requests per second and pool, times are in seconds."""

    trace: Path | None
    instances: int
    utilisation: float
    rate: float
    warm_up: float
    cache_tokens: int

    def work(self) -> Work:
        """Return a part of the trace that is longer than the run. Raises SimulatorError or ValueError if the trace is
        too short.
        """
        return work_for(
            trace_rows(self.trace),
            rate=self.rate,
            seconds=2 * self.warm_up + SIMULATING_SECONDS + ANSWERING_SECONDS,
            instances=self.instances,
            utilisation=self.utilisation,
            tpot_seconds=TPOT_SECONDS,
        )


def run_effects(sandbox: RunningSandbox, folder: Path, settings: EffectsSettings, work: Work) -> int:
    """Put load on one pool for each plan. Then make the plans, apply them and measure their effects. Return 1 if a
    measured figure differs from its expectation.
    """
    print(
        f"{len(PLANS)} pools of {settings.instances} instances get {settings.rate:g} requests/s each; their engines compute "
        f"{work.prefill_tokens_per_second:,.0f} prompt tokens/s, so that an endless cache would leave them busy for {settings.utilisation:.0%}",
        flush=True,
    )
    trace = folder / "trace.jsonl"
    with trace.open("w") as out:
        write_trace(work.rows, out)
    pools = [_pool(sandbox, folder, name, work, settings) for name in PLANS]
    try:
        for pool in pools:
            pool.create({"both": settings.instances})
        begin_loads(pools, trace, work.speed)
        time.sleep(settings.warm_up)
        applied = planned_and_applied(pools, settings.instances)
        while any(one.pool.now() < one.ends + ANSWERING_SECONDS for one in applied):
            time.sleep(1.0)
        for pool in pools:
            pool.end_load()
    finally:
        for pool in pools:
            pool.kill_load()
    time.sleep(5.0)  # the routers' last reports
    return told(applied)


def planned_and_applied(pools: Sequence[LoadedPool], instances: int) -> list[Applied]:
    """Make a plan for every pool, and apply each as soon as its expected effect is known. Return the applied plans.

    Raises NeverCame.
    """
    plans = {pool.name: _plan(pool, instances) for pool in pools}
    applied: list[Applied] = []
    deadline = time.monotonic() + SIMULATING_SECONDS
    while waiting := [pool for pool in pools if pool.name not in {one.pool.name for one in applied}]:
        if time.monotonic() > deadline:
            raise NeverCame(f"the expected effect of the plan for {waiting[0].name} was not known within {SIMULATING_SECONDS:.0f} s")
        time.sleep(0.5)
        for pool in waiting:
            plan = plans[pool.name]
            expected = msgspec.convert(pool.sandbox.ask(f"/v1/plans/{plan}/expectation"), PlanExpectation)
            if expected.state is ExpectationState.UNKNOWN:
                raise NeverCame(f"the plan for {pool.name} has no expected effect: {expected.reason}")
            if expected.state is ExpectationState.DONE:
                confirmed = {"confirm": pool.name, "reason": "to see what it does"}
                answer = pool.sandbox.request("POST", f"/v1/plans/{plan}/apply", json=confirmed)
                if answer.status_code != 200:
                    raise NeverCame(f"the plan of {pool.name} was not applied: {answer.text[:500]}")
                applied.append(Applied(pool=pool, expected=expected, seconds=pool.now(), unix=time.time()))
                print(f"{pool.name}: applied after {pool.now():.0f} s of load; watched for {expected.measured_seconds:.0f} s", flush=True)
    return applied


def happened(one: Applied) -> dict[Quantity, float]:
    """Return the measured figures: shares of the requests due after the plan, and the recorded number of moved
    sessions.
    """
    due = [outcome for outcome in one.pool.served if one.seconds <= outcome.due_seconds < one.ends]
    served = [outcome for outcome in due if outcome.verdict is ReplayVerdict.SERVED]
    moves = one.pool.sandbox.everything("/v1/migrations", pool=f"default/{one.pool.name}")
    until = one.unix + one.ends - one.seconds
    return {
        Quantity.ATTAINMENT: _share(sum(map(_in_time, served)), len(due)),
        Quantity.REFUSED_SHARE: _share(sum(outcome.verdict is ReplayVerdict.REJECTED for outcome in due), len(due)),
        Quantity.HIT_RATE: _share(
            sum(outcome.cached_tokens or 0 for outcome in served), sum(outcome.prompt_tokens or 0 for outcome in served)
        ),
        Quantity.SESSIONS_MOVED: len({move["session"] for move in moves if one.unix <= _unix(move["at"]) < until}),
    }


def told(applied: Iterable[Applied]) -> int:
    """Print expected and measured figures; return 1 if a reliable figure is off by more than a quarter."""
    print("\n| plan | quantity | as it is | expected | happened | |\n|---|---|---|---|---|---|")
    broken = 0
    for one in applied:
        came = happened(one)
        for figure in one.expected.figures:
            counts = figure.quantity is Quantity.SESSIONS_MOVED
            shown, then = "{:.0f}" if counts else "{:.1%}", came[figure.quantity]
            kept = alike(figure.after, then, FEW_SESSIONS if counts else POINT)
            broken += not kept and figure.unknown is None
            words = (
                f"told as unknown: {figure.unknown}" if figure.unknown else "within a quarter" if kept else "**off by more than a quarter**"
            )
            values = " | ".join(shown.format(value) for value in (figure.before, figure.after, then))
            print(f"| {one.pool.name} | {figure.quantity} | {values} | {words} |")
        failed = sum(outcome.verdict is ReplayVerdict.FAILED for outcome in one.pool.served)
        notes = " ".join(one.expected.notes)
        print(f"{one.pool.name}: {len(one.pool.served)} requests in all, {failed} failed; simulated were {one.expected.requests}. {notes}")
    print(
        f"{'NO ' if broken else 'yes':4}figures that were not marked as unknown are within a quarter of the expected figures; {broken} are not",
        flush=True,
    )
    return 1 if broken else 0


def _pool(sandbox: RunningSandbox, folder: Path, name: str, work: Work, settings: EffectsSettings) -> LoadedPool:
    spec = {
        "replicas": settings.instances,
        "engine": {"kvCacheTokens": settings.cache_tokens, "simulated": {"blockSize": 512, "startup": "5s"}},
        "slo": {"ttft": f"{TTFT_SECONDS:g}s", "tpot": f"{TPOT_SECONDS * 1e3:g}ms"},
        "drain": {"timeout": "120s"},
    }
    roles = [{"name": "both", "minReplicas": 1, "maxReplicas": settings.instances + 1}]
    return LoadedPool(sandbox=sandbox, name=name, manifest=pool_manifest(name, work, roles, spec), rows_file=folder / f"{name}.jsonl")


def _plan(pool: LoadedPool, instances: int) -> str:
    asked = dict(PLANS[pool.name])
    if asked["kind"] == "scale":
        asked["replicas"] = instances - 1
    elif asked["kind"] == "drain":
        asked["instance"] = min(one["id"] for one in pool.instances())
    answer = pool.sandbox.request("POST", f"/v1/pools/default/{pool.name}/plans", json=asked)
    if answer.status_code != 201:
        raise NeverCame(f"{pool.name} cannot be planned: {answer.text[:500]}")
    return str(answer.json()["id"])


def _in_time(one: RequestOutcome) -> bool:
    return (
        one.ttft_seconds is not None and one.ttft_seconds <= TTFT_SECONDS and (one.tpot_seconds is None or one.tpot_seconds <= TPOT_SECONDS)
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _unix(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()

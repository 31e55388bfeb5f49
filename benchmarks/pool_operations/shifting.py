"""Ratio Auto against fixed ratios on live pools, under a load that shifts from prefill-heavy to decode-heavy and
back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

from benchmarks.pool_operations.loaded_pools import ROLES, LoadedPool, begin_loads, pool_manifest, roles_of
from benchmarks.pool_operations.work import DECODE, Work

from fairlead_simulator.replay.outcomes import ReplayVerdict, RequestOutcome
from fairlead_simulator.traces.rows import TraceRow, write_trace
from fairlead_simulator.workloads.phases import Phase, PhaseShape, generate_phases
from fairlead_testing.running.sandbox import RunningSandbox

FIXED = ((2, 4), (3, 3), (4, 2))
"""Numbers of prefill and decode instances of the pools with a fixed ratio. Auto begins with the middle pair."""
TTFT_SECONDS = 15.0
TPOT_SECONDS = 0.1
TIME_SCALE = 0.1
"""The speed of engines as a factor: so slow that few tokens per second fill a decode batch."""
COOLDOWN_SECONDS = 30.0
WORTH_POINTS = 0.01
"""The maximum amount (0-1) by which the attainment of Auto may be below the attainment of the best fixed ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """The load's two phases. Each has a rate in requests per second, a mean number of prompt tokens and a mean number
    of output tokens.

    `busy` is the number of instances that a phase keeps busy in the role that it loads more.
    """

    prefill_heavy: tuple[float, int, int] = (1.7, 6100, 72)
    decode_heavy: tuple[float, int, int] = (1.7, 2500, 400)
    busy: float = 3.5

    def shape(self, seconds: float) -> PhaseShape:
        """Return the shape of the load: prefill-heavy, decode-heavy, and prefill-heavy again."""
        there, back = (self._phase(one, seconds) for one in (self.prefill_heavy, self.decode_heavy))
        return PhaseShape(phases=(there, back, there))

    def _phase(self, of: tuple[float, int, int], seconds: float) -> Phase:
        rate, prompt, output = of
        mean_of_median = 1.197  # exp(0.6² / 2), of a log-normal with sigma 0.6
        return Phase(seconds=seconds, requests_per_second=rate, input_median=prompt / mean_of_median, output_median=output / mean_of_median)

    def work(self, seconds: float, seed: int) -> Work:
        """Return the rows of all phases, and the speed of engines at which each phase keeps `busy` instances of its
        busier role busy.
        """
        shape = self.shape(seconds)
        rows = list(takewhile(lambda row: row.timestamp_ms < 1e3 * shape.seconds, generate_phases(shape, seed)))
        prefill_rate, prompt, _ = self.prefill_heavy
        decode_rate, context, output = self.decode_heavy
        batch = decode_rate * output / self.busy * TPOT_SECONDS
        step = TPOT_SECONDS - batch / TIME_SCALE * (DECODE.per_sequence + DECODE.per_context_token * (context + output / 2))
        return Work(
            rows=rows,
            speed=1.0,
            ideal=[0] * len(rows),
            prefill_tokens_per_second=prefill_rate * prompt / self.busy / TIME_SCALE,
            decode_step_seconds=step * TIME_SCALE,
        )


def pools_of(sandbox: RunningSandbox, folder: Path, work: Work) -> list[LoadedPool]:
    """Return a pool for each fixed ratio, and a pool with mode Auto."""
    auto = {"mode": "Auto", "method": "RoleFlip", "period": "5s", "periods": 3, "cooldown": f"{COOLDOWN_SECONDS:.0f}s"}
    pools = []
    for name, numbers, ratio in (
        *((f"fixed-{prefill}-{decode}", (prefill, decode), {"mode": "Fixed"}) for prefill, decode in FIXED),
        ("auto", FIXED[len(FIXED) // 2], auto),
    ):
        spec: dict[str, Any] = {
            "engine": {"simulated": {"timeScale": TIME_SCALE, "decodeStep": f"{work.decode_step_seconds * 1e3:.1f}ms", "startup": "5s"}},
            "ratio": ratio,
            "slo": {"ttft": f"{TTFT_SECONDS:.0f}s", "tpot": f"{TPOT_SECONDS * 1e3:.0f}ms"},
            "drain": {"timeout": "120s"},
        }
        roles = roles_of(sum(numbers), dict(zip(ROLES, numbers, strict=True)))
        pools.append(
            LoadedPool(sandbox=sandbox, name=name, manifest=pool_manifest(name, work, roles, spec), rows_file=folder / f"{name}.jsonl")
        )
    return pools


def run_shift(sandbox: RunningSandbox, folder: Path, seconds: float, seed: int) -> int:
    """Send the same load to every pool at once. Return 1 if Auto served too few in time, moved too often or failed."""
    work = Shift().work(seconds, seed)
    print(f"{work.words()}; phases of {seconds:.0f} s: prefill-heavy, decode-heavy, prefill-heavy", flush=True)
    trace = folder / "phases.jsonl"
    with trace.open("w") as out:
        write_trace(work.rows, out)
    pools = pools_of(sandbox, folder, work)
    try:
        for pool in pools:
            pool.create({role["name"]: role["replicas"] for role in pool.manifest["spec"]["roles"]})
        begin_loads(pools, trace, work.speed)
        began = time.time()
        time.sleep(3 * seconds)
        for pool in pools:
            pool.await_load(600.0)
    finally:
        for pool in pools:
            pool.kill_load()
    return told(pools, flips_of(pools[-1], began), seconds, work.rows)


def flips_of(pool: LoadedPool, began: float) -> list[tuple[float, str]]:
    """Return the changes of the pool's ratio, in seconds after `began`, with their messages."""
    events = pool.sandbox.everything(f"/v1/pools/default/{pool.name}/events")
    return sorted(
        (datetime.fromisoformat(event["at"]).timestamp() - began, str(event["message"]))
        for event in events
        if event["reason"] == "RatioChanged"
    )


def in_time(one: RequestOutcome) -> bool:
    """Return whether a request met both targets."""
    return (
        one.verdict is ReplayVerdict.SERVED
        and one.ttft_seconds is not None
        and one.ttft_seconds <= TTFT_SECONDS
        and (one.tpot_seconds is None or one.tpot_seconds <= TPOT_SECONDS)
    )


def attainment(served: Sequence[RequestOutcome], begin: float, end: float) -> float:
    """Return the share of requests in time, among the requests due from `begin` to `end` (excluded); 1 if there are
    none.
    """
    found = [in_time(one) for one in served if begin <= one.due_seconds < end]
    return sum(found) / len(found) if found else 1.0


def told(pools: Sequence[LoadedPool], flips: Sequence[tuple[float, str]], seconds: float, rows: Sequence[TraceRow]) -> int:
    """Print the table and the promises; return 1 if a promise was not kept."""
    print(
        "\n| prefill : decode | in time | prefill-heavy | decode-heavy | prefill-heavy again | failed, refused |\n|---|---|---|---|---|---|"
    )
    whole: Mapping[str, float] = {pool.name: attainment(pool.served, 0, 4 * seconds) for pool in pools}
    lost = {}
    for pool in pools:
        phases = " | ".join(f"{attainment(pool.served, n * seconds, (n + 1) * seconds):.1%}" for n in range(3))
        failed = sum(one.verdict is ReplayVerdict.FAILED for one in pool.served)
        refused = sum(one.verdict is ReplayVerdict.REJECTED for one in pool.served)
        lost[pool.name] = failed + len(rows) - len(pool.served)
        label = pool.name.replace("fixed-", "").replace("-", " : ") if pool.name != "auto" else "Auto"
        print(f"| {label} | {whole[pool.name]:.1%} | {phases} | {failed}, {refused} |")
    print()
    for at, message in flips:
        print(f"{at:6.0f} s  {message}")
    best = max(share for name, share in whole.items() if name != "auto")
    gap = min((later - earlier for (earlier, _), (later, _) in pairwise(flips)), default=None)
    kept = {
        f"Auto {whole['auto']:.1%} in time, the best fixed ratio {best:.1%} (at most {WORTH_POINTS:.0%} less)": whole["auto"]
        >= best - WORTH_POINTS,
        f"{len(flips)} moves, {'' if gap is None else f'at least {gap:.0f} s apart '}(cooldown {COOLDOWN_SECONDS:.0f} s)": gap is None
        or gap >= COOLDOWN_SECONDS,
        f"requests failed or not accounted for: {sum(lost.values())}": not any(lost.values()),
    }
    for words, good in kept.items():
        print(f"{'yes' if good else 'NO ':4}{words}", flush=True)
    return 0 if all(kept.values()) else 1

"""Is `fairlead` the best policy? Every registered policy on conversation and tool-agent workloads, from half to one and a half times saturation.

    .venv/bin/python benchmarks/default_policy.py [--conversation TRACE] [--instances 8 32] [--seeds 3] [--requests 4000] [--json OUT]

Runs the simulator with early rejection off in all policies and then on in all; prints per workload and pool size a table of attainment (share of all
that arrived with a TTFT within the SLO), and per cell what the best other policy has. A cell is won when no other has more than half a point more
attainment, and when the P90 TTFT of served requests is at most 5 % above that of the best other policy in attainment. Without a trace, conversations
are generated too. The real trace is the same for every seed but for the arrivals within equal stamps; generated ones are drawn anew.
"""

import argparse
import gc
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from fairlead.routing.registry import policy_entry, policy_names
from fairlead_simulator.simulation.experiments import Cell, simulate_cell
from fairlead_simulator.simulation.measuring import Figures, Targets
from fairlead_simulator.simulation.planning import Plan, Workload, ideal_hits, load_workload
from fairlead_simulator.simulation.pool_tables import PoolSpec
from fairlead_simulator.simulation.presets import preset
from fairlead_simulator.simulation.saturation import believed_speed, estimate_saturation
from fairlead_simulator.traces import TraceRow, read_trace
from fairlead_simulator.workloads.kinds import KINDS

OURS = "fairlead"
PRESET = preset("dualmap-910b4-qwen7b")
TIE = 0.005
SLOWER = 1.05
GOODPUT_ATTAINMENT = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One table: a workload on a pool, with one early rejection mode."""

    workload: str
    instances: int
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Means over seeds. TTFT in seconds."""

    attainment: float
    ttft_p90: float
    hit_rate: float
    rejected: float


def main() -> None:
    arguments = parse()
    rates = [float(rate) for rate in arguments.rates.split(",")]
    policies = [name for name in arguments.policies.split(",") if not policy_entry(name).needs_roles]
    rows: list[dict[str, Any]] = []
    runs = 0
    for name in arguments.workloads.split(","):
        for instances in arguments.instances:
            outcomes: dict[tuple[str, float, str], list[Figures]] = defaultdict(list)
            for seed in range(arguments.seeds):
                workload = workload_of(name, arguments, instances, seed)
                for mode in arguments.modes.split(","):
                    for rate in rates:
                        for policy in policies:
                            figures = run(workload, instances, policy, mode, rate, seed, arguments.warmup)
                            outcomes[mode, rate, policy].append(figures)
                            runs += 1
                print(f"{name}, {instances} instances, seed {seed}: {runs} runs so far", flush=True)
            for mode in arguments.modes.split(","):
                setting = Setting(workload=name, instances=instances, mode=mode)
                means = {(rate, policy): mean(found) for (m, rate, policy), found in outcomes.items() if m == mode}
                report(setting, means, rates, policies)
                rows += [row(setting, rate, policy, arguments.seeds, one) for (rate, policy), one in means.items()]
            if arguments.json is not None:
                lines = ",\n".join(json.dumps(one) for one in rows)
                arguments.json.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--conversation", type=Path, help="a trace file; generated conversations without it")
    parser.add_argument("--workloads", default="conversation,tool-agent")
    parser.add_argument("--instances", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--rates", default="0.5,0.75,1,1.25,1.5", help="multiples of the estimated saturation")
    parser.add_argument("--modes", default="Off,Load")
    parser.add_argument("--policies", default=",".join(policy_names()))
    parser.add_argument("--requests", type=int, default=4000, help="for 8 instances; twice as many for more")
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def workload_of(name: str, arguments: argparse.Namespace, instances: int, seed: int) -> Workload:
    """The requests of one seed, shorter than the preset's limit."""
    wanted = arguments.requests * (1 if instances <= 8 else 2)
    recorded = arguments.conversation if name == "conversation" else None
    rows = generated(name, seed, 2 * wanted) if recorded is None else read_trace(recorded)
    return load_workload(rows, requests=wanted, max_input=PRESET.max_input_tokens, infer_sessions=True)


def generated(name: str, seed: int, count: int) -> Iterator[TraceRow]:
    """Rows of a generated workload."""
    return islice(KINDS[name].rows(None, None, seed), count)


def run(workload: Workload, instances: int, policy: str, mode: str, rate: float, seed: int, warmup: int) -> Figures:
    """One simulation; `rate` as a multiple of the estimated saturation."""
    ideal, _ = ideal_hits(workload)
    saturation = estimate_saturation(workload, ideal, PRESET, instances, 0, 0).requests_per_second
    spec = PoolSpec(
        preset=PRESET,
        instances=instances,
        policy=policy,
        early_rejection=mode,
        prefill_tokens_per_second=believed_speed(workload, ideal, PRESET),
        slo_ttft_seconds=PRESET.slo_ttft_seconds,
        seed=seed,
    )
    cell = Cell(
        label=policy,
        spec=spec,
        plan=Plan(rate=rate * saturation, warmup=warmup, seed=seed),
        targets=Targets(ttft_seconds=PRESET.slo_ttft_seconds),
    )
    result, _ = simulate_cell(workload, ideal, cell)
    gc.collect()
    return result.figures


def mean(found: list[Figures]) -> Outcome:
    """Over seeds."""
    count = len(found)
    return Outcome(
        attainment=sum(one.attainment for one in found) / count,
        ttft_p90=sum(one.ttft_p90 or 0.0 for one in found) / count,
        hit_rate=sum(one.hit_rate for one in found) / count,
        rejected=sum(one.rejected_share for one in found) / count,
    )


def row(setting: Setting, rate: float, policy: str, seeds: int, outcome: Outcome) -> dict[str, Any]:
    """One cell for the JSON file."""
    cell = {"workload": setting.workload, "instances": setting.instances, "early_rejection": setting.mode, "rate": rate, "policy": policy}
    figures = {name: round(getattr(outcome, name), 4) for name in outcome.__dataclass_fields__}
    return {**cell, "seeds": seeds, **figures}


def report(setting: Setting, outcomes: dict[tuple[float, str], Outcome], rates: list[float], policies: list[str]) -> None:
    """The table, ours against the best other at every rate, and the verdict."""
    print(f"\n{setting.workload}, {setting.instances} instances, early rejection {setting.mode}: attainment (P90 TTFT, s)")
    print(f"{'policy':<24}" + "".join(f"{rate:>15g}x" for rate in rates) + f"{'goodput':>10}")
    for policy in policies:
        cells = "".join(f"{outcomes[rate, policy].attainment:>9.1%}{f'({outcomes[rate, policy].ttft_p90:.2f})':>8}" for rate in rates)
        print(f"{policy:<24}{cells}{goodput(outcomes, rates, policy):>9g}x")
    others = [policy for policy in policies if policy != OURS]
    if OURS not in policies or not others:
        return
    for rate in rates:
        ours = outcomes[rate, OURS]
        best = max(others, key=lambda policy: outcomes[rate, policy].attainment)
        theirs = outcomes[rate, best]
        able = [one for one in others if outcomes[rate, one].attainment >= theirs.attainment - TIE]
        fastest = min(outcomes[rate, one].ttft_p90 for one in able)
        won = ours.attainment >= theirs.attainment - TIE and ours.ttft_p90 <= SLOWER * fastest
        ratio = ours.attainment / theirs.attainment if theirs.attainment else float("inf")
        print(
            f"  {rate:g}x: {OURS} {ours.attainment:.1%} ({ours.ttft_p90:.2f} s) against {best} {theirs.attainment:.1%}, "
            f"best P90 {fastest:.2f} s: {'won' if won else 'LOST'}, {ratio:.2f} x"
        )
    reached = max(goodput(outcomes, rates, policy) for policy in others)
    print(f"  goodput {goodput(outcomes, rates, OURS):g}x against {reached:g}x", flush=True)


def goodput(outcomes: dict[tuple[float, str], Outcome], rates: list[float], policy: str) -> float:
    """The largest tested rate with an attainment of at least 90 %; 0 when there is none."""
    return max((rate for rate in rates if outcomes[rate, policy].attainment >= GOODPUT_ATTAINMENT), default=0.0)


if __name__ == "__main__":
    main()

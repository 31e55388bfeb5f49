"""The cells of the default policy's comparison: workloads x pool sizes x early rejection x rates x policies x
seeds, run and averaged.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, ideal_hits
from fairlead_simulator.experiments.cells import Cell, CellResult
from fairlead_simulator.experiments.measuring import Targets
from fairlead_simulator.experiments.saturation import believed_speed, estimate_saturation
from fairlead_simulator.simulation.pools import SimulatedPool
from reproductions.runs import GOODPUT_ATTAINMENT, mean, run, workload
from reproductions.sections import Context

OURS = "fairlead"
OTHERS = (
    "round-robin",
    "least-loaded",
    "cache-affinity",
    "dualmap",
    "ear",
    "random",
    "least-request",
    "min-ttft",
    "sticky",
    "prefix-cache-load",
    "prefix-cache-threshold",
    "lmetric",
    "dynamo",
    "cache-load-linear",
    "heimdall",
    "preble",
    "mooncake",
)
"""The other policies, in the order of the page. If several are equally good, the first counts as the best."""
PRESET = preset("dualmap-910b4-qwen7b")
WORKLOADS = ("conversation", "tool-agent")
MODES = ("Disabled", "Load")
RATES = (0.5, 0.75, 1.0, 1.25, 1.5)
TIE = 0.005
SLOWER = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A workload, a pool size and a mode of early rejection, in which all policies are compared over all rates."""

    workload: str
    instances: int
    mode: str

    def __str__(self) -> str:
        rejection = "no early rejection" if self.mode == "Disabled" else f"early rejection by {self.mode.lower()}"
        return f"{self.workload}, {self.instances} instances, {rejection}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The figures of a policy as means over seeds. TTFT is in seconds, shares are 0-1."""

    attainment: float
    ttft_p90: float
    hit_rate: float
    rejected: float


Outcomes = dict[tuple[float, str], Outcome]
"""Outcomes by rate (a multiple of the estimated saturation) and policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The comparison of our policy with the best others at a rate.

    The best others are the one with the highest attainment and, among the policies that tie with it, the one with the
    lowest P90 TTFT.
    """

    ours: Outcome
    best: str
    theirs: Outcome
    best_p90: float

    @property
    def most_in_time(self) -> bool:
        """Whether no other policy's attainment is more than half a percentage point higher."""
        return self.ours.attainment >= self.theirs.attainment - TIE

    @property
    def leads(self) -> bool:
        """Whether our attainment is more than half a percentage point above the attainment of every other policy."""
        return self.ours.attainment > self.theirs.attainment + TIE

    @property
    def fast_enough(self) -> bool:
        """Whether our P90 TTFT of served requests is at most 5 % above that of the best other."""
        return self.ours.ttft_p90 <= SLOWER * self.best_p90


def policies() -> tuple[str, ...]:
    """Return every policy that needs no roles: ours first, policies that are not in `OTHERS` last."""
    able = [name for name in BUILT_IN.names if not BUILT_IN.entry(name).needs_roles]
    return (OURS, *OTHERS, *(name for name in able if name not in (OURS, *OTHERS)))


def rates_of(context: Context) -> Sequence[float]:
    """Return the rates, as multiples of the saturation."""
    return (0.5, 1.25) if context.quick else RATES


def measure(context: Context) -> dict[Setting, Outcomes]:
    """Run everything and return the outcomes: 40 cells for each policy and seed."""
    found: dict[Setting, Outcomes] = {}
    for kind in WORKLOADS:
        for instances in (2, 3) if context.quick else (8, 32):
            results: dict[tuple[str, float, str], list[CellResult]] = defaultdict(list)
            for seed in range(context.seeds):
                loaded = _loaded(context, kind, instances, seed)
                keys, cells = zip(*_cells(context, loaded, instances, seed), strict=True)
                name = f"default policy, {kind}, {instances} instances"
                for key, result in zip(keys, run(context, name, loaded, cells), strict=True):
                    results[key].append(result)
            for mode in MODES:
                outcomes = {(rate, policy): _outcome(same) for (of, rate, policy), same in results.items() if of == mode}
                found[Setting(workload=kind, instances=instances, mode=mode)] = outcomes
    return found


def verdict(outcomes: Outcomes, rate: float) -> Verdict:
    """Return the verdict on our policy against all others at this rate."""
    others = {policy: outcome for (at, policy), outcome in outcomes.items() if at == rate and policy != OURS}
    best = max(others, key=lambda policy: others[policy].attainment)
    able = [outcome.ttft_p90 for outcome in others.values() if outcome.attainment >= others[best].attainment - TIE]
    return Verdict(ours=outcomes[rate, OURS], best=best, theirs=others[best], best_p90=min(able))


def goodput(outcomes: Outcomes, policy: str) -> float:
    """Return the largest tested rate with an attainment of at least 90 %; 0 if there is none."""
    return max((rate for (rate, one), outcome in outcomes.items() if one == policy and outcome.attainment >= GOODPUT_ATTAINMENT), default=0)


def requests_of(context: Context, instances: int) -> int:
    """Return the number of requests. It is doubled for the larger pool, because its queues take longer to grow."""
    if context.quick:
        return 60
    return 4000 if instances <= 8 else 8000


def _loaded(context: Context, kind: str, instances: int, seed: int) -> Workload:
    recorded = context.conversation if kind == "conversation" else None
    return workload(kind, requests=requests_of(context, instances), max_input=PRESET.max_input_tokens, recorded=recorded, seed=seed)


def _cells(context: Context, loaded: Workload, instances: int, seed: int) -> Iterator[tuple[tuple[str, float, str], Cell]]:
    ideal, _ = ideal_hits(loaded)
    saturation = estimate_saturation(loaded, ideal, PRESET, instances, 0, 0).requests_per_second
    speed = believed_speed(loaded, ideal, PRESET)
    for mode in MODES:
        for rate in rates_of(context):
            for policy in policies():
                spec = SimulatedPool(
                    preset=PRESET,
                    instances=instances,
                    policy=policy,
                    early_rejection=mode,
                    prefill_tokens_per_second=speed,
                    slo_ttft_seconds=PRESET.slo_ttft_seconds,
                    seed=seed,
                )
                plan = ArrivalPlan(rate=rate * saturation, warmup=10 if context.quick else 500, seed=seed)
                yield (mode, rate, policy), Cell(label=policy, spec=spec, plan=plan, targets=Targets(ttft_seconds=PRESET.slo_ttft_seconds))


def _outcome(same: Sequence[CellResult]) -> Outcome:
    return Outcome(
        attainment=mean(same, lambda one: one.attainment),
        ttft_p90=mean(same, lambda one: one.ttft_p90),
        hit_rate=mean(same, lambda one: one.hit_rate),
        rejected=mean(same, lambda one: one.rejected_share),
    )

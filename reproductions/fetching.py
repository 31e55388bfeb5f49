"""The benefit of fetching for agents: sessions whose KV blocks are fetched after a move, against the same sessions
whose prompts are computed again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, ideal_hits
from fairlead_simulator.experiments.cells import Cell, CellResult
from fairlead_simulator.experiments.measuring import Targets
from fairlead_simulator.experiments.saturation import believed_speed, estimate_saturation
from fairlead_simulator.simulation.pools import SimulatedPool
from reproductions.runs import mean, percent, run, table, workload
from reproductions.sections import Context, Section

PRESET = preset("mooncake-a800-llama70b")
INSTANCES = 8
REQUESTS, WARMUP = 1500, 150
TTFT, TPOT = 30.0, 0.1
POLICIES = ("fairlead", "ear", "mooncake")
KIND, GENERATED = "agents-long", "coding-agents"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A policy in a pool, and whether its engines fetch KV blocks from each other."""

    policy: str
    fetching: bool


Runs = Mapping[Variant, list[CellResult]]


def write(context: Context) -> str:
    """Run the variants and return the section's text."""
    policies = POLICIES[:1] if context.quick else (context.policies or POLICIES)
    variants = [Variant(policy=policy, fetching=fetching) for policy in policies for fetching in (False, True)]
    requests, warmup = (60, 20) if context.quick else (REQUESTS, WARMUP)
    loaded = workload(GENERATED, requests=requests, max_input=PRESET.max_input_tokens, recorded=context.traces.get(KIND))
    ideal, _ = ideal_hits(loaded)
    rate = estimate_saturation(loaded, ideal, PRESET, INSTANCES, 0, 0).requests_per_second
    seeds = range(context.first_seed, context.first_seed + context.seeds)
    speed = believed_speed(loaded, ideal, PRESET)
    cells = [_cell(one, ArrivalPlan(rate=rate, warmup=warmup, seed=seed), speed) for one in variants for seed in seeds]
    found = run(context, "fetching", loaded, cells)
    runs = {one: found[number * len(seeds) : (number + 1) * len(seeds)] for number, one in enumerate(variants)}
    return "\n\n".join((_setting(context, rate), _table(runs), _verdict(runs)))


def _cell(variant: Variant, plan: ArrivalPlan, speed: float) -> Cell:
    spec = SimulatedPool(
        preset=PRESET,
        instances=INSTANCES,
        policy=variant.policy,
        fetching=variant.fetching,
        prefill_tokens_per_second=speed,
        slo_ttft_seconds=TTFT,
        slo_tpot_seconds=TPOT,
        seed=plan.seed,
    )
    label = f"{variant.policy}, {'fetching' if variant.fetching else 'recomputing'}"
    return Cell(label=label, spec=spec, plan=plan, targets=Targets(ttft_seconds=TTFT, tpot_seconds=TPOT))


def _setting(context: Context, rate: float) -> str:
    trace = f"Recorded coding agents (`--trace {KIND}=FILE`)" if KIND in context.traces else "Generated coding agents"
    link = PRESET.transfer
    return f"""A question of our own. A session that moves takes its KV cache along where a pool declares `engine.kvTransfer`, and is computed again
elsewhere. What is that worth to agents, whose contexts are long and whose turns are short?

**What was run.** {trace}, {REQUESTS:,} requests of which the first {WARMUP} are not measured, at the estimated saturation
({rate:.2f} requests per second), {INSTANCES} instances of `{PRESET.name}`, targets {TTFT:g} s and {TPOT:g} s a token, seeds: {context.seeds}.
Engines that fetch have {link.bytes_per_second / 1e9:g} GB/s per source, shared by its transfers, {1e3 * link.latency_seconds:g} ms of latency, and
{link.bytes_per_token:,} bytes a token.
Not modelled is that vLLM's engines compute the new part of a prompt where the old one is, and one token more at each end."""


def _table(runs: Runs) -> str:
    heading = ("policy", "in time", "first tokens in time", "TTFT P50", "TTFT P90", "TTFT P99", "hits", "refused")
    return table(
        heading, [(f"`{one.policy}`, {'fetching' if one.fetching else 'recomputing'}", *_figures(found)) for one, found in runs.items()]
    )


def _figures(found: list[CellResult]) -> tuple[str, ...]:
    shares = (
        mean(found, lambda one: one.attainment),
        mean(found, lambda one: one.ttft_attainment),
        mean(found, lambda one: one.hit_rate),
        mean(found, lambda one: one.rejected_share),
    )
    seconds = (mean(found, lambda one: one.ttft_p50), mean(found, lambda one: one.ttft_p90), mean(found, lambda one: one.ttft_p99))
    good, first, hits, refused = map(percent, shares)
    return (good, first, *(f"{one:.2f} s" for one in seconds), hits, refused)


def _verdict(runs: Runs) -> str:
    lines: list[str] = []
    for policy in dict.fromkeys(one.policy for one in runs):
        without, fetching = (runs[Variant(policy=policy, fetching=one)] for one in (False, True))
        gain = mean(fetching, lambda one: one.attainment) - mean(without, lambda one: one.attainment)
        p90 = mean(without, lambda one: one.ttft_p90), mean(fetching, lambda one: one.ttft_p90)
        lines.append(
            f"Fetching changes what `{policy}` serves in time by {100 * gain:+.1f} points, its TTFT P90 from {p90[0]:.2f} to {p90[1]:.2f} s."
        )
    return " ".join(lines)


SECTION = Section(name="fetching", title="Agents whose caches move along", write=write)

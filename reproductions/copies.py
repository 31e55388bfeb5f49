"""The benefit of copies of hot prefixes for a pool that grows: the same traffic with and without copies."""

from bisect import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, ideal_hits, load_workload
from fairlead_simulator.experiments.cells import Cell, CellResult
from fairlead_simulator.experiments.measuring import Targets
from fairlead_simulator.experiments.saturation import believed_speed, estimate_saturation
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.timeline import ScaleTo
from fairlead_simulator.traces.rows import BLOCK_TOKENS, TraceRow
from reproductions.runs import mean, percent, run, table
from reproductions.sections import Context, Section

PRESET = preset("vllm-h100-8b")
FIRST, LATER = 4, 8
GROUPS, PREFIX_BLOCKS, QUESTION_BLOCKS, OUTPUT = 60, 16, 3, 150
REQUESTS, WARMUP, LOAD = 3000, 150, 0.45
TTFT, TPOT = 2.0, 0.1
POLICIES = ("fairlead", "mooncake", "min-ttft", "preble", "lmetric")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A policy in a pool, and whether the pool's hot prefixes are copied in advance."""

    policy: str
    copying: bool


Runs = Mapping[Variant, list[CellResult]]


def write(context: Context) -> str:
    """Run the variants and return the section's text."""
    policies = POLICIES[:1] if context.quick else (context.policies or POLICIES)
    variants = [Variant(policy=policy, copying=copying) for policy in policies for copying in (False, True)]
    requests, warmup = (60, 20) if context.quick else (REQUESTS, WARMUP)
    loaded = _workload(requests)
    ideal, _ = ideal_hits(loaded)
    rate = LOAD * estimate_saturation(loaded, ideal, PRESET, LATER, 0, 0).requests_per_second
    seeds = range(context.first_seed, context.first_seed + context.seeds)
    speed = believed_speed(loaded, ideal, PRESET)
    plans = [ArrivalPlan(rate=rate, warmup=warmup, seed=seed) for seed in seeds]
    cells = [_cell(one, plan, speed, requests / rate / 3) for one in variants for plan in plans]
    found = run(context, "copies", loaded, cells)
    runs = {one: found[number * len(seeds) : (number + 1) * len(seeds)] for number, one in enumerate(variants)}
    return "\n\n".join((_setting(context, rate), _table(runs)))


def _workload(requests: int) -> Workload:
    """Return sessions of one question each. Each prompt begins with one of the prefixes, which are chosen by Zipf's
    law.
    """
    random, upto, own = Random(0), list(accumulate(1 / (group + 1) for group in range(GROUPS))), GROUPS * PREFIX_BLOCKS

    def rows() -> Iterator[TraceRow]:
        seconds, first = 0.0, own
        for _ in range(requests):
            group = bisect(upto, random.random() * upto[-1])
            more = random.randint(1, QUESTION_BLOCKS)
            ids = (*range(group * PREFIX_BLOCKS, (group + 1) * PREFIX_BLOCKS), *range(first, first + more))
            first += more
            yield TraceRow(timestamp_ms=round(1e3 * seconds), input_length=len(ids) * BLOCK_TOKENS, output_length=OUTPUT, hash_ids=ids)
            seconds += random.expovariate(1.0)

    return load_workload(rows(), requests=requests, max_input=None, infer_sessions=True)


def _cell(variant: Variant, plan: ArrivalPlan, speed: float, grows_at: float) -> Cell:
    spec = SimulatedPool(
        preset=PRESET,
        instances=FIRST,
        policy=variant.policy,
        fetching=True,
        copying=variant.copying,
        prefill_tokens_per_second=speed,
        slo_ttft_seconds=TTFT,
        slo_tpot_seconds=TPOT,
        seed=plan.seed,
    )
    label = f"{variant.policy}, {'copying' if variant.copying else 'not copying'}"
    grows = (ScaleTo(at=grows_at, instances=LATER, startup_seconds=1.0),)
    return Cell(label=label, spec=spec, plan=plan, timeline=grows, targets=Targets(ttft_seconds=TTFT, tpot_seconds=TPOT))


def _setting(context: Context, rate: float) -> str:
    link = PRESET.transfer
    return f"""A question of our own. With `engine.kvTransfer.copies: Pays` a pool copies prefixes that many sessions share to instances that lack
them, ahead of the next such session ([gateway.md](gateway.md#sessions-that-move-take-their-kv-cache-along)). What is that worth where it should be worth
most, when instances with empty caches join?

**What was run.** {REQUESTS:,} sessions of one question of {BLOCK_TOKENS} to {QUESTION_BLOCKS * BLOCK_TOKENS:,} tokens behind one of {GROUPS} prefixes of
{PREFIX_BLOCKS * BLOCK_TOKENS:,}, drawn by Zipf's law, at {rate:.1f} requests per second ({LOAD:.0%} of the estimated saturation of {LATER} instances).
{FIRST} instances of `{PRESET.name}`, from the first third on {LATER}; targets {TTFT:g} s and {TPOT:g} s a token, seeds: {context.seeds}. Engines hand on blocks
at {link.bytes_per_second / 1e9:g} GB/s per source, so `fairlead` and `mooncake` also fetch with a request, where that is faster than computing; the
others only get what is copied."""


def _table(runs: Runs) -> str:
    heading = ("policy", "in time", "TTFT P50", "TTFT P90", "TTFT P99", "hits")
    return table(
        heading, [(f"`{one.policy}`, {'copying' if one.copying else 'not copying'}", *_figures(found)) for one, found in runs.items()]
    )


def _figures(found: list[CellResult]) -> tuple[str, ...]:
    good, hits = mean(found, lambda one: one.attainment), mean(found, lambda one: one.hit_rate)
    times = (lambda one: one.ttft_p50), (lambda one: one.ttft_p90), (lambda one: one.ttft_p99)
    return (percent(good), *(f"{mean(found, time):.3f} s" for time in times), percent(hits))


SECTION = Section(name="copies", title="Hot prefixes copied to instances that join", write=write)

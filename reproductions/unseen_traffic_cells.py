"""The runs of the section on unseen traffic: workloads of kinds that were not used to develop the default policy, each
with the policies that suit it best.

Traces of other projects are not part of the repository: `--trace KIND=FILE` names a file. Workloads without a trace are
generated.
"""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.errors import SimulatorError
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, ideal_hits, load_workload
from fairlead_simulator.experiments.cells import Cell, simulate_cell
from fairlead_simulator.experiments.choices import parse_policies
from fairlead_simulator.experiments.measuring import Targets, in_time
from fairlead_simulator.experiments.saturation import believed_speed, estimate_saturation
from fairlead_simulator.simulation.jobs import Job, Phase
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.traces.rows import BLOCK_TOKENS, TraceRow, read_trace
from fairlead_simulator.workloads.kinds import KINDS
from reproductions.sections import Context

OURS = "fairlead"
RIVALS = ("ear", "preble", "min-ttft", "lmetric", "dualmap", "cache-affinity", "mooncake", "heimdall", "least-loaded")
RATES = (0.5, 0.75, 1.0, 1.25)
REQUESTS = 3000
WARMUP_SHARE = 0.1
QUICK_REQUESTS = 60
BURST_REQUESTS = 200
"""Mean number of requests in a period of a bursty workload."""
BURST_SHARE, BURST_PART = 0.5, 1 / 6
"""The share of each period's requests that arrive in its first part, and the length of this part as a share of the
period.

So requests first arrive three times as fast as on average, and then 0.6 times as fast.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A workload on a pool. `kind` names a trace or a generator; times are in seconds."""

    kind: str
    preset: str
    ttft: float
    tpot: float
    instances: int = 8
    bursts: bool = False

    def __str__(self) -> str:
        bursts = ", bursts" if self.bursts else ""
        return f"{self.kind}{bursts}, {self.preset}, {self.ttft:g} s / {1e3 * self.tpot:g} ms, {self.instances} instances"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenCell:
    """A run."""

    setting: Setting
    rate: float
    """The rate as a multiple of the estimated saturation."""
    policy: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenRow:
    """The figures of a run: shares of all measured requests (or sessions), seconds, and tokens per second."""

    goodput: float
    first_tokens: float
    refused: float
    ttft_p50: float
    ttft_p90: float
    ttft_p99: float
    tpot_p90: float
    hits: float
    output_tokens_per_second: float
    refused_sessions: float
    """Share of the sessions with several turns in which at least one turn was refused."""
    bad_sessions: float
    """Share of the sessions with several turns in which at least one turn missed a target."""


Rows = dict[UnseenCell, UnseenRow]

CHAT = Setting(kind="chat", preset="vllm-h100-8b", ttft=2.0, tpot=0.05)
SETTINGS = (
    CHAT,
    replace(CHAT, bursts=True),
    replace(CHAT, kind="agents-short"),
    Setting(kind="agents-long", preset="mooncake-a800-llama70b", ttft=30.0, tpot=0.1),
    Setting(kind="agents-long", preset="vllm-h100-8b", ttft=5.0, tpot=0.05),
    replace(CHAT, kind="agents-short", bursts=True),
    Setting(kind="synthetic", preset="dualmap-910b4-qwen7b", ttft=5.0, tpot=0.1),
    replace(CHAT, kind="synthetic"),
    replace(CHAT, kind="prefix-groups"),
    Setting(kind="conversation", preset="dualmap-910b4-qwen7b", ttft=5.0, tpot=0.1),
    Setting(kind="conversation", preset="dualmap-910b4-qwen7b", ttft=5.0, tpot=0.1, bursts=True),
    Setting(kind="tool-agent", preset="dualmap-910b4-qwen7b", ttft=5.0, tpot=0.1),
)
GENERATED = {"chat": "chat", "agents-short": "coding-agents-short", "agents-long": "coding-agents", "synthetic": "long-documents"}
"""The generator that replaces each kind of trace. Other kinds are names of generators."""


def settings_of(context: Context) -> list[Setting]:
    """Return the requested settings. Raises SimulatorError if there are none, or for a trace of an unknown kind."""
    kinds = {setting.kind for setting in SETTINGS}
    for kind in context.traces:
        if kind not in kinds:
            raise SimulatorError(f"--trace {kind}=…: there is no such workload; name one of {', '.join(sorted(kinds))}")
    found = [setting for setting in SETTINGS if all(text in str(setting) for text in context.only)]
    if not found:
        raise SimulatorError(f"no setting has all of {', '.join(map(repr, context.only))} in its name")
    return found


def cells_of(context: Context, settings: Sequence[Setting]) -> list[UnseenCell]:
    """Return all runs, workload by workload."""
    policies = context.policies or (OURS, *(RIVALS[:2] if context.quick else RIVALS))
    rates = context.rates or ((0.75,) if context.quick else RATES)
    return [
        UnseenCell(setting=setting, rate=rate, policy=policy, seed=seed)
        for setting in settings
        for seed in range(context.first_seed, context.first_seed + context.seeds)
        for rate in rates
        for policy in policies
    ]


def measure(context: Context, cells: Sequence[UnseenCell]) -> Rows:
    """Return the figures of all cells. Cells whose rows are in the context's file are not run again."""
    kept = _read(context.rows) if context.rows is not None and context.rows.exists() else {}
    found: Rows = {}
    for cell in cells:
        row = kept.get(cell)
        if row is None:
            row = run_cell(cell, context)
            if context.rows is not None:
                with context.rows.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(cell) | asdict(row)) + "\n")
        found[cell] = row
        context.say(
            f"{len(found)}/{len(cells)}  {cell.setting} at {cell.rate:g}x, {cell.policy}, seed {cell.seed}: good {row.goodput:.1%}, "
            f"first tokens {row.first_tokens:.1%}, refused {row.refused:.1%}, TTFT {row.ttft_p50:.2f}/{row.ttft_p90:.2f}/{row.ttft_p99:.2f} s, "
            f"TPOT {1e3 * row.tpot_p90:.0f} ms, hits {row.hits:.1%}, {row.output_tokens_per_second:.0f} tokens/s, "
            f"sessions refused {row.refused_sessions:.1%}, bad {row.bad_sessions:.1%}"
        )
    return found


def _read(path: Path) -> Rows:
    """Return the rows of a file. Raises SimulatorError for a line that is not a row, such as the last line of a killed
    run.
    """
    found: Rows = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row: dict[str, Any] = json.loads(line)
            cell = UnseenCell(setting=Setting(**row["setting"]), rate=row["rate"], policy=row["policy"], seed=row["seed"])
            found[cell] = UnseenRow(**{one.name: row[one.name] for one in fields(UnseenRow)})
        except (ValueError, KeyError, TypeError) as error:
            raise SimulatorError(f"{path}, line {number}: not a row of this section; take the line out") from error
    return found


def run_cell(cell: UnseenCell, context: Context) -> UnseenRow:
    """Simulate a cell and return its figures."""
    setting = cell.setting
    engine = preset(setting.preset)
    workload, ideal = _loaded(setting, context.traces.get(setting.kind), cell.seed, QUICK_REQUESTS if context.quick else REQUESTS)
    saturation = estimate_saturation(workload, ideal, engine, setting.instances, 0, 0).requests_per_second
    (policy,) = parse_policies(cell.policy)
    spec = SimulatedPool(
        preset=engine,
        instances=setting.instances,
        policy=policy.name,
        parameters=policy.parameters,
        prefill_tokens_per_second=believed_speed(workload, ideal, engine),
        slo_ttft_seconds=setting.ttft,
        slo_tpot_seconds=setting.tpot,
        seed=cell.seed,
    )
    plan = ArrivalPlan(rate=cell.rate * saturation, warmup=int(WARMUP_SHARE * len(workload.rows)), seed=cell.seed)
    targets = Targets(ttft_seconds=setting.ttft, tpot_seconds=setting.tpot)
    kept, result = simulate_cell(workload, ideal, Cell(label=cell.policy, spec=spec, plan=plan, targets=targets))
    figures = kept.figures
    measured = [job for job in result.jobs if job.index >= plan.warmup]
    return UnseenRow(
        goodput=figures.attainment,
        first_tokens=figures.ttft_attainment,
        refused=figures.rejected_share,
        ttft_p50=figures.ttft_p50 or 0.0,
        ttft_p90=figures.ttft_p90 or 0.0,
        ttft_p99=figures.ttft_p99 or 0.0,
        tpot_p90=figures.tpot_p90 or 0.0,
        hits=figures.hit_rate,
        output_tokens_per_second=figures.output_tokens_per_second,
        refused_sessions=_of_sessions(measured, lambda job: job.phase is Phase.REFUSED),
        bad_sessions=_of_sessions(measured, lambda job: job.phase is not Phase.FINISHED or not in_time(job, targets)),
    )


def _of_sessions(jobs: Sequence[Job], has: Callable[[Job], bool]) -> float:
    """Return the share of the sessions with several turns in which `has` is true for at least one turn; 0 if there are
    none.
    """
    turns = Counter(job.session for job in jobs if job.session is not None)
    several = {session for session, count in turns.items() if count > 1}
    found = {job.session for job in jobs if job.session in several and has(job)}
    return len(found) / len(several) if several else 0.0


@lru_cache(maxsize=2)
def _loaded(setting: Setting, trace: Path | None, seed: int, requests: int) -> tuple[Workload, tuple[int, ...]]:
    """Return the workload of a setting, and the tokens of each request that an endless cache would save."""
    engine = preset(setting.preset)
    rows = _rows(setting.kind, trace, seed)
    if setting.bursts:
        rows = bursty(islice(rows, 2 * requests))
    made = load_workload(islice(rows, 2 * requests), requests=requests, max_input=engine.max_input_tokens, infer_sessions=True)
    return made, tuple(ideal_hits(made)[0])


def _rows(kind: str, trace: Path | None, seed: int) -> Iterator[TraceRow]:
    if trace is None:
        return KINDS[GENERATED.get(kind, kind)].rows(None, None, seed)
    return azure_rows(trace) if trace.suffix == ".csv" else iter(read_trace(trace))


def azure_rows(path: Path) -> Iterator[TraceRow]:
    """Yield the rows of Azure's public traces of LLM inference, whose lines have time, prompt tokens and output tokens.

    No two prompts share a block.
    """
    first: datetime | None = None
    blocks = 0
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            at = datetime.fromisoformat(line["TIMESTAMP"][:26])
            first = first or at
            length = int(line["ContextTokens"])
            count = -(-length // BLOCK_TOKENS)
            yield TraceRow(
                timestamp_ms=round((at - first).total_seconds() * 1e3),
                input_length=length,
                output_length=max(1, int(line["GeneratedTokens"])),
                hash_ids=tuple(range(blocks, blocks + count)),
            )
            blocks += count


def bursty(rows: Iterable[TraceRow]) -> Iterator[TraceRow]:
    """Yield the same requests in the same order and at the same mean rate, but in bursts."""
    kept = list(rows)
    span = kept[-1].timestamp_ms - kept[0].timestamp_ms
    period = BURST_REQUESTS * span / max(1, len(kept) - 1)
    for row in kept:
        number, into = divmod(row.timestamp_ms, period) if period else (0.0, 0.0)
        share = into / period if period else 0.0
        place = share / BURST_SHARE * BURST_PART if share < BURST_SHARE else 1 - (1 - share) / (1 - BURST_SHARE) * (1 - BURST_PART)
        yield replace(row, timestamp_ms=round((number + place) * period))

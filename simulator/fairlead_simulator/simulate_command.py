"""The command `fairlead simulate`. It runs a trace through the router's own policies on model engines, and outputs
figures as a table, JSON and plots.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click
import orjson
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fairlead.errors import FairleadError
from fairlead.instances import Role
from fairlead_process.option_types import InputUnusable, NumberOption, WholeOption, output_option
from fairlead_process.tables import print_whole
from fairlead_simulator.engine_fit.engine_files import read_engine
from fairlead_simulator.engine_model.block_caches import Eviction
from fairlead_simulator.engine_model.presets import PRESETS, EnginePreset, preset
from fairlead_simulator.engine_model.settings import Mode
from fairlead_simulator.errors import OutputUnwritable, SimulatorError
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Spread, Workload, check_closed_loop, ideal_hits, load_workload
from fairlead_simulator.experiments.cells import Cell, CellResult, check_fits, run_cells
from fairlead_simulator.experiments.choices import (
    HIGHEST_RATE,
    early_rejection_modes,
    notes_of,
    parse_belief,
    parse_policies,
    parse_rates,
    parse_speeds,
    parse_weights,
    read_scaling,
)
from fairlead_simulator.experiments.feasibility import check_duration, check_failures, check_outputs, check_policies
from fairlead_simulator.experiments.measuring import Targets
from fairlead_simulator.experiments.result_tables import result_tables, scaling_lines
from fairlead_simulator.experiments.saturation import Saturation, believed_speed, estimate_saturation
from fairlead_simulator.experiments.timeline_files import LARGEST_POOL, read_timeline
from fairlead_simulator.simulation.kv_events import KvEventQuality
from fairlead_simulator.simulation.observation_quality import ObservationQuality
from fairlead_simulator.simulation.pools import Clients, SimulatedPool
from fairlead_simulator.simulation.timeline import PartRouters, TimelineEvent
from fairlead_simulator.traces.rows import read_trace

_SPREADS = {"random": "spread at random by each seed", "even": "spread evenly", "none": "kept together"}
_COUNT = WholeOption(1, 1_000_000_000)
_RATE = NumberOption(most=HIGHEST_RATE, positive=True)
_INSTANCES = WholeOption(1, LARGEST_POOL)
_SECONDS = NumberOption(most=1e6, positive=True)
_WIDTH = 150
"""Width of the tables in characters if the output is not a terminal."""
_DEFAULT_RATES = "0.5x,0.75x,1x,1.25x,1.5x"


@click.command()
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    required=True,
    help="A trace in Mooncake's JSONL format, also .gz; see fairlead traces convert.",
)
@click.option("--instances", type=_INSTANCES, default=8, show_default=True, help="Instances that prefill and decode.")
@click.option("--prefill-instances", type=_INSTANCES, help="Instances that only prefill; needs --decode-instances.")
@click.option("--decode-instances", type=_INSTANCES, help="Instances that only decode; needs --prefill-instances.")
@click.option("--speeds", help="Speeds of the instances as multiples of the preset's, in turn, such as 1,1,0.5; default: all 1.")
@click.option("--weights", help="Weights of the instances on the hash ring, in turn, such as 1,1,0.5; default: all 1.")
@click.option("--rates", default=_DEFAULT_RATES, show_default=True, help="Requests per second, or multiples of the estimated saturation.")
@click.option(
    "--policies",
    default="round-robin,dualmap,ear,fairlead",
    show_default=True,
    help="Names, with parameters as name:key=value;key=value; endpoint-picker:config=FILE runs an EndpointPickerConfig.",
)
@click.option(
    "--early-rejection",
    default="disabled",
    show_default=True,
    help="disabled, load, predicted or after-prefill; separate several by commas.",
)
@click.option("--requests", type=_COUNT, help="Only the first N requests.")
@click.option("--warmup", type=WholeOption(0, 1_000_000_000), default=0, show_default=True, help="The first N requests are not measured.")
@click.option("--warmup-rate", type=_RATE, help="Requests per second during the warm-up; default: the rate of the measured requests.")
@click.option("--seeds", type=WholeOption(1, 1000), default=1, show_default=True, help="Runs per combination, with seeds 0, 1, ...")
@click.option("--slo-ttft", type=_SECONDS, help="Seconds; default: the preset's.")
@click.option("--slo-tpot", type=_SECONDS, help="Target for the TPOT, in seconds per output token; default: only the TTFT counts.")
@click.option(
    "--preset",
    "preset_name",
    default="dualmap-910b4-qwen7b",
    show_default=True,
    help="Engine and hardware, estimated from data sheets: " + ", ".join(PRESETS),
)
@click.option(
    "--engine",
    type=click.Path(path_type=Path),
    help="A file written by fairlead engines fit: an engine fitted to a real engine, in place of a preset.",
)
@click.option("--mode", type=click.Choice(get_args(Mode)), help="The engines' scheduler; default: the preset's.")
@click.option(
    "--eviction",
    type=click.Choice(get_args(Eviction)),
    help="Which blocks a prefix cache in host memory evicts first; default: the preset's rule.",
)
@click.option(
    "--host-cache",
    type=WholeOption(1, 10**12),
    help="Tokens of a cache in each engine's host memory, which extends its cache on the GPU; routers know it only with --kv-events.",
)
@click.option(
    "--host-load",
    type=NumberOption(most=1e9, positive=True),
    help="Tokens per second that an engine loads from this host memory; needed with --host-cache.",
)
@click.option(
    "--max-input", type=WholeOption(0, 1_000_000_000), help="Drop rows this long or longer; default: the preset's limit; 0 keeps all."
)
@click.option(
    "--spread",
    type=click.Choice(get_args(Spread)),
    default="random",
    show_default=True,
    help="How rows with equal timestamps are spread over the time until the next timestamp.",
)
@click.option(
    "--sessions",
    type=click.Choice(["inferred", "none"]),
    default="inferred",
    show_default=True,
    help="Sessions of requests that name none: inferred ones, or no session.",
)
@click.option("--closed-loop", is_flag=True, help="A session's next turn starts `delay` ms after its previous turn has ended.")
@click.option(
    "--prefills-in-flight", type=WholeOption(0, 100_000), default=1, show_default=True, help="Late binding window; 0 = no queues."
)
@click.option(
    "--fetch/--no-fetch",
    default=False,
    show_default=True,
    help="Engines fetch cached prefixes from each other, as in a pool with spec.engine.kvTransfer.",
)
@click.option(
    "--believed-speed",
    default="1x",
    show_default=True,
    help="Prefill speed that routers assume: relative to the true speed, as 0.25x, or in tokens/s.",
)
@click.option(
    "--streamed",
    type=NumberOption(most=1),
    default=1.0,
    help="Share of requests that are streamed; routers see no first token of the other requests.",
)
@click.option(
    "--token-noise",
    type=NumberOption(most=2),
    default=0.0,
    help="Error of the prompt lengths that routers estimate: sigma of a log-normal factor.",
)
@click.option("--delay", type=NumberOption(most=3600), default=0.0, help="Seconds by which events and metrics reach routers late.")
@click.option("--kv-events", is_flag=True, help="Engines publish KV events, and routers use them.")
@click.option("--kv-event-delay", type=NumberOption(most=3600), default=0.0, help="Seconds by which KV events reach routers late.")
@click.option("--kv-event-loss", type=NumberOption(most=1), default=0.0, help="Share of batches of KV events that are lost, 0 to 1.")
@click.option(
    "--no-kv-event-replay",
    is_flag=True,
    help="Engines cannot replay lost batches; a router that misses one clears its index of the engine.",
)
@click.option(
    "--routers", type=WholeOption(1, 64), default=1, show_default=True, help="Routers of the pool; requests are spread over them."
)
@click.option(
    "--clients", type=click.Choice(get_args(Clients)), default="in-turn", show_default=True, help="How requests are spread over routers."
)
@click.option(
    "--asking-delay",
    type=NumberOption(most=60),
    help="One router decides for all routers; seconds that a message takes between two routers.",
)
@click.option(
    "--told-delay",
    type=NumberOption(most=60),
    help="Every router decides alone; seconds until a router's load reaches the other routers.",
)
@click.option(
    "--timeline", type=click.Path(path_type=Path), help="JSON file of scaling, failures and schedule changes; see docs/simulator.md."
)
@click.option(
    "--scaling",
    type=click.Path(path_type=Path),
    help="JSON file with a pool's sections scaling and ratio: the simulated pool scales itself; see docs/simulator.md.",
)
@click.option("--jobs", type=WholeOption(1, 256), default=1, show_default=True, help="Processes.")
@output_option
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write a row per run here.")
@click.option("--plots", type=click.Path(path_type=Path, file_okay=False), help="Write plots (PNG and SVG) into this folder.")
def simulate(**options: Any) -> None:
    """Compare policies on a trace: attainment, latencies, hit rates and balance, from the router's own code on model
    engines."""
    try:
        _simulate(options)
    except OutputUnwritable as error:
        raise click.ClickException(str(error)) from None
    except (SimulatorError, FairleadError) as error:
        raise InputUnusable(str(error)) from None


def _simulate(options: dict[str, Any]) -> None:
    console, err = Console(), Console(stderr=True)
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    spec = _pool_spec(options)
    policies = parse_policies(options["policies"])
    modes = early_rejection_modes(options["early_rejection"])
    timeline = () if options["timeline"] is None else read_timeline(options["timeline"])
    scaling = None if options["scaling"] is None else read_scaling(options["scaling"], split=not spec.instances)
    if scaling is not None and spec.routers > 1:
        raise click.UsageError("--scaling needs one router; leave --routers out")
    _check_routers(spec, timeline)
    check_policies(policies, spec, timeline)
    if scaling is None:  # else nobody knows yet which instances there will be
        check_failures(spec, timeline)
    check_outputs(options["json_path"], options["plots"])
    workload = _workload(options, spec)
    check_fits(workload, spec)
    if options["closed_loop"]:
        check_closed_loop(workload)
    ideal, cache = ideal_hits(workload)
    saturation = estimate_saturation(
        workload, ideal, spec.preset, *(spec.capacity(role) for role in (Role.BOTH, Role.PREFILL, Role.DECODE))
    )
    true_speed = believed_speed(workload, ideal, spec.preset)
    spec = replace(spec, prefill_tokens_per_second=parse_belief(options["believed_speed"], true_speed))
    rates = parse_rates(options["rates"], saturation.requests_per_second)
    check_duration(len(workload.rows), rates, options["warmup"], options["warmup_rate"])
    targets = Targets(ttft_seconds=spec.slo_ttft_seconds, tpot_seconds=options["slo_tpot"])
    quality = ObservationQuality(
        token_noise=options["token_noise"],
        delay_seconds=options["delay"],
        streamed_share=options["streamed"],
        kv_events=_kv_events(options, spec),
    )
    cells = [
        Cell(
            label=policy.label,
            spec=replace(spec, policy=policy.name, parameters=policy.parameters, early_rejection=mode, seed=seed),
            plan=ArrivalPlan(
                rate=rate,
                warmup=options["warmup"],
                warmup_rate=options["warmup_rate"],
                seed=seed,
                spread=options["spread"],
                closed_loop=options["closed_loop"],
            ),
            quality=quality,
            timeline=timeline,
            scaling=scaling,
            targets=targets,
        )
        for mode in modes
        for rate in rates
        for policy in policies
        for seed in range(options["seeds"])
    ]
    for line in (*_heading(workload, saturation, cache.token_hit_rate, true_speed, options, spec), *notes_of(policies)):
        console.print(line, highlight=False, soft_wrap=True)
    results: list[CellResult] = []
    try:
        _run(workload, cells, options, err, results)
    finally:  # what has finished is kept, whatever ended the rest
        if results:
            if len(results) < len(cells):
                err.print(
                    f"simulate: {len(results)} of {len(cells)} runs finished; the figures cover only these runs",
                    highlight=False,
                    soft_wrap=True,
                )
            _tell(sorted(results, key=lambda result: cells.index(result.cell)), workload, options, console)


def _check_routers(spec: SimulatedPool, timeline: Sequence[TimelineEvent]) -> None:
    """Refuse options and timeline events that need several routers if the pool has only one."""
    if spec.routers == 1 and spec.clients != "in-turn":
        raise click.UsageError("--clients spreads requests over routers; say how many with --routers")
    if spec.routers == 1 and spec.asking_seconds is not None:
        raise click.UsageError("--asking-delay lets one of several routers decide; say how many with --routers")
    if spec.told_seconds is not None and (spec.routers == 1 or spec.asking_seconds is not None):
        raise click.UsageError("--told-delay is for several routers that decide for themselves; give --routers, and no --asking-delay")
    if spec.asking_seconds is None and any(isinstance(event, PartRouters) for event in timeline):
        raise click.UsageError("--timeline: part-routers needs routers of which one decides; give --routers and --asking-delay")


def _kv_events(options: dict[str, Any], spec: SimulatedPool) -> KvEventQuality | None:
    if not options["kv_events"]:
        for name in ("kv_event_delay", "kv_event_loss", "no_kv_event_replay"):
            if options[name]:
                raise click.UsageError(f"--{name.replace('_', '-')} needs --kv-events")
        return None
    if spec.preset.eviction != "lru":
        raise click.UsageError(
            f"--kv-events is for caches that evict least recently used first; leave out --eviction {spec.preset.eviction}"
        )
    return KvEventQuality(delay_seconds=options["kv_event_delay"], loss=options["kv_event_loss"], replay=not options["no_kv_event_replay"])


def _engine(options: dict[str, Any]) -> EnginePreset:
    """Return the engine that the options select: a preset, or the fitted engine in a file."""
    if options["engine"] is None:
        return preset(options["preset_name"])
    if click.get_current_context().get_parameter_source("preset_name") is ParameterSource.COMMANDLINE:
        raise click.UsageError("give --preset or --engine, not both")
    return read_engine(options["engine"]).preset()


def _with_host_cache(engine: EnginePreset, tokens: int | None, load: float | None) -> EnginePreset:
    if (tokens is None) != (load is None):
        raise click.UsageError("give both --host-cache and --host-load, or neither")
    if tokens is None or load is None:
        return engine
    if engine.dram_tokens is not None:
        raise click.UsageError(
            f"--host-cache needs an engine with its cache on the GPU, and {engine.name!r} keeps its cache in host memory"
        )
    return replace(engine, host_tokens=tokens, dram_seconds_per_token=1 / load)


def _pool_spec(options: dict[str, Any]) -> SimulatedPool:
    chosen = _engine(options)
    if options["mode"] is not None:
        chosen = replace(chosen, mode=options["mode"])
    if options["eviction"] is not None:
        if chosen.dram_tokens is None:
            with_tier = ", ".join(name for name, one in PRESETS.items() if one.dram_tokens is not None)
            raise click.UsageError(
                f"--eviction: {chosen.name!r} has no prefix cache in host memory; use one of {with_tier}, or leave it out"
            )
        chosen = replace(chosen, eviction=options["eviction"])
    chosen = _with_host_cache(chosen, options["host_cache"], options["host_load"])
    prefill, decode = options["prefill_instances"], options["decode_instances"]
    if (prefill is None) != (decode is None):
        raise click.UsageError("give both --prefill-instances and --decode-instances, or neither")
    if prefill is not None and click.get_current_context().get_parameter_source("instances") is ParameterSource.COMMANDLINE:
        raise click.UsageError("give --instances, or --prefill-instances and --decode-instances, not all of them")
    return SimulatedPool(
        preset=chosen,
        instances=options["instances"] if prefill is None else 0,
        prefill_instances=prefill or 0,
        decode_instances=decode or 0,
        prefills_in_flight=options["prefills_in_flight"],
        speeds=() if options["speeds"] is None else parse_speeds(options["speeds"]),
        weights=() if options["weights"] is None else parse_weights(options["weights"]),
        fetching=options["fetch"],
        slo_ttft_seconds=options["slo_ttft"] or chosen.slo_ttft_seconds,
        slo_tpot_seconds=options["slo_tpot"] or chosen.slo_tpot_seconds,
        prefill_tokens_per_second=1.0,
        routers=options["routers"],
        clients=options["clients"],
        asking_seconds=options["asking_delay"],
        told_seconds=options["told_delay"],
    )


def _workload(options: dict[str, Any], spec: SimulatedPool) -> Workload:
    if options["warmup_rate"] is not None and not options["warmup"]:
        raise click.UsageError("--warmup-rate is the rate of the first requests; give their number with --warmup")
    longest = spec.preset.max_input_tokens if options["max_input"] is None else options["max_input"] or None
    workload = load_workload(
        read_trace(options["trace"]),
        requests=options["requests"],
        max_input=longest,
        infer_sessions=options["sessions"] == "inferred",
    )
    if not workload.rows:
        raise InputUnusable(f"{options['trace']}: no request is shorter than {longest} tokens; raise --max-input")
    if options["warmup"] >= len(workload.rows):
        raise InputUnusable(
            f"--warmup {options['warmup']} leaves no request of {len(workload.rows)} to measure; write at most {len(workload.rows) - 1}"
        )
    return workload


def _heading(
    workload: Workload, saturation: Saturation, ideal: float, true_speed: float, options: dict[str, Any], spec: SimulatedPool
) -> list[str]:
    pool = (
        f"{spec.instances} instances" if spec.instances else f"{spec.prefill_instances} prefill + {spec.decode_instances} decode instances"
    )
    if spec.speeds:
        pool += f" (at {', '.join(f'{speed:g}' for speed in spec.speeds)} times the speed, in turn)"
    if spec.weights:
        pool += f" (of weight {', '.join(f'{weight:g}' for weight in spec.weights)} on the ring, in turn)"
    believed = spec.prefill_tokens_per_second
    told = "" if believed == true_speed else f"; routers assume {believed:,.0f} prompt tokens/s, engines compute {true_speed:,.0f}"
    kept = f"{len(workload.rows):,} requests of {options['trace']}"
    if workload.dropped:
        kept += f" ({workload.dropped:,} dropped as too long)"
    found = workload.found_sessions
    return [
        f"{kept}, native rate {workload.native_rate:.2f}/s, equal timestamps {_SPREADS[options['spread']]}; "
        f"ideal hit rate {ideal:.1%} of tokens",
        f"sessions: {'as named in the trace' if found is None else found.words}",
        f"{pool} of {spec.preset.origin}, {spec.preset.mode}; TTFT SLO {spec.slo_ttft_seconds:g} s; "
        f"saturation about {saturation.requests_per_second:.2f}/s with an ideal cache "
        f"({saturation.uncached_tokens:,.0f} uncached tokens = {saturation.prefill_seconds:.3f} s prefill "
        f"+ {saturation.decode_seconds:.3f} s decode per request){told}",
    ]


def _run(workload: Workload, cells: list[Cell], options: dict[str, Any], err: Console, results: list[CellResult]) -> None:
    """Run the cells, and append each result to `results` as it becomes available."""
    columns = (TextColumn("simulate"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task("", total=len(cells) * len(workload.rows))
        running = run_cells(
            workload,
            cells,
            processes=options["jobs"],
            keep_loads=options["plots"] is not None,
            on_progress=lambda count: progress.advance(task, count),
        )
        with closing(running):
            for result in running:
                results.append(result)
                done = f"{result.cell.label} at {result.cell.plan.rate:.2f}/s: {result.figures.attainment:.1%} in time"
                progress.update(task, description=done)
                if not err.is_terminal:
                    err.print(f"simulate: {len(results)}/{len(cells)}  {done}", highlight=False, soft_wrap=True)


def _tell(results: list[CellResult], workload: Workload, options: dict[str, Any], console: Console) -> None:
    if options["as_json"]:
        click.echo(_document(workload, results).decode())
    else:
        for table in result_tables(results):
            print_whole(console, table)
        for line in scaling_lines(results):
            console.print(line, highlight=False, soft_wrap=True)
    if options["json_path"] is not None:
        _write_json(options["json_path"], _document(workload, results))
    if options["plots"] is not None:
        _write_plots(options["plots"], results)


def _document(workload: Workload, results: list[CellResult]) -> bytes:
    sessions = None if workload.found_sessions is None else workload.found_sessions.document()
    return orjson.dumps([result.document() | {"sessions": sessions} for result in results], option=orjson.OPT_INDENT_2)


def _write_json(path: Path, document: bytes) -> None:
    try:
        path.write_bytes(document + b"\n")
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be written: {error.strerror}") from None


def _write_plots(folder: Path, results: list[CellResult]) -> None:
    from fairlead_simulator.experiments.plots import write_plots  # matplotlib takes a second to import

    try:
        written = write_plots(folder, results)
    except OSError as error:
        raise click.ClickException(f"{folder}: cannot be written: {error.strerror}") from None
    click.echo(f"{len(written)} plots written to {folder}", err=True)

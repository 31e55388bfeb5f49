"""The commands `fairlead traces describe`, `generate` and `convert`."""

import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from io import TextIOWrapper
from itertools import islice
from pathlib import Path

import click
import orjson

from fairlead_process.option_types import InputUnusable, NumberOption, WholeOption, output_option
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.errors import TraceInvalid, WorkloadImpossible
from fairlead_simulator.experiments.arrival_plans import load_workload
from fairlead_simulator.experiments.host_caches import tried, words
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.traces.conversions import TraceChanges, convert, read_form, write_form
from fairlead_simulator.traces.descriptions import Distribution, describe
from fairlead_simulator.traces.detection import FORMS
from fairlead_simulator.traces.fields import LATEST_MS
from fairlead_simulator.traces.reading import Notes
from fairlead_simulator.traces.rows import TraceRow, read_trace
from fairlead_simulator.traces.sessions import find_sessions
from fairlead_simulator.workloads.kinds import KINDS

_RATE = NumberOption(most=1e6, positive=True)
_COUNT = WholeOption(1, 1_000_000_000)
TYPICAL_TOKENS = 2_000
"""Length in tokens of the prompt for which an engine's prefill speed is computed. Simulated routers know this speed
from the beginning.
"""


@click.group()
def traces() -> None:
    """Look at and make request traces in Mooncake's format."""


@traces.command("describe")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--requests", type=_COUNT, help="Only the first N rows.")
@click.option("--json", "old_spelling", is_flag=True, hidden=True, help="The same as -o json.")
@output_option
def describe_command(file: Path, requests: int | None, old_spelling: bool, as_json: bool) -> None:
    """Check FILE and show rates, lengths, sessions, and how much of it a cache could serve.

    FILE is in Mooncake's JSONL format, also packed by gzip; - is standard input.
    """
    try:
        rows = list(read_trace(file, requests))
    except TraceInvalid as error:
        raise InputUnusable(str(error)) from None
    description, sessions = describe(rows), find_sessions(rows)
    if as_json or old_spelling:
        click.echo(orjson.dumps(asdict(description) | {"sessions": sessions.document()}, option=orjson.OPT_INDENT_2).decode())
        return
    click.echo(
        f"requests        {description.requests:,} over {description.span_seconds:,.1f} s, {description.requests_per_second:.2f} a second"
    )
    click.echo(f"arrival stamps  {description.distinct_stamps:,} distinct")
    click.echo(f"input tokens    {_spread(description.input_tokens)}")
    click.echo(f"output tokens   {_spread(description.output_tokens)}")
    click.echo(f"sessions        {sessions.words}")
    click.echo(f"blocks          {description.block_references:,} references to {description.distinct_blocks:,} blocks")
    click.echo(f"ideal hit rate  {description.token_hit_rate:.1%} of tokens, {description.block_hit_rate:.1%} of blocks")


@traces.command("generate")
@click.option("--kind", type=click.Choice(list(KINDS)), default="conversation", show_default=True, help="Kind of the requests.")
@click.option("--requests", type=_COUNT, default=1000, show_default=True, help="How many.")
@click.option("--rate", type=_RATE, help="Requests per second; default: the kind's own rate.")
@click.option("--seed", type=WholeOption(-(2**63), 2**63 - 1), default=0, show_default=True, help="The same seed makes the same trace.")
@click.option("--median-input", type=WholeOption(1, 1_000_000), help="Median tokens of a session's first prompt (of a group's prefix).")
@click.option("--out", type=click.Path(path_type=Path), help="File to write; default: standard output.")
def generate_command(kind: str, requests: int, rate: float | None, seed: int, median_input: int | None, out: Path | None) -> None:
    """Make a trace of --requests requests, the same for the same --seed."""
    if rate is not None and requests / rate * 1e3 > LATEST_MS:
        raise click.UsageError(
            f"--rate: {rate:g} cannot be used; {requests:,} requests would not end; write at least {requests / LATEST_MS * 1e3:.2g}"
        )
    _write(islice(KINDS[kind].rows(rate, median_input, seed), requests), out, "jsonl")


@traces.command("convert")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--from", "source_form", type=click.Choice([*FORMS]), help="Format of FILE; default: detected from its content.")
@click.option("--to", "target_form", type=click.Choice([*FORMS][:2]), default="jsonl", show_default=True, help="The form to write.")
@click.option("--block-size", type=WholeOption(1, 65_536), help="Tokens per block id of FILE; default: 512, or 16 for alibaba.")
@click.option("--sort", is_flag=True, help="Sort rows by time, instead of refusing a file that is not sorted.")
@click.option(
    "--spread",
    type=click.Choice(["none", "even", "random"]),
    default="none",
    show_default=True,
    help="How rows with equal timestamps are spread.",
)
@click.option("--rate", type=_RATE, help="Stretch times to this many requests per second; needed if FILE has no times.")
@click.option(
    "--speed",
    type=NumberOption(most=1e6, positive=True),
    default=1.0,
    show_default=True,
    help="Factor by which to speed the trace up, instead of --rate.",
)
@click.option("--max-input", type=_COUNT, help="Drop rows with prompts this long or longer.")
@click.option("--requests", type=_COUNT, help="Keep only the first N of the remaining rows.")
@click.option("--seed", type=WholeOption(-(2**63), 2**63 - 1), default=0, show_default=True, help="Seed of random spreading.")
@click.option("--out", type=click.Path(path_type=Path), help="File to write; default: standard output.")
def convert_command(
    file: Path,
    source_form: str | None,
    target_form: str,
    block_size: int | None,
    sort: bool,
    spread: str,
    rate: float | None,
    speed: float,
    max_input: int | None,
    requests: int | None,
    seed: int,
    out: Path | None,
) -> None:
    """Write FILE in another form, at another rate, or cut down. Times begin at 0, and blocks have 512 tokens.

    FILE may be from Azure, BurstGPT, Alibaba (Qwen-Bailian), aiperf or guidellm, also packed by gzip; - is standard
    input. Standard error lists what is left out or assumed.
    """
    if rate is not None and speed != 1.0:
        raise click.UsageError("give --rate or --speed, not both")
    changes = TraceChanges(spread=spread, requests_per_second=rate, speed=speed, max_input=max_input, requests=requests, seed=seed)
    notes = Notes()
    try:
        rows = convert(read_form(file, source_form, block_tokens=block_size, has_rate=rate is not None, sort=sort, notes=notes), changes)
    except TraceInvalid as error:
        raise InputUnusable(str(error)) from None
    if not rows:
        raise InputUnusable(f"{file}: no request is shorter than {max_input} tokens; raise --max-input")
    _write(rows, out, target_form)
    for line in notes.lines():
        click.echo(line, err=True)


@traces.command("host-cache")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--tokens", type=_COUNT, multiple=True, required=True, help="Tokens of a cache in each instance's host memory; may be repeated."
)
@click.option("--host-load", type=_RATE, required=True, help="Tokens per second that an engine loads from this cache.")
@click.option("--preset", "preset_name", default="vllm-h100-8b", show_default=True, help="Engine, with its prefix cache on the GPU.")
@click.option("--instances", type=WholeOption(1, 512), default=8, show_default=True, help="Instances of the pool.")
@click.option("--kv-tokens", type=_COUNT, help="Tokens of the KV cache on the GPU; default: the preset's.")
@click.option("--kv-bytes", type=_COUNT, help="Bytes of a token in the KV cache, to show sizes in GB; default: in tokens.")
@click.option("--requests", type=_COUNT, default=5000, show_default=True, help="Only the first N rows.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def host_cache_command(
    file: Path,
    tokens: tuple[int, ...],
    host_load: float,
    preset_name: str,
    instances: int,
    kv_tokens: int | None,
    kv_bytes: int | None,
    requests: int,
    as_json: bool,
) -> None:
    """Show how many hits a cache in the engines' host memory would add for FILE's requests.

    The gain is predicted from reuse distances, and simulated at the requests' own rate. A cache is advised only if both
    results agree.
    """
    engine = preset(preset_name)
    if engine.dram_tokens is not None:
        raise click.UsageError(f"--preset: {engine.name!r} keeps its cache in host memory; choose one with a cache on the GPU")
    engine = replace(engine, kv_tokens=kv_tokens or engine.kv_tokens)
    speed = TYPICAL_TOKENS / engine.prefill.seconds(TYPICAL_TOKENS, TYPICAL_TOKENS)
    spec = SimulatedPool(preset=engine, instances=instances, policy="fairlead", prefill_tokens_per_second=speed)
    try:
        workload = load_workload(read_trace(file), requests=requests, max_input=engine.max_input_tokens, infer_sessions=True)
        if len(workload.rows) < 2 or workload.native_rate <= 0:
            raise InputUnusable(f"{file}: there must be two requests or more, at different times")
        found = tried(workload, spec, host_load, tokens)
    except (TraceInvalid, WorkloadImpossible) as error:
        raise InputUnusable(str(error)) from None
    if as_json:
        rows = [asdict(one) | {"is_confirmed": one.is_confirmed} for one in found]
        click.echo(orjson.dumps({"instances": instances, "kv_bytes": kv_bytes, "host_caches": rows}, option=orjson.OPT_INDENT_2).decode())
        return
    for one in found:
        click.echo(words(one, kv_bytes))
    if kv_bytes is None:
        click.echo("The size of a token in the KV cache is not known; give it with --kv-bytes.", err=True)


def _write(rows: Iterable[TraceRow], out: Path | None, form: str) -> None:
    if out is None:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale: names of sessions may be in any writing
        write_form(rows, sys.stdout, form)
        return
    try:
        with out.open("w", encoding="utf-8") as file:
            count = write_form(rows, file, form)
    except OSError as error:
        raise click.ClickException(f"{out}: cannot be written: {error.strerror}") from None
    click.echo(f"{count} requests written to {out}", err=True)


def _spread(spread: Distribution) -> str:
    return f"mean {spread.mean:,.0f}  p50 {spread.p50:,.0f}  p90 {spread.p90:,.0f}  p99 {spread.p99:,.0f}  max {spread.maximum:,.0f}"

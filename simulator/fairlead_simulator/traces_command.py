"""`fairlead traces describe|generate`."""

import sys
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import click
import orjson

from fairlead_simulator.errors import TraceInvalid
from fairlead_simulator.trace_descriptions import Spread, describe
from fairlead_simulator.traces import read_trace, write_trace
from fairlead_simulator.workloads import ConversationShape, generate_conversations


@click.group()
def traces() -> None:
    """Look at and make request traces in Mooncake's format."""


@traces.command("describe")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--requests", type=click.IntRange(min=1), help="Only the first so many.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def describe_command(file: Path, requests: int | None, as_json: bool) -> None:
    """Check FILE and show rates, lengths and how much of it a cache could serve."""
    try:
        description = describe(read_trace(file, requests))
    except TraceInvalid as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(orjson.dumps(asdict(description), option=orjson.OPT_INDENT_2).decode())
        return
    click.echo(
        f"requests        {description.requests:,} over {description.span_seconds:,.1f} s, {description.requests_per_second:.2f} a second"
    )
    click.echo(f"arrival stamps  {description.distinct_stamps:,} distinct")
    click.echo(f"input tokens    {_spread(description.input_tokens)}")
    click.echo(f"output tokens   {_spread(description.output_tokens)}")
    click.echo(f"blocks          {description.block_references:,} references to {description.distinct_blocks:,} blocks")
    click.echo(f"ideal hit rate  {description.token_hit_rate:.1%} of tokens, {description.block_hit_rate:.1%} of blocks")


@traces.command("generate")
@click.option("--kind", type=click.Choice(["conversation"]), default="conversation", show_default=True)
@click.option("--requests", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), default=3.4, show_default=True, help="Requests per second.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--median-input", type=click.FloatRange(min=1), help="Median tokens of a session's first prompt.")
@click.option("--out", type=click.Path(path_type=Path), help="File to write; standard output without it.")
def generate_command(kind: str, requests: int, rate: float, seed: int, median_input: float | None, out: Path | None) -> None:
    """Make a trace of --requests requests, the same for the same --seed."""
    del kind  # there is one so far; the option fixes its name
    shape = ConversationShape(requests_per_second=rate, opening_median=median_input or ConversationShape().opening_median)
    rows = islice(generate_conversations(shape, seed), requests)
    if out is None:
        write_trace(rows, sys.stdout)
        return
    try:
        with out.open("w", encoding="ascii") as file:
            count = write_trace(rows, file)
    except OSError as error:
        raise click.ClickException(f"{out}: cannot be written: {error.strerror}") from None
    click.echo(f"{count} requests written to {out}", err=True)


def _spread(spread: Spread) -> str:
    return f"mean {spread.mean:,.0f}  p50 {spread.p50:,.0f}  p90 {spread.p90:,.0f}  p99 {spread.p99:,.0f}  max {spread.maximum:,.0f}"

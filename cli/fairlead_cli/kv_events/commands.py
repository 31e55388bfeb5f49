"""`fairlead kv-events check` compares an index made from a recording's events with the engine's own counts; `record`
makes such a recording.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from fairlead.kv_events.predictions import Agreement, predict
from fairlead_cli.kv_events.recording_files import Recording, read_recording
from fairlead_cli.printing import json_option, print_done
from fairlead_process.kinds import Address
from fairlead_process.option_types import KindOption, WholeOption

LARGEST_ERROR = 0.005
"""Largest accepted error, as a share of the sum of cached tokens."""
SMALLEST_EXACT_SHARE = 0.98
_BAD_ROWS_SHOWN = 5


@click.group("kv-events")
def kv_events() -> None:
    """Record the reports of engines about their prefix caches, and check these recordings."""


@kv_events.command("check")
@click.argument("recording", type=click.Path(path_type=Path))
@json_option
@click.option("--rows", is_flag=True, help="Show every request, not only the sums.")
@click.option(
    "--hash-seed", "seeds", multiple=True, default=("0",), show_default=True, help="The engine's PYTHONHASHSEED, to recompute its hashes."
)
def check(recording: Path, as_json: bool, rows: bool, seeds: tuple[str, ...]) -> None:
    """Build an index from RECORDING and compare the cached prompt tokens that it predicts with the engine's own counts.

    The exit code is 1 if the sums differ by more than 0.5 %, or fewer than 98 % of the requests are exact.
    """
    read = read_recording(recording)
    for line in read.bad_rows[:_BAD_ROWS_SHOWN]:
        click.echo(line, err=True)
    if (more := len(read.bad_rows) - _BAD_ROWS_SHOWN) > 0:
        click.echo(f"{recording}: {more:,} more rows cannot be used", err=True)
    agreement = predict(read.batches, read.requests, seeds=seeds)
    agrees = agreement.error <= LARGEST_ERROR and agreement.exact_share >= SMALLEST_EXACT_SHARE
    document = _document(agreement, read, agrees=agrees)
    found = [{"id": each.name} | {name: value for name, value in asdict(each).items() if name != "name"} for each in agreement.predictions]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(document | ({"rows": found} if rows else {}))))
    else:
        if rows:
            click.echo("id  prompt_tokens  predicted_cached_tokens  reported_cached_tokens")
            for row in found:
                click.echo("  ".join(str(value) for value in row.values()))
        for name, value in document.items():
            click.echo(f"{name}: {value}")
    if not agrees:
        raise click.exceptions.Exit(1)


@kv_events.command("record")
@click.option("--engine", "url", required=True, type=KindOption(Address("http://127.0.0.1:8000"), "URL"), help="The engine's address.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The file to write; compressed if its name ends in .gz.")
@click.option(
    "--engine-type",
    type=click.Choice(["vllm", "sglang", "simulated"]),
    default="vllm",
    show_default=True,
    help="Type of the engine, as in spec.engine.type.",
)
@click.option("--model", help="Model to request; default: the first one that the engine lists.")
@click.option("--requests", type=WholeOption(1, 1_000_000), default=200, show_default=True, help="How many requests to send and record.")
@click.option(
    "--seed",
    type=WholeOption(0, 2**31 - 1),
    default=0,
    show_default=True,
    help="Seed of the conversations: the same seed sends the same texts.",
)
@json_option
def record(url: str, out: Path, engine_type: str, model: str | None, requests: int, seed: int, as_json: bool) -> None:
    """Send conversations to an engine and write its KV events and its counts of cached tokens to a file, for `check`
    and for tests. The engine must publish KV events, count cached tokens, and do nothing else meanwhile.
    """
    from fairlead_cli.kv_events.recording import record_to  # ZMQ and asyncio take a while to import

    console = Console(stderr=True)
    columns = (TextColumn("requests"), BarColumn(bar_width=24), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("record", total=requests)
        found = record_to(out, url, engine_type, model, requests, seed, lambda: progress.advance(task))
    done = {"file": str(out), **asdict(found)}
    words = (
        f"{found.requests:,} requests, {found.cached_tokens:,} of {found.prompt_tokens:,} prompt tokens cached, {found.batches:,} batches"
    )
    print_done(as_json, done, f"{words} of events written to {out}: fairlead kv-events check {out}")


def _document(agreement: Agreement, read: Recording, *, agrees: bool) -> dict[str, Any]:
    hashing = agreement.hashing
    return {
        "predicted_cached_tokens": agreement.predicted_cached_tokens,
        "reported_cached_tokens": agreement.reported_cached_tokens,
        "error": round(agreement.error, 6),
        "requests": len(agreement.predictions),
        "exact_requests": agreement.exact_requests,
        "exact_share": round(agreement.exact_share, 4),
        "agrees": agrees,
        "sources": agreement.sources,
        "batches": agreement.sequences.applied,
        "batches_lost": agreement.sequences.lost,
        "batches_repeated": agreement.sequences.repeated,
        "restarts": agreement.sequences.restarts,
        "blocks_held_unseen": agreement.unseen_blocks,
        "blocks_of_unknown_parents": agreement.index.unknown_parent,
        "blocks_of_wrong_size": agreement.index.wrong_size,
        "engine_hashes": None if hashing is None else f"{hashing.algorithm}, PYTHONHASHSEED={hashing.seed}",
        "bad_rows": len(read.bad_rows),
    }

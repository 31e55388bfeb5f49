"""`fairlead kv-events check` compares an index built from a recording's events with the engine's own counts."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import msgspec

from fairlead.kv_events.predictions import Agreement, predict
from fairlead_cli.kv_events.recording_files import Recording, read_recording

LARGEST_ERROR = 0.005
"""Largest accepted error, as a share of the sum of cached tokens."""
SMALLEST_EXACT_SHARE = 0.98
_BAD_ROWS_SHOWN = 5


@click.group("kv-events")
def kv_events() -> None:
    """Check the KV events that engines publish about their prefix caches."""


@kv_events.command("check")
@click.argument("recording", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
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

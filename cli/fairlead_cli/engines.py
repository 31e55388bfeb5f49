"""`fairlead engines` lists the simulator's engines and fits one to requests that real engines served."""

from dataclasses import fields
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fairlead.errors import FairleadError
from fairlead_cli.printing import json_option, print_json, print_table
from fairlead_client.resources.engine_fits import EngineFit, FitAccuracy
from fairlead_process.clock import utc_now
from fairlead_simulator.engine_fit.engine_files import EngineFile, write_engine
from fairlead_simulator.engine_fit.fitting import fit
from fairlead_simulator.engine_fit.record_files import read_records
from fairlead_simulator.engine_fit.records import ServedRecord
from fairlead_simulator.engine_model.presets import PRESETS
from fairlead_simulator.errors import OutputUnwritable, SimulatorError
from fairlead_simulator.option_types import InputUnusable, WholeOption

_COLUMNS = ("", "requests", "mean", "P50", "P90", "P99", "mean error", "correlation")


@click.group()
def engines() -> None:
    """The engines that `fairlead simulate` and what-if run: presets, and engines fitted to real ones."""


@engines.command("list")
@json_option
def list_engines(as_json: bool) -> None:
    """List the presets, all of them estimated: their costs come from publications and data sheets, not your engines."""
    if as_json:
        print_json([{"name": one.name, "is_estimated": one.is_estimated, "mode": one.mode, "about": one.about} for one in PRESETS.values()])
        return
    rows = [(one.name, "estimated" if one.is_estimated else "fitted", one.mode, one.about) for one in PRESETS.values()]
    print_table(("name", "costs", "scheduler", "about"), rows)


@engines.command("fit")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--judge", type=click.Path(path_type=Path), help="Records to judge the fit by, in place of the later half of FILE.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write the engine here, for fairlead simulate --engine; YAML, or JSON as .json."
)
@click.option("--name", default="fitted", show_default=True, help="What to call the engine.")
@click.option(
    "--max-batched-tokens",
    type=WholeOption(16, 1_000_000),
    default=2048,
    show_default=True,
    help="Most tokens of one step, as the engine was started with (vLLM: --max-num-batched-tokens).",
)
@click.option(
    "--kv-tokens", type=WholeOption(1024, 2**40), help="KV cache of one engine in tokens, which is not fitted; a preset's without it."
)
@json_option
def fit_command(
    file: Path, judge: Path | None, out: Path | None, name: str, max_batched_tokens: int, kv_tokens: int | None, as_json: bool
) -> None:
    """Fit the engine model to the requests in FILE, and show how far off it is on those it was not fitted to.

    FILE has a request a line, in order of time, as JSON objects or CSV: at, engine, prompt_tokens, output_tokens, ttft,
    cached_tokens or cached_share, tpot or total, and in_flight if it is known; times in seconds. It must hold all
    requests of its engines. - is standard input. docs/simulator.md says more.
    """
    try:
        records = read_records(file)
        judges = None if judge is None else read_records(judge)
        found = fitted(records, str(file), judges=judges, max_batched_tokens=max_batched_tokens)
        if out is not None:
            write_engine(out, EngineFile.of(name, found, kv_tokens))
    except OutputUnwritable as error:
        raise click.ClickException(str(error)) from None
    except (SimulatorError, FairleadError) as error:
        raise InputUnusable(str(error)) from None
    if as_json:
        print_json(found)
        return
    tell_fit(found)
    if out is not None:
        click.echo(f"Written to {out}: fairlead simulate --engine {out} --trace TRACE")


def fitted(records: list[ServedRecord], source: str, *, judges: list[ServedRecord] | None, max_batched_tokens: int) -> EngineFit:
    """The fit, with progress on standard error where somebody looks."""
    console = Console(stderr=True)
    columns = (TextColumn("engines fit"), BarColumn(bar_width=24), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("fit", total=None)
        return fit(
            records,
            source,
            utc_now(),
            judges=judges,
            max_batched_tokens=max_batched_tokens,
            on_progress=lambda done, total: progress.update(task, completed=done, total=total),
        )


def tell_fit(found: EngineFit) -> None:
    """The fit as text."""
    click.echo(
        f"{found.source}: {found.requests:,} requests at {found.engines} engines; fitted to the {found.fitted:,} oldest, "
        f"judged by {found.ttft.requests:,} others"
    )
    if found.contradicting:
        click.echo(
            f"{found.contradicting:,} had their first token sooner than what they are recorded to have computed takes: "
            "they are modelled as cached, neither fitted to nor judged"
        )
    if found.at_edges:
        click.echo(f"{found.at_edges:,} ran beside requests that are not recorded: they are neither fitted to nor judged")
    rows = [row for metric, one in (("TTFT", found.ttft), ("TPOT", found.tpot)) for row in _rows(metric, one)]
    print_table(_COLUMNS, rows)
    for field in fields(found.costs):
        click.echo(f"  {field.name:28} {getattr(found.costs, field.name):.4g}")


def _rows(metric: str, one: FitAccuracy) -> list[tuple[str, ...]]:
    correlation = "-" if one.correlation is None else f"{one.correlation:.3f}"
    real = (one.real_mean, one.real_p50, one.real_p90, one.real_p99)
    modelled = (one.modelled_mean, one.modelled_p50, one.modelled_p90, one.modelled_p99)
    return [
        (f"{metric} real", f"{one.requests:,}", *map(_time, real), "", ""),
        (f"{metric} modelled", "", *map(_time, modelled), f"{one.mean_error:.1%}", correlation),
    ]


def _time(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds >= 0.1 else f"{seconds * 1e3:.1f} ms"

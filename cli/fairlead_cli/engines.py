"""`fairlead engines` lists the simulator's engines and fits one to requests that real engines served."""

from dataclasses import fields, replace
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fairlead.errors import FairleadError
from fairlead_cli.asking import ask, token_option, url_option
from fairlead_cli.printing import json_option, print_done, print_json, print_table
from fairlead_client.resources.engine_fits import MOST_BATCHED_TOKENS, EngineFit, FitAccuracy, ServedRequests
from fairlead_process.clock import utc_now
from fairlead_process.option_types import InputUnusable, TimeOption, WholeOption
from fairlead_process.pool_names import METAVAR, name_argument, namespace_option, optional_pool, pool_named
from fairlead_simulator.engine_fit.engine_files import EngineFile, write_engine
from fairlead_simulator.engine_fit.fitting import fit
from fairlead_simulator.engine_fit.record_files import read_records
from fairlead_simulator.engine_fit.records import ServedRecord
from fairlead_simulator.engine_model.presets import PRESETS
from fairlead_simulator.errors import OutputUnwritable, RecordsUnusable, SimulatorError

MOST_UNKNOWN = 0.2
"""Maximum share (0-1) of a pool's requests that may be unrecorded. With a larger share, too much of the engines' work
is missing in the fit.
"""
_COLUMNS = ("", "requests", "mean", "P50", "P90", "P99", "mean error", "correlation")


@click.group()
def engines() -> None:
    """Engine models for `fairlead simulate` and what-if: presets, and models fitted to real engines."""


@engines.command("list")
@json_option
def list_engines(as_json: bool) -> None:
    """List the presets. Their costs are estimates from publications and data sheets, not measured on your engines."""
    if as_json:
        print_json([{"name": one.name, "is_estimated": one.is_estimated, "mode": one.mode, "about": one.about} for one in PRESETS.values()])
        return
    rows = [(one.name, "estimated" if one.is_estimated else "fitted", one.mode, one.about) for one in PRESETS.values()]
    print_table(("name", "costs", "scheduler", "about"), rows)


@engines.command("fit")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--pool", metavar=METAVAR, help="Fit to what was recorded of this pool, in place of FILE.")
@namespace_option
@click.option(
    "--from", "start", type=TimeOption(), default="now-1h", show_default=True, help="With --pool: the beginning, RFC 3339 or as now-1h."
)
@click.option("--to", "end", type=TimeOption(), default="now", show_default=True, help="With --pool: the end.")
@click.option(
    "--store", is_flag=True, help="With --pool: what-if and plans simulate the pool with this fit from now on; needs the role operator."
)
@click.option("--judge", type=click.Path(path_type=Path), help="Records for judging the fit, instead of the later half of FILE.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help=("Write the engine model to this file, for fairlead simulate --engine; YAML, or JSON if it ends in .json."),
)
@click.option("--name", default="fitted", show_default=True, help="Name of the engine model.")
@click.option(
    "--max-batched-tokens",
    type=WholeOption(16, MOST_BATCHED_TOKENS),
    default=2048,
    show_default=True,
    help="Maximum tokens of one step, as set when starting the engine (vLLM: --max-num-batched-tokens).",
)
@click.option(
    "--kv-tokens", type=WholeOption(1024, 2**40), help="KV cache of one engine, in tokens. It is not fitted; default: the preset's."
)
@json_option
@url_option
@token_option
def fit_command(
    file: Path | None,
    pool: str | None,
    namespace: str | None,
    start: str,
    end: str,
    store: bool,
    judge: Path | None,
    out: Path | None,
    name: str,
    max_batched_tokens: int,
    kv_tokens: int | None,
    as_json: bool,
    url: tuple[str, ...],
    token: str | None,
) -> None:
    """Fit an engine model to the requests in FILE, or to the recorded requests of a pool, and show its error on
    requests it was not fitted to.

    FILE has one request per line, in order of time, as JSON objects or CSV: at, engine, prompt_tokens, output_tokens,
    ttft, cached_tokens or cached_share, tpot or total, and in_flight if it is known; times in seconds. It must hold all
    requests of its engines. - is standard input. docs/simulator.md says more.
    """
    if (file is None) is (pool is None):
        raise click.UsageError("give either FILE or --pool")
    if store and pool is None:
        raise click.UsageError("--store keeps a fit with its pool; give --pool")
    key = optional_pool(pool, namespace)
    try:
        if key is not None:
            served = ask(url, token, lambda api: api.served_requests(key, start=start, end=end))
            records, source = records_of(served), f"requests of {key}"
        else:
            assert file is not None
            records, source = read_records(file), str(file)
        judges = None if judge is None else read_records(judge)
        found = fitted(records, source, judges=judges, max_batched_tokens=max_batched_tokens)
        if key is not None and judges is None:
            found = replace(found, first_at=served.items[0].at, last_at=served.items[-1].at)
        if out is not None:
            write_engine(out, EngineFile.of(name, found, kv_tokens))
    except OutputUnwritable as error:
        raise click.ClickException(str(error)) from None
    except (SimulatorError, FairleadError) as error:
        raise InputUnusable(str(error)) from None
    if as_json:
        print_json(found)
    else:
        tell_fit(found)
    if out is not None:
        click.echo(f"Written to {out}: fairlead simulate --engine {out} --trace TRACE", err=as_json)
    if store and key is not None:
        ask(url, token, lambda api: api.store_engine(key, found))
        click.echo(f"Stored: what-if and plans simulate {key} with it.", err=as_json)


@engines.command("forget")
@name_argument
@json_option
@url_option
@token_option
def forget(name: str, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Forget the engine model that `fit --store` stored for a pool. The token needs the role operator."""
    found = ask(url, token, lambda api: api.forget_engine(pool_named(name)))
    print_done(as_json, found, f"Forgotten: what-if and plans simulate {name} as if no fit had been stored.")


def records_of(served: ServedRequests) -> list[ServedRecord]:
    """Return the recorded requests of a pool as input of a fit. Raises RecordsUnusable if too many of its requests are
    missing.
    """
    source = f"requests of {served.pool}"
    if served.sample_rate < 1:
        raise RecordsUnusable(
            f"{source}: {served.sample_rate:.0%} of sessions were recorded, and a fit needs all that engines served; set "
            "FAIRLEAD_RECORD_TRAFFIC=1 on the routers for an hour"
        )
    if served.unknown > MOST_UNKNOWN * (len(served.items) + served.unknown):
        raise RecordsUnusable(
            f"{source}: {served.unknown:,} of {len(served.items) + served.unknown:,} requests have no first token, "
            "because they were not streamed or used two engines; choose a time in which nearly all answers were "
            "streamed by engines that both prefill and decode"
        )
    first = served.items[0].at if served.items else utc_now()
    return [
        ServedRecord(
            at=(one.at - first).total_seconds(),
            engine=one.engine,
            prompt_tokens=one.prompt_tokens,
            cached_tokens=max(0, min(one.cached_tokens, one.prompt_tokens - 1)),
            output_tokens=one.output_tokens,
            ttft=one.ttft_seconds,
            tpot=(one.answer_seconds - one.ttft_seconds) / (one.output_tokens - 1) if one.output_tokens > 1 else None,
        )
        for one in served.items
        if one.ttft_seconds > 0 and one.prompt_tokens > 0 and (one.answer_seconds > one.ttft_seconds or one.output_tokens < 2)
    ]


def fitted(records: list[ServedRecord], source: str, *, judges: list[ServedRecord] | None, max_batched_tokens: int) -> EngineFit:
    """Return the engine model fitted to the records. Shows progress on standard error if that is a terminal."""
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
    """Print the fitted model as text."""
    click.echo(
        f"{found.source}: {found.requests:,} requests at {found.engines} engines; fitted to the {found.fitted:,} oldest, "
        f"judged by {found.ttft.requests:,} others"
    )
    if found.contradicting:
        click.echo(
            f"{found.contradicting:,} had their first token sooner than their recorded prefill allows: "
            "they are modelled as cached, and used neither for fitting nor for judging"
        )
    if found.at_edges:
        click.echo(f"{found.at_edges:,} ran beside unrecorded requests: they are used neither for fitting nor for judging")
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

"""The command `fairlead replay`: checks the flags, reads the rows, runs one replay, and shows and writes its
figures.
"""

import asyncio
import re
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path

import click
import orjson
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fairlead.errors import InvalidInput
from fairlead_process.commands import ExitCode
from fairlead_process.option_types import InputUnusable, NumberOption, WholeOption, output_option
from fairlead_process.pool_names import METAVAR, namespace_option, optional_pool
from fairlead_simulator.errors import TraceInvalid
from fairlead_simulator.replay.http_client import HttpClient, Origin
from fairlead_simulator.replay.models import find_model
from fairlead_simulator.replay.open_loop import NobodyListens, Replay, ReplaySettings
from fairlead_simulator.replay.outcomes import ReplayVerdict, RequestOutcome, Tally
from fairlead_simulator.replay.prompts import BodyWriter, PromptWriter
from fairlead_simulator.replay.sending import Sender
from fairlead_simulator.replay.summaries import ResultFile, outcome_document, summary_document, summary_lines
from fairlead_simulator.traces.descriptions import IdealCache, percentile
from fairlead_simulator.traces.rows import TraceRow, read_trace
from fairlead_simulator.traces.sessions import find_sessions
from fairlead_simulator.workloads import ConversationShape, generate_conversations

_GENERATED_REQUESTS = 1000
_REMEMBERED_WHEN_LOOPING = 20_000
_POSITIVE = NumberOption(most=1e6, positive=True)


@click.command()
@click.option("--trace", type=click.Path(path_type=Path), help="A trace in Mooncake's JSONL format, also .gz; see fairlead traces convert.")
@click.option("--generate", type=click.Choice(["conversation"]), help="Generate a trace instead of reading one.")
@click.option(
    "--url",
    "urls",
    multiple=True,
    help="Address of a router or an engine. If repeated, requests go to each in turn, or to the next one if it cannot be reached. "
    "Default: this folder's sandbox.",
)
@click.option("--model", help="Model to request; default: the first one that the router lists.")
@click.option("--pool", metavar=METAVAR, help="The pool, sent as x-fairlead-pool.")
@namespace_option
@click.option("--token", envvar="FAIRLEAD_GATEWAY_KEY", show_envvar=True, help="API key of the routers, sent as a bearer token.")
@click.option("--speed", type=_POSITIVE, default=1.0, show_default=True, help="Speed-up relative to the recorded times.")
@click.option("--requests", type=click.IntRange(min=1), help="Send only the first N requests.")
@click.option("--rate", type=_POSITIVE, default=3.4, show_default=True, help="Requests per second of a generated trace.")
@click.option("--median-input", type=WholeOption(1, 1_000_000), help="Median tokens of a generated session's first prompt.")
@click.option("--longest-input", type=WholeOption(1, 1_000_000), help="Maximum tokens of a generated prompt.")
@click.option(
    "--seed",
    type=WholeOption(-(2**63), 2**63 - 1),
    default=0,
    show_default=True,
    help="Random seed of a generated trace and of cancellations.",
)
@click.option("--slo-ttft", type=_POSITIVE, default=5.0, show_default=True, help="TTFT in seconds below which a request counts as in time.")
@click.option(
    "--time-scale", type=_POSITIVE, default=1.0, show_default=True, help="Speed-up of the engines; times are shown multiplied by it."
)
@click.option("--bytes-per-token", type=click.IntRange(min=1), default=4, show_default=True, help="Bytes of text that are one token.")
@click.option("--session-header", default="x-session-id", show_default=True, help="Header with the session's name.")
@click.option("--bursts", is_flag=True, help="Send rows with equal timestamps at once instead of spreading them.")
@click.option(
    "--max-in-flight",
    type=click.IntRange(min=1),
    default=4096,
    show_default=True,
    help="Maximum number of requests in flight; at the maximum, further requests are sent late.",
)
@click.option("--cancel-share", type=NumberOption(most=1), default=0.0, help="Cancel this share of requests after their first token.")
@click.option(
    "--retry-rejected",
    type=click.IntRange(min=0),
    default=0,
    help="Maximum retries of a rejected request, each after the seconds in Retry-After.",
)
@click.option("--timeout", type=_POSITIVE, default=600.0, show_default=True, help="Maximum seconds of one request.")
@click.option("--loop", "repeat", is_flag=True, help="Repeat without end, with fresh prompts each time.")
@output_option
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write all figures here.")
@click.option("--rows", "rows_path", type=click.Path(path_type=Path), help="Write a JSON line per request here.")
def replay(
    trace: Path | None,
    generate: str | None,
    urls: tuple[str, ...],
    model: str | None,
    pool: str | None,
    namespace: str | None,
    token: str | None,
    speed: float,
    requests: int | None,
    rate: float,
    median_input: int | None,
    longest_input: int | None,
    seed: int,
    slo_ttft: float,
    time_scale: float,
    bytes_per_token: int,
    session_header: str,
    bursts: bool,
    max_in_flight: int,
    cancel_share: float,
    retry_rejected: int,
    timeout: float,
    repeat: bool,
    as_json: bool,
    json_path: Path | None,
    rows_path: Path | None,
) -> None:
    """Send a trace as real requests, at their recorded times, and account for each of them.

    Ends with code 0 when sent = served + rejected + failed + cancelled, else 1; after Ctrl-C with 130.
    """
    if not urls:
        raise InvalidInput("--url", None, "write the address of a router, such as http://127.0.0.1:8000; no sandbox runs in this folder")
    if (trace is None) == (generate is None):
        raise click.UsageError("give either --trace FILE or --generate conversation")
    key = optional_pool(pool, namespace)
    origins = tuple(_origin(url) for url in urls)
    headers = [
        (name, value)
        for name, value in (("x-fairlead-pool", None if key is None else str(key)), ("authorization", token and f"Bearer {token}"))
        if value
    ]
    for name, value in (*headers, (session_header, "")):
        if not name.isascii() or not value.isascii() or any(sign in name + value for sign in "\r\n"):
            raise click.UsageError(f"{name}: {value!r} cannot be sent as a header")
    rows = _rows_from(trace, requests, seed, rate, median_input, longest_input)
    sessions = find_sessions(rows)
    tally = Tally(slo_ttft, time_scale, _REMEMBERED_WHEN_LOOPING if repeat else None)
    ideal = None if repeat else IdealCache()
    err = Console(stderr=True)

    ended_by: list[int] = []

    def end(number: int, stop: asyncio.Event) -> None:
        ended_by.append(number)
        stop.set()

    async def run(on_outcome: Callable[[RequestOutcome], None]) -> float:
        client = HttpClient()
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, end, number, stop)
        served_model = model or await find_model(
            client, origins, headers, None if key is None else str(key), patient=repeat, stop=stop, console=err
        )
        sender = Sender(client, origins, headers, session_header, timeout, retry_rejected, time.monotonic)
        running = Replay(
            rows=rows,
            sessions=sessions,
            prompts=PromptWriter(bytes_per_token, sessions.shared),
            bodies=BodyWriter(served_model),
            sender=sender,
            tally=tally,
            settings=ReplaySettings(
                speed=speed,
                bursts=bursts,
                max_in_flight=max_in_flight,
                cancel_share=cancel_share,
                session_prefix=re.sub(r"[^A-Za-z0-9._-]", "-", trace.stem) if trace is not None else f"conversation-{seed}",
                seed=seed,
            ),
            clock=time.monotonic,
            ideal=ideal,
            on_outcome=on_outcome,
            stop=stop,
        )
        started = time.monotonic()
        progress = asyncio.ensure_future(show_progress(running, None if repeat else len(rows), err))
        try:
            await running.run(repeat, patient=repeat)
        finally:
            progress.cancel()
            await asyncio.wait((progress,))
            client.close()
        return time.monotonic() - started

    with ExitStack() as files, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        rows_file = files.enter_context(ResultFile(rows_path)) if rows_path is not None else None
        json_file = files.enter_context(ResultFile(json_path)) if json_path is not None else None

        def write_row(outcome: RequestOutcome) -> None:
            if rows_file is not None:
                rows_file.write(orjson.dumps(outcome_document(outcome)) + b"\n")

        try:
            wall_seconds = runner.run(run(write_row))
        except NobodyListens as error:
            raise click.ClickException(f"{error}; is the router running, and is --url right?") from None
        summary = tally.summary(wall_seconds, ideal.token_hit_rate if ideal is not None else None)
        document = orjson.dumps(summary_document(summary, sessions), option=orjson.OPT_INDENT_2)
        click.echo(document.decode() if as_json else "\n".join(summary_lines(summary, sessions)))
        if json_file is not None:
            json_file.write(document + b"\n")
    if not summary.accounted:
        raise SystemExit(1)
    if signal.SIGINT in ended_by:
        raise SystemExit(ExitCode.INTERRUPTED)


def _rows_from(
    trace: Path | None, requests: int | None, seed: int, rate: float, median_input: int | None, longest_input: int | None
) -> list[TraceRow]:
    if trace is not None:
        try:
            return list(read_trace(trace, requests))
        except TraceInvalid as error:
            raise InputUnusable(str(error)) from None
    return generated_rows(requests, seed, rate, median_input, longest_input)


def generated_rows(requests: int | None, seed: int, rate: float, median_input: int | None, longest_input: int | None) -> list[TraceRow]:
    """Return the rows of the conversations that `--generate` makes. If `requests` is None, the default number of rows
    is generated; if a length is None, it is taken from the default shape.
    """
    usual = ConversationShape()
    shape = replace(
        usual,
        requests_per_second=rate,
        opening_median=median_input or usual.opening_median,
        longest_input=longest_input or usual.longest_input,
        shortest_input=min(usual.shortest_input, longest_input or usual.shortest_input),
    )
    return list(islice(generate_conversations(shape, seed), requests or _GENERATED_REQUESTS))


def _origin(url: str) -> Origin:
    try:
        return Origin.parse(url)
    except ValueError as error:
        raise click.UsageError(f"--url {error}") from None


_BAR_SECONDS = 0.25
_LINE_SECONDS = 5.0


def state_line(tally: Tally, in_flight: int, total: int | None) -> str:
    """Return a line with the present numbers of requests and the median TTFT."""
    sent = f"{tally.sent}/{total}" if total is not None else str(tally.sent)
    counts = "  ".join(f"{verdict.value} {tally.verdicts[verdict]}" for verdict in ReplayVerdict)
    ttft = f"  TTFT p50 {percentile(sorted(tally.ttft), 50) * tally.time_scale:.3f} s" if tally.ttft else ""
    return f"sent {sent}  {counts}  in flight {in_flight}{ttft}"


async def show_progress(replay: Replay, total: int | None, console: Console) -> None:
    """Show the progress of the replay until the call is cancelled. `total` is the number of requests to send; None if
    the replay has no end.
    """
    if not console.is_terminal:
        while True:
            await asyncio.sleep(_LINE_SECONDS)
            console.print(f"replay: {state_line(replay.tally, replay.in_flight, total)}", highlight=False, soft_wrap=True)
    columns = (TextColumn("replay"), BarColumn(bar_width=12), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        while True:
            counts = replay.tally.verdicts
            description = (
                f"served {counts[ReplayVerdict.SERVED]} rejected {counts[ReplayVerdict.REJECTED]} failed {counts[ReplayVerdict.FAILED]}"
            )
            progress.update(task, completed=replay.tally.ended, description=description)
            await asyncio.sleep(_BAR_SECONDS)

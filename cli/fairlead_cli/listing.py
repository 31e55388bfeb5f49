"""Lists on the command line: the same options for each list, as a table, JSON or CSV, once or repeatedly.

A list command requests page after page from the API until it has the number of rows in `--limit`. CSV is streamed as
the API exports it, so that it may have any length.
"""

import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Generic, TypeVar

import click
import msgspec

from fairlead_cli.asking import ask, token_option, url_option
from fairlead_cli.printing import print_json, print_table
from fairlead_client.client import ControlApi
from fairlead_client.problems import ApiProblem, ApiUnreachable
from fairlead_client.public.calling import Query
from fairlead_client.resources.pages import Page
from fairlead_process.option_types import NumberOption, TimeOption

Item = TypeVar("Item")

PAGE = 100
"""Maximum number of rows per page of the control API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Settings of a command: the form in which it prints its result, and the control API that it asks."""

    url: tuple[str, ...]
    token: str | None
    output: str
    watch: bool
    every: float


@dataclass(frozen=True, slots=True, kw_only=True)
class List(Generic[Item]):
    """A list of the control API: how to request a page, the path of its export, and the table cells of a row."""

    fetch: Callable[[ControlApi, dict[str, Any]], Awaitable[Page[Item]]]
    path: str
    columns: Sequence[str]
    row: Callable[[Item], Sequence[str]]
    empty: str


def look_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-o table|json`, `--watch`, `--url` and `--token` to a command, which gets them as one `Look`."""
    return _look_options(("table", "json"), command)


def list_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `look_options`, `-o csv` and `--limit`."""
    limit = click.option(
        "--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of rows; default for CSV: all."
    )
    return limit(_look_options(("table", "json", "csv"), command))


def range_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--from`, `--to` and `--oldest-first` to a command, which gets them as one mapping `span`."""

    @click.option("--from", "start", type=TimeOption(), help="Begin: RFC 3339, or as now-6h.")
    @click.option("--to", "end", type=TimeOption(), help="End: RFC 3339, or as now-1h.")
    @click.option("--oldest-first", is_flag=True, help="Begin with the oldest.")
    @wraps(command)
    def with_range(*arguments: Any, start: str | None, end: str | None, oldest_first: bool, **options: Any) -> Any:
        return command(*arguments, span={"from": start, "to": end, "sort": "at" if oldest_first else None}, **options)

    return with_range


def _look_options(outputs: Sequence[str], command: Callable[..., Any]) -> Callable[..., Any]:
    @click.option("-o", "--output", type=click.Choice(outputs), default="table", show_default=True, help="What is printed.")
    @click.option("-w", "--watch", is_flag=True, help="Repeat the request until Ctrl-C.")
    @click.option(
        "--every",
        type=NumberOption(least=0.2, most=86_400),
        default=2.0,
        show_default=True,
        help="Seconds between two requests of --watch.",
    )
    @url_option
    @token_option
    @wraps(command)
    def with_look(*arguments: Any, output: str, watch: bool, every: float, url: tuple[str, ...], token: str | None, **options: Any) -> Any:
        if watch and output == "csv":
            raise click.UsageError("--watch prints tables or JSON; leave out -o csv")
        return command(*arguments, look=Look(url=url, token=token, output=output, watch=watch, every=every), **options)

    return with_look


def show_list(look: Look, listed: List[Item], filters: Query, limit: int) -> None:
    """Print a list as the options say. Raises ClickException if the control API refuses."""
    if look.output == "csv":
        limited = click.get_current_context().get_parameter_source("limit") is not click.core.ParameterSource.DEFAULT
        ask(look.url, look.token, lambda api: _stream(api, f"{listed.path}.csv", filters, limit if limited else None))
        return

    def show(found: list[Item]) -> None:
        if look.output == "json":
            print_found(look, found)
        elif found:
            print_table(listed.columns, [listed.row(one) for one in found])
        else:
            click.echo(listed.empty)

    watched(look, lambda api: rows_of(api, listed, filters, limit), show)


def watched(look: Look, question: Callable[[ControlApi], Awaitable[Item]], show: Callable[[Item], None]) -> None:
    """Request something from the control API and show the result, once or until Ctrl-C. With `--watch`, an API that
    cannot be reached is reported, and the request is repeated.
    """
    while True:
        try:
            found = ask(look.url, look.token, question)
        except click.ClickException as refusal:
            if not (look.watch and _passes(refusal.__cause__)):
                raise
            click.echo(f"fairlead: {refusal.message}; asking again", err=True)
        else:
            if look.watch and sys.stdout.isatty():
                click.clear()
            show(found)
        if not look.watch:
            return
        sys.stdout.flush()
        time.sleep(look.every)


def print_found(look: Look, found: object) -> None:
    """Print JSON: indented, or with `--watch` one line per repetition."""
    if look.watch:
        click.echo(msgspec.json.encode(found).decode())
    else:
        print_json(found)


async def rows_of(api: ControlApi, listed: List[Item], filters: Query, limit: int) -> list[Item]:
    """Return the first `limit` rows of a list, requested page by page."""
    found: list[Item] = []
    cursor: str | None = None
    while len(found) < limit:
        page = await listed.fetch(api, {**filters, "cursor": cursor, "limit": min(PAGE, limit - len(found))})
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


async def _stream(api: ControlApi, path: str, filters: Query, limit: int | None) -> None:
    """Print the CSV export while it arrives; with a `limit`, the header and at most this many records."""
    out = sys.stdout.buffer
    left = None if limit is None else limit + 1
    quoted = False
    async for chunk in api.export(path, filters):
        for line in [chunk] if left is None else chunk.splitlines(keepends=True):
            out.write(line)
            if left is not None:
                quoted ^= line.count(b'"') % 2 == 1  # a newline within quotes does not end a record
                left -= not quoted and line.endswith(b"\n")
                if left == 0:
                    return


def _passes(cause: BaseException | None) -> bool:
    return isinstance(cause, ApiUnreachable) or (isinstance(cause, ApiProblem) and cause.retryable)

"""Output of commands: tables for people, JSON and CSV for programs."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any

import click
import msgspec
from rich.console import Console

from fairlead.percentages import percentage
from fairlead_process.commands import ExitCode
from fairlead_process.option_types import output_option
from fairlead_process.tables import plain_table, print_whole, seconds_words


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-o table|json` (and `--json`, its older spelling) to a command, which gets it as `as_json`."""

    @click.option("--json", "old_spelling", is_flag=True, hidden=True)
    @wraps(command)
    def with_output(*arguments: Any, as_json: bool, old_spelling: bool, **options: Any) -> Any:
        return command(*arguments, as_json=old_spelling or as_json, **options)

    return output_option(with_output)


def print_json(found: object) -> None:
    """Print resources as the API returns them, indented."""
    click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())


def print_done(as_json: bool, found: object, line: str) -> None:
    """Print the result of a command: the resource as JSON, or the line for people."""
    if as_json:
        print_json(found)
    else:
        click.echo(line)


def confirm(yes: bool, question: str) -> None:
    """Ask the question, unless `yes` is given. Raises Exit if the user declines."""
    if not yes and not click.confirm(question, err=True):
        click.echo("Nothing was changed.", err=True)
        raise click.exceptions.Exit(ExitCode.FAILED)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below the column names, without rules between them."""
    table = plain_table(columns)
    for row in rows:
        table.add_row(*row)
    print_whole(Console(highlight=False, markup=False, emoji=False), table)


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair per line."""
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        click.echo(f"{name:<{width}}  {value}".rstrip())


def when(at: datetime | None) -> str:
    """Return a time in UTC, to the second; `-` for None."""
    return "-" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def percent(share: float | None) -> str:
    return "-" if share is None else percentage(share).replace(" %", "%")


def seconds(value: float | None) -> str:
    """Return a duration in the form for people; `-` for None."""
    return "-" if value is None else seconds_words(value)


def short(text: object, most: int = 60) -> str:
    """Return the text, cut after `most` characters; `-` for None."""
    shown = "-" if text is None else str(text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def steps(diff: list[dict[str, Any]]) -> list[str]:
    """Return a line for each changed value of a diff."""
    return [f"  {step['path']}: {_value(step.get('before'))} → {_value(step.get('after'))}" for step in diff]


def _value(value: Any) -> str:
    text = "(unset)" if value is None else str(value)
    return text if len(text) <= 200 else f"{text[:199]}…"


def time_words(at: datetime | None) -> str:
    """Return a time in UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if at is not None else "unknown"

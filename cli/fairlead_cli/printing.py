"""What commands print: tables for people, JSON for programs."""

from collections.abc import Sequence

import click
import msgspec
from rich.console import Console
from rich.table import Table


def print_json(found: object) -> None:
    """Resources as they come from the API, indented."""
    click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows below the names of the columns, without lines."""
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*row)
    Console(soft_wrap=True, highlight=False, markup=False, width=240).print(table)

"""Tables and durations as commands print them: in one style, and with every cell whole even in a narrow window."""

from collections.abc import Collection, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.segment import Segment, Segments
from rich.table import Table

WIDEST = 100_000
"""Maximum width of a line in columns. A terminal breaks lines that are longer than its own width, and a pipe takes them
whole.
"""


def plain_table(columns: Sequence[str], right: Collection[str] = ()) -> Table:
    """Return a table without rules between its cells, to which rows are added one by one; columns in `right` are
    aligned to the right.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    return table


def print_whole(console: Console, table: Table) -> None:
    """Print a table as wide as its cells are, because a name that is cut cannot be copied."""
    width = Measurement.get(console, console.options.update(width=WIDEST), table).maximum
    for line in console.render_lines(table, console.options.update(width=width), pad=False):
        console.print(Segments([*line, Segment.line()]), end="", crop=False, soft_wrap=True)


def seconds_words(value: float) -> str:
    """Return a duration in seconds as three digits in a unit that needs no exponent: 62.2 µs, 3.5 ms, 12.3 s, 1,235
    s.
    """
    if not value:
        return "0 s"
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        scaled = value * factor
        if abs(scaled) >= 0.9995:
            return f"{scaled:,.0f} {unit}" if abs(scaled) >= 99.95 else f"{scaled:.3g} {unit}"
    return f"{value * 1e6:.3f} µs"

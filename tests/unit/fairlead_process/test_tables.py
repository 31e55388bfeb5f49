"""Tables that commands print: cells are complete at any width of the window, and durations have no exponent."""

import io
import re

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fairlead_process.tables import plain_table, print_whole, seconds_words
from fairlead_testing.examples import examples

_CELLS = st.text("abcdefgh-.0123456789[]:", min_size=1, max_size=90)


@examples(200)
@given(rows=st.lists(st.tuples(_CELLS, _CELLS, _CELLS), min_size=1, max_size=4), width=st.integers(1, 300))
def test_every_cell_is_whole_and_on_the_line_of_its_row(rows: list[tuple[str, str, str]], width: int) -> None:
    table, text = plain_table(("Name", "Number", "Detail"), right={"Number"}), io.StringIO()
    for row in rows:
        table.add_row(*row)
    print_whole(Console(file=text, width=width, markup=False, emoji=False, highlight=False), table)
    shown = [line.split() for line in text.getvalue().splitlines()]
    assert shown == [["Name", "Number", "Detail"], *map(list, rows)]


_UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


@examples(300)
@given(value=st.floats(1e-9, 1e7))
def test_a_duration_is_read_as_it_is(value: float) -> None:
    number, unit = seconds_words(value).split()
    assert re.fullmatch(r"[0-9,]+(\.[0-9]+)?", number)
    assert abs(float(number.replace(",", "")) * _UNITS[unit] - value) <= max(0.006 * value, 1e-9)


def test_durations_have_the_unit_of_their_size() -> None:
    assert [seconds_words(one) for one in (0, 6.22e-05, 0.0035, 0.25, 1, 12.345, 1234.5)] == [
        "0 s", "62.2 µs", "3.5 ms", "250 ms", "1 s", "12.3 s", "1,234 s",
    ]  # fmt: skip

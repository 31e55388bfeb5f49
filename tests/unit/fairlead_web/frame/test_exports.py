"""Cells that a spreadsheet would run as a formula arrive as text, however the stream is cut."""

import csv
import io
from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from fairlead.spreadsheets import harmless
from fairlead_testing.examples import examples
from fairlead_web.frame.exports import BOM, csv_file, csv_lines, harmless_csv


@given(
    st.lists(st.lists(st.text('ab=+-@,"\n\r\té1', max_size=8), min_size=2, max_size=2), min_size=1, max_size=8),
    st.integers(1, 9),
)
@examples(120)
async def test_a_stream_cut_anywhere_keeps_its_records(rows: list[list[str]], size: int) -> None:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    data = text.getvalue().encode()

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(data), size):
            yield data[at : at + size]

    made = b"".join([chunk async for chunk in harmless_csv(chunks())]).decode("utf-8-sig")
    read = list(csv.reader(io.StringIO(made, newline="")))
    assert read == [[harmless(cell) for cell in row] for row in rows]


def test_lines_are_quoted_where_needed() -> None:
    assert list(csv_lines([["a,b", '"q"', "=x"]])) == ['"a,b","""q""",\'=x\r\n']


def test_a_file_begins_with_the_mark_by_which_spreadsheets_know_utf_8() -> None:
    assert "".join(csv_file([["كاميل"]])).encode().startswith(b"\xef\xbb\xbf")
    assert next(iter(csv_file([]))) == BOM

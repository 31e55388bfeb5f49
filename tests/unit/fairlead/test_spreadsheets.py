"""Cells that a spreadsheet would run as formulas are exported as text, also if it separates cells by semicolons or
tabs.
"""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.spreadsheets import harmless
from fairlead_api.http.documents import cell as cell_of_the_api
from fairlead_testing.examples import examples


@pytest.mark.parametrize(
    ("cell", "safe"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("+cmd", "'+cmd"),
        ("-x", "'-x"),
        ("\tx", "'\tx"),
        ("-1.5", "-1.5"),
        (" =1+1", "' =1+1"),
        ("\n=1", "'\n'=1"),
        ("＝1+1", "'＝1+1"),
        ("a;=1+1", "a;'=1+1"),
        ("a\n =1+1", "a\n '=1+1"),
        ('a;"=1+1"', 'a;"\'=1+1"'),
        ("a; b=1; c-d", "a; b=1; c-d"),
        (" plain", " plain"),
        ("plain", "plain"),
        ("", ""),
        ("'=done", "'=done"),
    ],
)
def test_cells_become_harmless_and_numbers_stay_numbers(cell: str, safe: str) -> None:
    assert harmless(cell) == safe
    assert cell_of_the_api(cell) == safe, "the API, the pages and the command line write alike"


def test_the_values_of_an_object_in_a_cell_are_judged_too() -> None:
    assert cell_of_the_api({"reason": "a;=1+1"}) == '{"reason":"a;\'=1+1"}'
    assert cell_of_the_api(-5) == "-5"


@given(st.text("a=+-@＝;,\t\n\r\"' 1", max_size=10), st.sampled_from(",;\t"))
@examples(300)
def test_no_cell_begins_with_a_formula_whatever_separates_cells(cell: str, separator: str) -> None:
    safe = harmless(cell)
    assert harmless(safe) == safe
    written = io.StringIO(newline="")
    csv.writer(written, lineterminator="\r\n").writerow(["x", safe, "y"])
    for row in csv.reader(io.StringIO(written.getvalue(), newline=""), delimiter=separator):
        for found in row:
            assert found.lstrip(" ")[:1] not in set("=+-@＝＋－＠") or is_number(found), row


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

"""Cells as bytes, numbers and clicks."""

import json
import struct
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import InstanceState, Role
from fairlead.reports.bindings import BindingReason
from fairlead_client.resources.heatmaps import Heatmap, HeatmapMigration, HeatmapRow
from fairlead_testing.examples import examples
from fairlead_web.frame import exports
from fairlead_web.heatmaps.cells import (
    EXACT_CELLS,
    LOW_HURTS,
    bare_of,
    cell_at,
    cell_size,
    extremes_of,
    levels,
    packed,
    peak_of,
    picture,
    step_of,
    summary,
    text_of,
)
from fairlead_web.heatmaps.palette import NO_DATA, cividis, encode_png

START = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


def heatmap(rows: list[list[float | None]], unit: str = "seconds", limit: float | None = None) -> Heatmap:
    columns = len(rows[0]) if rows else 0
    return Heatmap(
        pool="default/chat",
        metric="ttft_p95",
        unit=unit,
        aggregate="max",
        scale="relative",
        start=START,
        step_seconds=30,
        columns=columns,
        maximum=10.0,
        limit=limit,
        group="instance",
        rows_total=len(rows),
        rows=[
            HeatmapRow(
                instance=f"chat-b{index}",
                state=InstanceState.SERVING,
                role=Role.BOTH,
                node=None,
                members=1,
                values=values,
                breaches=[column for column, value in enumerate(values) if limit is not None and value is not None and value > limit],
            )
            for index, values in enumerate(rows)
        ],
        migrations=[HeatmapMigration(id="m-1", at=START, source="chat-b0", target="chat-b1", trigger=BindingReason.SLO, count=2)]
        if rows
        else [],
        migrations_total=2 if rows else 0,
    )


def unpacked(data: bytes) -> tuple[dict[str, object], bytes, list[int]]:
    (size,) = struct.unpack("<I", data[:4])
    header = json.loads(data[4 : 4 + size])
    cells = len(header["rows"]) * header["columns"]
    body = data[4 + size : 4 + size + cells]
    at = (4 + size + cells + 3) // 4 * 4
    steps = list(struct.unpack(f"<{cells}I", data[at:])) if header["exact"] else []
    return header, body, steps


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "tokens", "no data"),
        (12345, "tokens", "12,345 tokens"),
        (0.8344, "share", "83.4 %"),
        (1.2346, "seconds", "1.24 s"),
        (1, "requests", "1 request"),
        (2.25, "requests", "2.3 requests"),
        (0, "requests", "0 requests"),
        (1.339, "requests/s", "1.34 requests/s"),
    ],
)
def test_exact_numbers_read_with_their_unit(value: float | None, unit: str, text: str) -> None:
    assert text_of(value, unit) == text


@given(st.lists(st.lists(st.one_of(st.none(), st.floats(0, 40)), min_size=5, max_size=5), min_size=1, max_size=6))
@examples(60)
def test_the_canvas_gets_every_cell_and_its_exact_number(rows: list[list[float | None]]) -> None:
    made = heatmap(rows, limit=5.0)
    header, body, steps = unpacked(packed(made))
    assert body == levels(made)
    flat = [value for row in rows for value in row]
    assert steps == [0xFFFFFFFF if value is None else step_of(value, "seconds") for value in flat]
    over = [level > header["limit_level"] and level != NO_DATA for level in body]  # type: ignore[operator]  # decoded JSON
    assert over == [column in row.breaches for row in made.rows for column in range(made.columns)], "levels tell what is over"


def test_big_maps_leave_the_exact_numbers_to_a_second_question() -> None:
    made = heatmap([[1.0] * 360 for _ in range(EXACT_CELLS // 360 + 1)])
    header, body, steps = unpacked(packed(made))
    assert header["exact"] is False
    assert len(body) == len(made.rows) * 360
    assert steps == []


def test_an_empty_map_is_one_transparent_pixel() -> None:
    assert picture(heatmap([])) == encode_png(1, 1, b"\xff", cividis())


@given(st.integers(1, 360), st.integers(1, 512), st.data())
@examples(60)
def test_a_click_anywhere_in_a_cell_finds_that_cell(columns: int, rows: int, data: st.DataObject) -> None:
    made = replace(heatmap([[0.0]]), columns=columns, rows=[replace(heatmap([[0.0]]).rows[0], instance=f"i{n}") for n in range(rows)])
    column, row = data.draw(st.integers(0, columns - 1)), data.draw(st.integers(0, rows - 1))
    size = cell_size(columns, rows)
    x = column * size.width + data.draw(st.integers(0, size.width - 1))
    y = row * size.height + data.draw(st.integers(0, size.height - 1))
    start = START + timedelta(seconds=30 * column)
    assert cell_at(made, x, y) == (f"i{row}", start, start + timedelta(seconds=30))


def test_a_click_outside_finds_nothing() -> None:
    assert cell_at(heatmap([[1.0]]), 5000, 0) is None


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(12345.0, "tokens", "12,345"), (0.0, "tokens", "0"), (3.5, "requests", "3.5"), (0.5, "share", "50.0 %"), (None, "tokens", "–")],
)
def test_a_tables_cells_leave_the_unit_to_its_heading(value: float | None, unit: str, text: str) -> None:
    assert bare_of(value, unit) == text


@given(
    st.lists(st.lists(st.none() | st.integers(0, 3).map(float), min_size=4, max_size=4), min_size=1, max_size=4),
    st.sampled_from(["ttft_p95", LOW_HURTS]),
)
@examples(50)
def test_the_peak_is_the_newest_of_the_worst_cells_and_the_summary_names_it(rows: list[list[float | None]], metric: str) -> None:
    shown = replace(heatmap(rows), metric=metric)
    cells = [(value, column, row.instance) for row in shown.rows for column, value in enumerate(row.values) if value is not None]
    peak = peak_of(shown, extremes_of(shown))
    if not cells:
        assert peak is None
        return
    assert peak is not None
    worst = (min if metric == LOW_HURTS else max)(value for value, _, _ in cells)
    newest = max(column for value, column, _ in cells if value == worst)
    assert (peak.value, peak.start) == (worst, START + timedelta(seconds=30 * newest))
    assert (worst, newest, peak.row.instance) in cells
    which = "Lowest" if metric == LOW_HURTS else "Highest"
    assert summary(shown, extremes_of(shown)).startswith(
        f"{which}: {text_of(worst, shown.unit)} on {peak.row.instance} at {peak.start:%Y-%m-%d %H:%M:%S} UTC."
    )


def test_the_summary_names_the_peak_and_counts_the_breaches() -> None:
    shown = heatmap([[1.0, None], [2.0, 9.5]], limit=5.0)
    text = summary(shown, extremes_of(shown))
    assert text == "Highest: 9.50 s on chat-b1 at 2026-11-21 10:00:30 UTC. 1 of 3 cells over the limit of 5.00 s."
    assert summary(heatmap([[None]]), []) == "No load was recorded in this range."


def test_the_extremes_are_of_what_was_measured_and_of_no_row_without_any() -> None:
    found = extremes_of(heatmap([[1.0, None, 0.5], [None, None, None], [2.0, 9.5, 3.0]]))
    assert [(one.row.instance, one.lowest, one.highest) for one in found] == [("chat-b0", 0.5, 1.0), ("chat-b2", 2.0, 9.5)]


def test_the_csv_has_a_column_per_bucket_and_leaves_no_data_empty() -> None:
    lines = list(exports.csv_lines(exports.heatmap_rows(heatmap([[1.25, None]]))))
    assert lines == ["instance,state,role,2026-11-21T10:00:00Z,2026-11-21T10:00:30Z\r\n", "chat-b0,Serving,both,1.25,\r\n"]

"""The grid of a heatmap, the order of its rows, and their groups."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead.instances import InstanceState, Role
from fairlead.reports.bindings import BindingReason
from fairlead.tables import SloFacts
from fairlead_api.loads.heatmaps import MANY_ROWS, MAX_COLUMNS, MAX_ROWS, UNKNOWN, Grid, Kept, Limits, Place, Slice, grid, heatmap
from fairlead_client.resources.heatmaps import Heatmap, HeatmapMigration

NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)
KEPT = Kept(seconds=timedelta(days=2), tens=timedelta(days=7))


@given(st.integers(1, 400 * 86400), st.integers(1, MAX_COLUMNS))
def test_a_grid_covers_its_range_with_no_more_columns_than_asked(seconds: int, columns: int) -> None:
    if seconds / columns > 80000:
        return
    start = NOW - timedelta(seconds=seconds)
    try:
        found = grid(start, NOW, columns)
    except InvalidInput:
        assert columns < 2 or seconds / (columns - 1) > 80000
        return
    assert found.columns <= columns
    assert found.start <= start
    assert found.end >= NOW
    assert int(found.start.timestamp()) % found.step == 0


@pytest.mark.parametrize(("days", "columns", "source"), [(0, 360, "1s"), (1.9, 360, "1s"), (3, 60, "10s"), (8, 10, "1m"), (60, 10, "1m")])
def test_a_heatmap_of_the_past_is_as_fine_as_what_is_kept_of_then(days: float, columns: int, source: str) -> None:
    start = NOW - timedelta(days=days, minutes=10)
    found = grid(start, start + timedelta(minutes=10), 360, KEPT.finest(start, NOW))
    assert (found.source, found.columns) == (source, columns if source != "1s" else 300)


SERVING = Place(state=InstanceState.SERVING, role=Role.BOTH)
THREE = Grid(start=NOW, step=30, columns=3)


def made(
    values: dict[str, list[float | None]],
    metric: str = "ttft_p95",
    sort: str = "name",
    group: str = "instance",
    places: dict[str, Place] | None = None,
    moves: tuple[HeatmapMigration, ...] = (),
    aggregate: str = "max",
    speed: float | None = None,
) -> Heatmap:
    slices = [
        Slice(column=column, instances=[name], values=[value], seconds=[])
        if aggregate == "max"
        else Slice(column=column, instances=[name], values=[value * 2], seconds=[2])
        for name, row in values.items()
        for column, value in enumerate(row)
        if value is not None
    ]
    limits = Limits(slo=SloFacts(ttft_seconds=5.0, tpot_seconds=0.1), prefill_speed=speed)
    return heatmap("default/chat", metric, aggregate, sort, THREE, slices, places or {}, limits, moves, len(moves), group)


def order(found: Heatmap) -> list[str]:
    return [row.instance for row in found.rows]


def test_pain_is_how_far_over_the_limit_and_for_how_long() -> None:
    rows: dict[str, list[float | None]] = {
        "short-peak": [None, 9.0, 1.0],
        "long": [7.5, 7.5, 7.5],
        "busy": [4.9, 4.9, 4.9],
        "calm": [0.1, 0.1, None],
    }
    assert order(made(rows, sort="pain")) == ["long", "short-peak", "busy", "calm"]
    assert order(made(rows, sort="max")) == ["short-peak", "long", "busy", "calm"]


def test_of_a_metric_that_is_good_when_high_the_lowest_mean_hurts_most() -> None:
    assert order(made({"warm": [0.9, 0.8, 0.9], "cold": [0.1, 0.2, 0.9]}, metric="hit_rate", sort="pain")) == ["cold", "warm"]


def test_a_groups_cell_is_of_all_its_instances() -> None:
    places = {
        "a": Place(state=InstanceState.SERVING, role=Role.BOTH, node="n1"),
        "b": Place(state=InstanceState.DRAINING, role=Role.BOTH, node="n1"),
        "c": SERVING,
        "d": Place(state=InstanceState.SERVING, role=Role.BOTH, node="n1"),
    }
    values: dict[str, list[float | None]] = {"a": [1.0, None, 6.0], "b": [3.0, None, 2.0], "c": [None, 2.0, None]}
    found = made(values, group="node", places=places)
    assert [(row.instance, row.members, row.values, row.breaches) for row in found.rows] == [
        ("n1", 3, [3.0, None, 6.0], [2]),
        ("no node", 1, [None, 2.0, None], []),
    ]
    assert found.rows[0].state is InstanceState.SERVING
    assert made(values, group="node", places=places, aggregate="mean").rows[0].values == [2.0, None, 4.0]


def test_moves_between_groups_are_one_arrow_and_those_within_a_group_none() -> None:
    def move(name: str, source: str, target: str, seconds: int, count: int) -> HeatmapMigration:
        at = NOW + timedelta(seconds=seconds)
        return HeatmapMigration(id=name, at=at, source=source, target=target, trigger=BindingReason.SLO, count=count)

    places = {name: Place(state=InstanceState.SERVING, role=Role.BOTH, node=node) for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2"))}
    moves = (move("m1", "a", "c", 1, 2), move("m2", "b", "c", 9, 3), move("m3", "a", "b", 10, 4), move("m4", "a", "c", 40, 1))
    found = made({"a": [1.0, 1.0, 1.0]}, group="node", places=places, moves=moves)
    assert [(one.id, one.source, one.target, one.count) for one in found.migrations] == [("m2", "n1", "n2", 5), ("m4", "n1", "n2", 1)]


def test_more_rows_than_fit_are_counted_and_the_most_painful_kept() -> None:
    values: dict[str, list[float | None]] = {f"i{number:04}": [float(number), None, None] for number in range(MAX_ROWS + 88)}
    found = made(values, sort="pain", places=dict.fromkeys(values, SERVING))
    assert (len(found.rows), found.rows_total) == (MAX_ROWS, MAX_ROWS + 88)
    assert found.rows[0].instance == f"i{MAX_ROWS + 87:04}"
    assert min(order(found)) == "i0088"


CELLS = st.lists(st.lists(st.none() | st.integers(0, 9).map(float), min_size=3, max_size=3), min_size=6, max_size=6)
"""Values of three instances in six buckets, two to a column."""


@given(CELLS, st.sampled_from(["max", "mean"]), st.sampled_from(["instance", "node"]), st.sets(st.integers(0, 5)))
def test_whole_columns_are_arranged_as_their_cells_one_by_one(
    buckets: list[list[float | None]], aggregate: str, group: str, alone: set[int]
) -> None:
    names = ["a", "b", "gone"]
    places = {"a": SERVING, "b": Place(state=InstanceState.DRAINING, role=Role.BOTH, node="n1"), "gone": UNKNOWN}
    seconds = [[0 if value is None else 2 for value in values] for values in buckets]
    whole = [
        Slice(
            column=number // 2,
            instances=list(names) if number in alone else names,
            values=values,
            seconds=seconds[number] if aggregate == "mean" else (),
        )
        for number, values in enumerate(buckets)
    ]
    cells = [
        Slice(column=number // 2, instances=[name], values=[value], seconds=[2] if aggregate == "mean" else ())
        for number, values in enumerate(buckets)
        for name, value in zip(names, values, strict=True)
        if value is not None
    ]
    found, wanted = (
        heatmap("default/chat", "running", aggregate, "max", THREE, slices, places, Limits(slo=SloFacts()), (), 0, group)
        for slices in (whole, cells)
    )
    assert found == wanted


def test_pending_prefill_is_limited_by_what_routers_take_as_too_much_for_the_ttft_target() -> None:
    rows: dict[str, list[float | None]] = {"a": [20_000.0, 62_500.0, 62_501.0]}
    known = made(rows, "pending_prefill_tokens", speed=12_500.0)
    assert (known.scale, known.limit, known.rows[0].breaches) == ("absolute", 62_500, [2])
    unknown = made(rows, "pending_prefill_tokens")
    assert (unknown.scale, unknown.limit) == ("relative", None)


@pytest.mark.parametrize(("rows", "first"), [(MANY_ROWS, "i00"), (MANY_ROWS + 1, "i07")])
def test_many_rows_begin_with_the_worst(rows: int, first: str) -> None:
    found = made({f"i{at:02}": [9.0 if at == 7 else 1.0] for at in range(rows)}, sort="auto")
    assert found.rows[0].instance == first
    assert found.sort == ("name" if rows == MANY_ROWS else "pain")

"""Rows of a trace become jobs."""

from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from fairlead_simulator.errors import WorkloadImpossible
from fairlead_simulator.experiments.arrival_plans import STRETCHES, ArrivalPlan, Workload, exchanged, ideal_hits, load_workload, plan_jobs
from fairlead_simulator.traces.rows import TraceRow


def row(
    stamp: float, ids: tuple[int, ...], *, session: str | None = None, pause_ms: float | None = None, length: int | None = None
) -> TraceRow:
    return TraceRow(
        timestamp_ms=stamp,
        input_length=length or 512 * len(ids),
        output_length=10,
        hash_ids=ids,
        session=session,
        pause_ms=pause_ms,
    )


def workload(rows: list[TraceRow], requests: int | None = None, max_input: int | None = None) -> Workload:
    return load_workload(rows, requests=requests, max_input=max_input, infer_sessions=True)


GROUPS = [row(stamp, (0, 10 * number + place)) for number, stamp in enumerate((1000.0, 4000.0, 7000.0)) for place in range(3)]


def test_equal_stamps_are_spread_over_the_gap_and_the_rate_is_met() -> None:
    one = workload(GROUPS)
    assert one.seconds == pytest.approx(list(range(9)))
    jobs = plan_jobs(one, ArrivalPlan(rate=2.0, spread="even"))
    assert [job.arrives_at for job in jobs] == pytest.approx([0.5 * number for number in range(9)])


def test_requests_of_one_moment_come_evenly_at_the_rate() -> None:
    jobs = plan_jobs(workload([row(5.0, (number,)) for number in range(4)]), ArrivalPlan(rate=2.0, warmup=2, warmup_rate=4.0))
    assert [job.arrives_at for job in jobs] == pytest.approx([0.0, 0.25, 0.75, 1.25])


def test_random_spreading_differs_by_seed_and_keeps_groups_in_order() -> None:
    one = workload(GROUPS)
    times = [[job.arrives_at for job in plan_jobs(one, ArrivalPlan(rate=1.0, seed=seed))] for seed in (0, 0, 1)]
    assert times[0] == times[1] != times[2]
    for arrivals in times:
        assert all(earlier <= later for earlier, later in pairwise(arrivals))
        assert 8 / (arrivals[-1] - arrivals[0]) == pytest.approx(1.0)


def test_bursts_can_stay_together() -> None:
    jobs = plan_jobs(workload(GROUPS), ArrivalPlan(rate=1.0, spread="none"))
    assert len({job.arrives_at for job in jobs}) == 3


def test_the_warm_up_has_its_own_rate_and_comes_first() -> None:
    jobs = plan_jobs(workload(GROUPS), ArrivalPlan(rate=4.0, warmup=5, warmup_rate=0.5, spread="even"))
    times = [job.arrives_at for job in jobs]
    assert times[4] == pytest.approx(4 / 0.5)
    assert times[5] == pytest.approx(times[4] + 0.25)
    assert times[8] - times[5] == pytest.approx(3 / 4.0)


def test_long_rows_are_dropped_before_rows_are_counted() -> None:
    rows = [row(0.0, (0, 1)), row(1.0, (0, 2, 3, 4)), row(2.0, (0, 5)), row(3.0, (0, 6))]
    one = workload(rows, requests=2, max_input=2048)
    assert [kept.hash_ids for kept in one.rows] == [(0, 1), (0, 5)]
    assert one.dropped == 1


def test_seeds_rename_blocks_and_keep_what_is_equal() -> None:
    rows = [row(0.0, (0, 1, 2)), row(1.0, (0, 1, 3), length=1400)]
    first, second = (plan_jobs(workload(rows), ArrivalPlan(rate=1.0, seed=seed)) for seed in (0, 1))
    assert first[0].blocks[:2] == first[1].blocks
    assert not set(first[0].blocks) & set(second[0].blocks)
    assert len(set(first[0].blocks)) == 3


def test_ids_of_any_size_stay_apart() -> None:
    rows = [row(0.0, (2**63 + 5, 2**63 + 6)), row(1.0, (2**63 + 5, 7))]
    first, second = plan_jobs(workload(rows), ArrivalPlan(rate=1.0))
    assert first.blocks[0] == second.blocks[0]
    assert len({*first.blocks, *second.blocks}) == 3


def test_sessions_are_the_rows_own_or_inferred_from_prefixes() -> None:
    one = workload([row(0.0, (0, 1), session="a"), row(100.0, (5, 6)), row(200.0, (5, 6, 7))])
    assert one.sessions[0] == "a"
    assert one.sessions[1] == one.sessions[2] is not None
    assert one.found_sessions is not None
    assert (one.found_sessions.named, one.found_sessions.inferred) == (1, 1)


def test_in_a_closed_loop_only_first_turns_have_a_time() -> None:
    rows = [row(0.0, (1,), session="a"), row(1.0, (2,), session="b"), row(2.0, (1, 3), session="a", pause_ms=1500)]
    jobs = plan_jobs(workload(rows), ArrivalPlan(rate=1.0, closed_loop=True))
    assert [job.arrives_at >= 0 for job in jobs] == [True, True, False]
    assert jobs[0].next_job is jobs[2]
    assert jobs[0].next_pause == 1.5


@pytest.mark.parametrize(
    ("rows", "field"),
    [([row(0.0, (1,))], "session_id"), ([row(0.0, (1,), session="a"), row(1.0, (1,), session="a")], "delay")],
)
def test_a_closed_loop_needs_sessions_and_delays(rows: list[TraceRow], field: str) -> None:
    with pytest.raises(WorkloadImpossible, match=f"has no {field}"):
        plan_jobs(workload(rows), ArrivalPlan(rate=1.0, closed_loop=True))


def test_ideal_hits_are_those_of_an_endless_cache() -> None:
    hits, cache = ideal_hits(workload([row(0.0, (0, 1)), row(1.0, (0, 1)), row(2.0, (0, 1, 2))]))
    assert hits == [0, 512, 1024]
    assert cache.block_hit_rate == pytest.approx(4 / 7)


TURNS = some.lists(
    some.tuples(some.integers(0, 100_000), some.none() | some.integers(0, 6), some.integers(1, 2000)), min_size=1, max_size=40
)


def recorded(turns: list[tuple[int, int | None, int]]) -> Workload:
    """Return turns, each with its arrival in ms, its session (None = none) and its tokens."""
    rows = [
        TraceRow(timestamp_ms=at, input_length=tokens, output_length=number + 1, hash_ids=(), session=None if who is None else f"s{who}")
        for number, (at, who, tokens) in enumerate(sorted(turns, key=lambda turn: turn[0]))
    ]
    return load_workload(rows, requests=None, max_input=None, infer_sessions=False)


def by_session(workload: Workload) -> dict[str, list[tuple[float, TraceRow]]]:
    found = defaultdict(list)
    for at, session, row in zip(workload.seconds, workload.sessions, workload.rows, strict=True):
        found[session or f"alone {row.output_length}"].append((at, row))
    return found


@given(TURNS, some.integers(1, 5))
def test_sessions_keep_their_requests_and_pauses_and_begin_when_others_of_the_same_stretch_did(
    turns: list[tuple[int, int | None, int]], seed: int
) -> None:
    before, after = recorded(turns), exchanged(recorded(turns), seed)
    assert list(after.seconds) == sorted(after.seconds)
    assert exchanged(recorded(turns), seed) == after
    was, now = by_session(before), by_session(after)
    assert was.keys() == now.keys()
    length = (before.seconds[-1] - before.seconds[0]) / STRETCHES
    for session, rows in was.items():
        assert [row for _, row in now[session]] == [row for _, row in rows]
        pauses = [at - rows[0][0] for at, _ in rows]
        assert [at - now[session][0][0] for at, _ in now[session]] == pytest.approx(pauses)
        assert abs(now[session][0][0] - rows[0][0]) <= length + 1e-6
    assert sorted(rows[0][0] for rows in now.values()) == pytest.approx(sorted(rows[0][0] for rows in was.values()))


def test_seed_0_is_the_trace_as_it_was_recorded_and_another_is_not() -> None:
    trace = recorded([(1000 * number, number % 7, 100 + number) for number in range(70)])
    assert exchanged(trace, 0) is trace
    assert [row.input_length for row in exchanged(trace, 1).rows] != [row.input_length for row in trace.rows]
    assert exchanged(trace, 1) != exchanged(trace, 2)

"""The load on the pools that the benchmark operates."""

from itertools import islice

import pytest
from benchmarks.pool_operations.designs import Design, kept
from benchmarks.pool_operations.rollouts import rolled_out
from benchmarks.pool_operations.work import work_for

from fairlead_simulator.traces.rows import TraceRow
from fairlead_simulator.workloads import ConversationShape, generate_conversations

ROWS = list(islice(generate_conversations(ConversationShape(), 0), 200))


def test_a_trace_that_would_end_before_the_run_is_refused() -> None:
    with pytest.raises(ValueError, match=r"has 200 requests, and 1 a second for 300 s are 300; lower --rate"):
        work_for(ROWS, rate=1.0, seconds=300, instances=4, utilisation=0.7, tpot_seconds=0.05)


def test_so_many_rows_are_sent_as_the_rate_and_the_time_ask_for() -> None:
    work = work_for(ROWS, rate=0.5, seconds=300, instances=4, utilisation=0.7, tpot_seconds=0.05)
    assert len(work.rows) == len(work.ideal) == 150


def turns(count: int) -> list[TraceRow]:
    """Return a turn every second, of forty sessions in rotation."""
    return [
        TraceRow(
            timestamp_ms=1000 * second, input_length=4 * 512 + 1, output_length=1, hash_ids=(0, *range(100 * session, 100 * session + 3))
        )
        for second in range(count)
        for session in (second % 40 + 1,)
    ]


def test_a_rollout_loses_what_is_not_handed_over_and_nothing_where_all_fetch_or_nothing_is_replaced() -> None:
    work = work_for(turns(400), rate=1.0, seconds=400, instances=4, utilisation=0.7, tpot_seconds=0.1)
    nobody, fetched = (Design(words="", computes=0.0, fetches=fetches) for fetches in (0.0, 100.0))
    before, *after = kept(work, nobody, 4, 100.0, seed=1)
    assert before > 0.98 and min(after) < 0.9
    assert min(kept(work, fetched, 4, 100.0, seed=1)) > 0.98
    assert kept(work, nobody, 4, 1000.0, seed=1) == [0.0] * 4, "no load is left then"


def test_in_virtual_time_too_a_rollout_keeps_the_hits_of_sessions_that_fetch() -> None:
    work = work_for(turns(500), rate=1.0, seconds=500, instances=4, utilisation=0.2, tpot_seconds=0.1)
    nobody, all_fetch = (rolled_out(work, 4, 100.0, 6_000_000, 1, hands_over=hands_over) for hands_over in (False, True))
    assert nobody.handed_over == 0 < 20 < all_fetch.handed_over
    assert all(kept > lost + 0.05 for kept, lost in zip(all_fetch.shares[1:3], nobody.shares[1:3], strict=True))
    assert all_fetch.refused <= nobody.refused

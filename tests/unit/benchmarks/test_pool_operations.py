"""The load that pools are operated under."""

from itertools import islice

import pytest
from benchmarks.pool_operations.designs import Design, kept
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


def test_a_rollout_loses_what_is_not_handed_over_and_nothing_where_all_fetch_or_nothing_is_replaced() -> None:
    rows = [
        TraceRow(
            timestamp_ms=1000 * second, input_length=4 * 512 + 1, output_length=1, hash_ids=(0, *range(100 * session, 100 * session + 3))
        )
        for second in range(400)
        for session in (second % 40 + 1,)
    ]
    work = work_for(rows, rate=1.0, seconds=400, instances=4, utilisation=0.7, tpot_seconds=0.1)
    nobody, fetched = (Design(words="", computes=0.0, fetches=fetches) for fetches in (0.0, 100.0))
    before, *after = kept(work, nobody, 4, 100.0, seed=1)
    assert before > 0.98 and min(after) < 0.9
    assert min(kept(work, fetched, 4, 100.0, seed=1)) > 0.98
    assert kept(work, nobody, 4, 1000.0, seed=1) == [0.0] * 4, "no load is left then"

"""The load that pools are operated under."""

from itertools import islice

import pytest
from benchmarks.pool_operations.work import work_for

from fairlead_simulator.workloads import ConversationShape, generate_conversations

ROWS = list(islice(generate_conversations(ConversationShape(), 0), 200))


def test_a_trace_that_would_end_before_the_run_is_refused() -> None:
    with pytest.raises(ValueError, match=r"has 200 requests, and 1 a second for 300 s are 300; lower --rate"):
        work_for(ROWS, rate=1.0, seconds=300, instances=4, utilisation=0.7, tpot_seconds=0.05)


def test_so_many_rows_are_sent_as_the_rate_and_the_time_ask_for() -> None:
    work = work_for(ROWS, rate=0.5, seconds=300, instances=4, utilisation=0.7, tpot_seconds=0.05)
    assert len(work.rows) == len(work.ideal) == 150

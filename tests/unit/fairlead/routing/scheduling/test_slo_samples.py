from dataclasses import replace

import pytest

from fairlead.latency_cells import cell_of
from fairlead.reports.objectives import MAX_CELLS
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.routing.scheduling.slo_samples import SloSeconds
from fairlead.tables import SloFacts
from fairlead_testing.builders.routing import POOL, table

TABLE = replace(table(1, slo=SloFacts(ttft_seconds=5.0, tpot_seconds=0.1)), slo_version=3)


def test_each_class_and_version_has_its_own_counts() -> None:
    seconds = SloSeconds(POOL, 100)
    seconds.completed("high", TABLE, 10.1, 1.0, 0.05)
    seconds.completed("high", TABLE, 10.2, 5.0, 0.05)
    seconds.completed("high", TABLE, 10.3, 1.0, 0.1)
    seconds.completed("low", TABLE, 10.4, 1.0, None)
    seconds.completed("low", replace(TABLE, slo_version=4), 10.5, 1.0, None)
    seconds.refused("low", TABLE, 10.6)
    seconds.failed("low", TABLE, 10.7)
    assert seconds.take(10.9, final=False) == ()
    high, low, later = seconds.take(11.0, final=False)
    assert (high.priority_class, high.slo_version, high.second) == ("high", 3, 10)
    assert (high.judged, high.within_slo, high.ttft_within_slo, high.tpot_within_slo, high.tpot_total) == (3, 1, 2, 2, 3)
    assert (low.judged, low.within_slo, low.tpot_total, low.refused, low.failed) == (1, 1, 0, 1, 1)
    assert (later.slo_version, later.judged) == (4, 1)
    assert dict(zip(low.cells, low.counts, strict=True)) == {cell_of(1.0, None): 1}
    assert sum(high.counts) == high.judged
    assert seconds.take(12.0, final=True) == ()


def test_what_another_router_counts_is_not_counted_here() -> None:
    seconds = SloSeconds(POOL, 100)
    seconds.pause()
    seconds.completed("default", TABLE, 10.1, 1.0, None)
    seconds.failed("default", TABLE, 10.1)
    seconds.refused("default", TABLE, 10.2)  # a front that finds no engine to try again refuses by itself
    (sample,) = seconds.take(11.0, final=False)
    assert (sample.judged, sample.failed, sample.refused) == (0, 0, 1)
    seconds.resume()
    seconds.completed("default", TABLE, 12.1, 1.0, None)
    assert seconds.take(13.0, final=False)[0].judged == 1


def test_more_cells_than_one_sample_may_hold_are_told_in_several_that_add_up() -> None:
    seconds = SloSeconds(POOL, 100)
    for number in range(60):
        for other in range(60):
            seconds.completed("default", TABLE, 10.0, 1.13**number / 50, 1.13**other / 500)
    taken = seconds.take(11.0, final=False)
    assert [len(sample.cells) <= MAX_CELLS for sample in taken] == [True] * len(taken)
    assert len(taken) > 2
    assert sum(sum(sample.counts) for sample in taken) == sum(sample.judged for sample in taken) == 3600


def test_without_anybody_who_takes_them_no_more_than_the_limit_is_kept() -> None:
    seconds = SloSeconds(POOL, 2)
    for second in range(5):
        seconds.refused("default", TABLE, float(second))
    assert (len(seconds.take(9.0, final=True)), seconds.dropped) == (2, 3)
    unwanted = SloSeconds(POOL, 2, kept=False)
    unwanted.refused("default", TABLE, 1.0)
    assert (unwanted.take(9.0, final=True), unwanted.dropped) == ((), 0)


@pytest.mark.parametrize(
    ("first_token_at", "left_at", "tokens", "streamed", "judged", "in_time"),
    [
        (1.0, 1.05, 1, True, 1, 1),
        (1.0, 1.85, 10, True, 1, 0),
        (6.0, 6.05, 1, True, 1, 0),
        (None, 4.9, 0, True, 0, 0),
        (None, 5.0, 0, True, 1, 0),
        (None, 60.0, 0, True, 1, 0),
        (None, 60.0, 0, False, 0, 0),
    ],
)
def test_a_request_whose_client_left_is_judged_by_what_is_known_of_it(
    first_token_at: float | None, left_at: float, tokens: int, streamed: bool, judged: int, in_time: int
) -> None:
    scheduler = PoolScheduler(replace(TABLE, slo=SloFacts(ttft_seconds=5.0, tpot_seconds=0.09)), "router-0", 0)
    request = RoutingRequest(id="r", arrived_at=0.0, prompt_tokens=100, blocks=(), first_bytes_hash=0, streamed=streamed)
    assert scheduler.submit(request, 0.0)
    if first_token_at is not None:
        scheduler.first_token("r", first_token_at)
        scheduler.generated("r", left_at, tokens)
    scheduler.cancel("r", left_at)
    scheduler.cancel("r", left_at + 1)
    records = scheduler.take_records(left_at + 2, final=True)
    samples = records.slo_samples
    assert sum(sample.judged for sample in samples) == sum(sum(sample.counts) for sample in samples) == judged
    assert sum(sample.within_slo for sample in samples) == in_time
    assert sum(load.judged_by_slo or 0 for load in records.loads) == judged, "as pools and conditions count"
    assert sum(load.within_slo or 0 for load in records.loads) == in_time

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import MigrationRecord, MoveOutcome, ReRouteRecord
from fairlead.routing.admission.refusals import shutting_down, upstream_failed
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.scheduling.load_samples import LoadSeconds, Reservoir
from fairlead.routing.scheduling.recording import Recorder
from fairlead.tables import SloFacts
from fairlead_testing.builders.routing import POOL, entry, request


def recorder(rate: float = 1.0, limit: int = 100) -> Recorder:
    return Recorder(POOL, "router-0", 7, rate, limit)


def move(name: str) -> MigrationRecord:
    return MigrationRecord(
        id=name,
        pool=POOL,
        session="s",
        request="r",
        source="a",
        target="b",
        trigger=BindingReason.HOTSPOT,
        at=0.0,
        predicted_source_ttft_seconds=8.0,
        predicted_target_ttft_seconds=2.0,
        benefit_seconds=6.0,
    )


def reroute(name: str) -> ReRouteRecord:
    return ReRouteRecord(
        id=name,
        pool=POOL,
        session=None,
        request="r",
        source="a",
        target="b",
        trigger=BindingReason.DRAIN,
        at=0.0,
        predicted_source_ttft_seconds=8.0,
        predicted_target_ttft_seconds=2.0,
        benefit_seconds=6.0,
    )


def tracked(name: str = "r") -> TrackedRequest:
    return TrackedRequest(request=request(name), submitted_at=0.0, instance="a")


def test_ids_are_32_hex_digits_that_differ_by_router_seed_and_count() -> None:
    ids = {Recorder(POOL, router, seed, 1.0).new_id() for router in ("router-0", "router-1") for seed in range(50)} | {
        Recorder(POOL, "router-0", 0, 1.0).new_id()
    }
    assert len(ids) == 100
    assert all(len(one) == 32 and int(one, 16) >= 0 for one in ids)


def test_the_outcome_of_a_move_is_written_into_it_when_not_yet_taken() -> None:
    sampling = recorder()
    one = tracked()
    sampling.migrated(move("m1"), one)
    sampling.settle_moves(one, MoveOutcome.COMPLETED, 2.5)
    (record,), outcomes = sampling.take_migrations()
    assert (record.actual_ttft_seconds, record.outcome, outcomes) == (2.5, "completed", ())


def test_a_move_whose_request_has_no_first_token_yet_is_underway() -> None:
    sampling = recorder()
    sampling.migrated(move("m1"), tracked())
    (record,), _ = sampling.take_migrations()
    assert (record.outcome, record.actual_ttft_seconds) == ("underway", None)


def test_migrations_and_reroutes_of_one_request_are_told_apart_with_their_outcomes() -> None:
    sampling = recorder()
    one = tracked()
    sampling.migrated(move("m1"), one)
    sampling.rerouted(reroute("q1"), one)
    sampling.take_reroutes()
    sampling.settle_moves(one, MoveOutcome.COMPLETED, 2.5)
    (migration,), no_outcomes = sampling.take_migrations()
    no_reroutes, (outcome,) = sampling.take_reroutes()
    assert (migration.id, migration.actual_ttft_seconds, no_outcomes) == ("m1", 2.5, ())
    assert (outcome.id, outcome.actual_ttft_seconds, no_reroutes) == ("q1", 2.5, ())


def test_the_outcome_of_a_move_already_taken_is_told_apart() -> None:
    sampling = recorder()
    one = tracked()
    sampling.migrated(move("m1"), one)
    sampling.take_migrations()
    sampling.settle_moves(one, MoveOutcome.CANCELLED)
    sampling.settle_moves(one, MoveOutcome.COMPLETED, 1.0)
    moves, (outcome,) = sampling.take_migrations()
    assert (moves, outcome.id, outcome.outcome, outcome.actual_ttft_seconds) == ((), "m1", "cancelled", None)


def test_refusals_are_counted_per_second_and_cause_with_one_sample() -> None:
    sampling = recorder()
    for number in range(3):
        sampling.refused(shutting_down(request(f"r{number}"), POOL), 5.0 + number / 10)
    sampling.refused(upstream_failed(request("x"), POOL, ("a",)), 5.5)
    assert sampling.take_rejections(5.9, final=False) == ()
    first, second = sampling.take_rejections(6.0, final=False)
    assert (first.count, first.sample_request, first.second, second.count) == (3, "r0", 5, 1)
    sampling.refused(upstream_failed(request("x"), POOL, ("a",)), 6.5)
    assert len(sampling.take_rejections(6.6, final=True)) == 1


def test_records_beyond_the_limit_are_dropped_and_counted() -> None:
    sampling = recorder(limit=2)
    for number in range(5):
        sampling.migrated(move(f"m{number}"), tracked())
    assert len(sampling.take_migrations()[0]) == 2
    assert (sampling.take_dropped(), sampling.take_dropped()) == (3, 0)


def test_a_second_of_load_is_handed_over_once_it_is_finished() -> None:
    seconds = LoadSeconds(POOL, 100)
    load = InstanceLoad(entry=entry("a"), waiting=2, decoding=1)
    seconds.dispatched(load, 10.2)
    assert seconds.take({"a": load}, 10.9, final=False) == ()
    (sample,) = seconds.take({"a": load}, 11.0, final=False)
    assert (sample.second, sample.requests, sample.waiting, sample.running, sample.in_flight) == (10, 1, 2, 1, 3)
    assert seconds.take({"a": load}, 11.5, final=False) == ()


def test_an_idle_instance_gives_its_gauges_for_each_second_that_is_looked_at_once() -> None:
    seconds = LoadSeconds(POOL, 100)
    load = InstanceLoad(entry=entry("a"), kv_usage=0.5)
    samples = [one for now in (10.0, 10.5, 11.0, 12.0) for one in seconds.take({"a": load}, now, final=False)]
    assert [(one.second, one.kv_usage) for one in samples] == [(9, 0.5), (10, 0.5), (11, 0.5)]


def test_the_running_second_is_given_only_in_the_final_take() -> None:
    seconds = LoadSeconds(POOL, 1)
    load = InstanceLoad(entry=entry("a"))
    seconds.failed(load, 10.2)
    (sample,) = seconds.take({}, 10.3, final=True)
    assert (sample.second, sample.failed) == (10, 1)
    seconds.failed(load, 11.0)
    seconds.failed(load, 12.0)
    seconds.failed(load, 13.0)
    assert seconds.dropped == 1


def test_seconds_nobody_wants_are_not_kept() -> None:
    seconds = LoadSeconds(POOL, 100, kept=False)
    load = InstanceLoad(entry=entry("a"))
    seconds.dispatched(load, 10.0)
    seconds.first_token(load, 10.1, 0.1, 5.0)
    finish(seconds, load, 10.2, ttft=0.1, tpot=0.02)
    seconds.failed(load, 10.3)
    seconds.cancelled(load, 10.4)
    seconds.arrived(100, 10.5)
    taken = seconds.take({"a": load}, 20.0, final=True), seconds.take_arrivals(20.0, final=True)
    assert (taken, seconds.dropped) == (((), ()), 0)


def finish(seconds: LoadSeconds, load: InstanceLoad, now: float, *, ttft: float | None, tpot: float | None) -> None:
    """End a request of 10 prompt tokens, judged by a TTFT of 5 s and a TPOT of 0.1 s."""
    slo = SloFacts(ttft_seconds=5.0, tpot_seconds=0.1)
    seconds.completed(
        load, load, now, prompt_tokens=10, hit_tokens=0, output_tokens=5, more_tokens=5, ttft_seconds=ttft, tpot_seconds=tpot, slo=slo
    )


def test_a_request_is_within_the_slo_when_both_its_latencies_are() -> None:
    seconds = LoadSeconds(POOL, 100)
    load = InstanceLoad(entry=entry("a"))
    finish(seconds, load, 10.1, ttft=1.0, tpot=0.05)
    finish(seconds, load, 10.2, ttft=6.0, tpot=0.05)
    finish(seconds, load, 10.3, ttft=1.0, tpot=0.2)
    finish(seconds, load, 10.4, ttft=1.0, tpot=None)  # an answer of one token
    finish(seconds, load, 10.5, ttft=None, tpot=None)  # not streamed: nobody saw its first token
    (sample,) = seconds.take({}, 11.0, final=False)
    assert (sample.within_slo, sample.judged_by_slo, sample.completed) == (2, 4, 5)
    assert (sample.tpot_within_slo, sample.tpot_total) == (2, 3)


def test_what_came_is_counted_whatever_became_of_it() -> None:
    seconds = LoadSeconds(POOL, 2)
    for now, tokens in ((10.1, 100), (10.9, 200), (12.0, 300), (13.0, 1)):
        seconds.arrived(tokens, now)
    assert seconds.dropped == 1
    finished = seconds.take_arrivals(12.5, final=False)
    assert [(one.second, one.requests, one.prompt_tokens, one.prompt_tokens_squared) for one in finished] == [(10, 2, 300, 50_000)]
    assert [(one.second, one.requests) for one in seconds.take_arrivals(12.6, final=True)] == [(12, 1)]


def test_time_spent_prefilling_is_told_exactly_once() -> None:
    seconds = LoadSeconds(POOL, 100)
    load = InstanceLoad(entry=entry("a"))
    load.prefilling = 1
    seconds.dispatched(load, 10.25)
    told = [seconds.take({"a": load}, now, final=False) for now in (11.0, 12.0, 13.0)]
    load.prefilling = 0
    seconds.prefilled(load, 13.75, 3000)
    told += [seconds.take({"a": load}, now, final=False) for now in (15.0, 16.0)]
    samples = [sample for taken in told for sample in taken]
    assert sum(sample.prefilling_seconds or 0.0 for sample in samples) == 3.5
    assert sum(sample.prefilled_tokens or 0 for sample in samples) == 3000
    assert samples[-1].prefilling_seconds == 0.0


def test_a_reservoir_keeps_64_values_drawn_from_all() -> None:
    reservoir = Reservoir()
    for number in range(10_000):
        reservoir.add(float(number))
    assert (len(reservoir.values), reservoir.seen) == (64, 10_000)
    assert 3500 < sum(reservoir.values) / 64 < 6500

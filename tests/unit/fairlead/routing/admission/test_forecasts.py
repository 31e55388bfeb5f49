"""Mooncake's admission: loads, the system-level forecast, and the three rejection policies."""

import random
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from math import exp, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import UnknownName
from fairlead.instances import Role
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.admission.forecasts import FIRST_SLOTS, DecodeForecast
from fairlead.routing.admission.gates import LoadGate, PredictedGate, build_gate
from fairlead.routing.admission.loads import PoolLoads, decode_loads, pool_loads
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.schedulers import Refusal
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import EarlyRejectionFacts, InstanceEntry
from fairlead_testing.builders.routing import ScriptedView, dispatches, entry, refusals, request, table, view_over
from fairlead_testing.examples import examples

NOW = 1_000.0


def worked_example(mode: str = "Load") -> ScriptedView:
    """Return two decode instances with 60 requests each, with TBT(b) = 0.02 + 0.0015 b s and a limit of 0.1 s."""
    loads = [InstanceLoad(entry=entry("p", role=Role.PREFILL))]
    loads += [InstanceLoad(entry=entry(name, role=Role.DECODE), decoding=60) for name in ("d1", "d2")]
    rejection = EarlyRejectionFacts(mode=mode)
    return view_over(loads, rejection=rejection, decode_base_seconds=0.02, decode_seconds_per_request=0.0015)


def fill(forecast: DecodeForecast) -> None:
    """Fill D1 with 40 decodes aged 15 s and 20 aged 2 s, D2 with 60 aged 15 s; 20 prefills finish within 8 s."""
    for number in range(100):
        forecast.begin(f"old{number}", NOW - 15, 1)
    for number in range(20):
        forecast.begin(f"young{number}", NOW - 2, 1)
        forecast.expect(f"next{number}", NOW + 8 * number / 20, 1)


def test_the_worked_example_is_overloaded_now_and_half_loaded_when_the_request_would_decode() -> None:
    view = worked_example()
    assert list(decode_loads(view)) == pytest.approx([1.1, 1.1])
    forecast = DecodeForecast()
    fill(forecast)
    assert forecast.totals_at(NOW, NOW) == (121, 121.0)  # one of the expected ones is due at this very moment
    assert forecast.totals_at(NOW + 8, NOW) == (40, 40.0)
    assert forecast.load_at(NOW + 8, NOW, view) == pytest.approx(0.5)


def test_early_rejection_refuses_the_worked_example_and_prediction_accepts_it() -> None:
    refusal = LoadGate().at_arrival(request("r"), 1.0, worked_example(), NOW)
    assert refusal is not None
    assert (refusal.reason, refusal.status, refusal.retry_after_seconds) == (RejectionReason.DECODE_OVERLOADED, 429, 2.0)
    assert refusal.message == "decoding at 0.110 s per token exceeds 0.100 s in pool default/chat"
    gate = PredictedGate()
    assert gate.forecast is not None
    fill(gate.forecast)
    generous = worked_example("Predicted")
    generous.table = replace(generous.table, slo=replace(generous.table.slo, ttft_seconds=30.0))
    assert gate.at_arrival(request("r"), 8.0, generous, NOW) is None
    crowded = gate.at_arrival(request("r"), 0.0, generous, NOW)
    assert crowded is not None
    assert crowded.reason is RejectionReason.DECODE_OVERLOADED


def test_one_decode_instance_in_time_admits() -> None:
    view = worked_example()
    view.load("d2").decoding = 40  # type: ignore[union-attr] # it is there
    assert list(decode_loads(view)) == pytest.approx([1.1, 0.8])
    assert LoadGate().at_arrival(request("r"), 1.0, view, NOW) is None


def test_where_nothing_is_expected_to_decode_the_forecast_is_no_load() -> None:
    assert DecodeForecast().load_at(NOW + 8, NOW, worked_example()) == 0.0


def test_pool_loads_tell_the_mean_and_the_least() -> None:
    loads = [
        InstanceLoad(entry=entry("i1"), pending_prefill_tokens=31_250, decoding=10),
        InstanceLoad(entry=entry("i2"), decoding=0),
    ]
    found = pool_loads(view_over(loads, decode_base_seconds=0.01, decode_seconds_per_request=0.009))
    assert (found.prefill_mean, found.prefill_least, found.decode_mean, found.decode_least) == pytest.approx((0.5, 0.0, 0.55, 0.1))


def test_loads_of_a_pool_without_instances_are_infinite() -> None:
    assert pool_loads(view_over([])) == PoolLoads(prefill_mean=inf, prefill_least=inf, decode_mean=inf, decode_least=inf)


def test_a_forecast_needs_no_more_memory_for_more_requests_one_after_the_other() -> None:
    forecast = DecodeForecast()
    tracemalloc.start()
    try:
        for number in range(100 * FIRST_SLOTS):
            forecast.begin("r", float(number), 10)
            forecast.end("r", number + 0.5, finished=False)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 8 * FIRST_SLOTS


def test_finished_decodes_teach_how_long_decodes_last_and_lost_ones_do_not() -> None:
    forecast = DecodeForecast()
    for number in range(400):
        forecast.begin(f"r{number}", float(number), 10)
        forecast.end(f"r{number}", number + 5.0, finished=True)
    assert forecast.decode_seconds == pytest.approx(5.0, abs=0.1)
    forecast.begin("lost", 0.0, 10)
    forecast.end("lost", 500.0, finished=False)
    forecast.end("unknown", 500.0, finished=True)
    assert forecast.decode_seconds == pytest.approx(5.0, abs=0.1)
    assert len(forecast) == 0


def test_a_forecast_for_now_is_what_decodes_now_however_long_it_has() -> None:
    source = random.Random(3)
    forecast = DecodeForecast()
    running: list[tuple[float, int, str]] = []
    for number in range(4_000):  # ten a second, each lasting 1 to 30 s: about 155 at a time
        now = number / 10
        while running and running[0][0] <= now:
            ended, _, name = running.pop(0)
            forecast.end(name, ended, finished=True)
        tokens = source.randint(100, 200)
        forecast.begin(f"r{number}", now, tokens)
        running.append((now + source.uniform(1.0, 30.0), tokens, f"r{number}"))
        running.sort()
    requests, context = forecast.totals_at(now, now)
    assert requests == pytest.approx(len(running))
    assert context == pytest.approx(sum(tokens for _, tokens, _ in running))
    for seconds in (5.0, 12.0, 20.0):
        left = sum(ends > now + seconds for ends, _, _ in running)
        assert forecast.totals_at(now + seconds, now)[0] == pytest.approx(left, abs=0.08 * len(running))


def test_a_forecast_equals_a_plain_count_over_random_histories() -> None:
    source = random.Random(5)
    forecast = DecodeForecast(decode_seconds=7.0)
    truth: dict[str, tuple[str, float, int]] = {}
    now = 0.0
    for number in range(3 * FIRST_SLOTS):
        now += source.random()
        name, tokens = f"r{number}", source.randint(1, 5_000)
        if source.random() < 0.5:
            forecast.expect(name, now + 3 * source.random(), tokens)
        forecast.begin(name, now, tokens)
        truth[name] = ("began", now, tokens)
        if source.random() < 0.6:
            due = now + 10 * source.random() - 2
            forecast.expect(f"e{number}", due, tokens)
            truth[f"e{number}"] = ("expected", due, tokens)
        if source.random() < 0.3:
            gone = source.choice(sorted(truth))
            forecast.end(gone, now, finished=False)
            del truth[gone]
    later = now + 4.0
    requests = tokens_then = 0.0
    for kind, when, tokens in truth.values():
        begun = when if kind == "began" else max(when, now)
        outlived = kind == "began" and now - begun > 7.0  # all decodes seen
        share = exp(-4.0 / 7.0) if outlived else float(begun <= later <= begun + 7.0)
        requests += share
        tokens_then += share * tokens
    assert forecast.totals_at(later, now) == pytest.approx((requests, tokens_then))


def test_an_unknown_mode_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="early rejection mode 'load' is unknown"):
        build_gate("load")


def split_scheduler(mode: str) -> PoolScheduler:
    entries = [entry("p", role=Role.PREFILL), entry("d", role=Role.DECODE)]
    rejection = EarlyRejectionFacts(mode=mode)
    pool = table(entries, policy="mooncake", window=0, rejection=rejection, decode_base_seconds=0.02, decode_seconds_per_request=0.03)
    return PoolScheduler(pool, "router-0", 1)


def outcome_of_the_fourth(mode: str) -> tuple[PoolScheduler, Refusal | None, Refusal | None]:
    """Return the refusals of a fourth request at its arrival and after its prefill.

    Three requests decode at 0.11 s per token, which is above the SLO of 0.1 s.
    """
    scheduler = split_scheduler(mode)
    for number in range(3):
        scheduler.submit(request(f"r{number}"), 0.0)
    for number in range(3):
        scheduler.first_token(f"r{number}", 1.0)
    at_arrival = refusals(scheduler.submit(request("r3"), 1.0))
    after = refusals(scheduler.first_token("r3", 2.0)) if not at_arrival else []
    return scheduler, at_arrival[0] if at_arrival else None, after[0] if after else None


def test_the_baseline_refuses_after_the_prefill_and_counts_nothing_any_more() -> None:
    scheduler, at_arrival, after = outcome_of_the_fourth("AfterPrefill")
    assert at_arrival is None
    assert after is not None
    assert (after.reason, after.retry_after_seconds >= 1) == (RejectionReason.AFTER_PREFILL, True)
    assert scheduler.discrepancies() == ()
    assert sum(one.in_flight for one in scheduler.in_flight()) == 3
    assert scheduler.complete("r3", 3.0, 5, None) == ()
    assert sum(len(one.ttft_seconds) for one in scheduler.take_records(9.0, final=True).loads) == 3


def test_what_was_computed_in_vain_stays_cached_where_it_was() -> None:
    blocks = (1, 2, 3)
    scheduler = split_scheduler("AfterPrefill")
    for number in range(3):
        scheduler.submit(request(f"r{number}"), 0.0)
        scheduler.prefilled(f"r{number}", 1.0)
    scheduler.submit(request("r3", 1_600, blocks=blocks), 1.0)
    assert refusals(scheduler.prefilled("r3", 2.0))
    for number in range(3):
        scheduler.first_token(f"r{number}", 2.5)
        scheduler.complete(f"r{number}", 3.0, 5, None)
    (again,) = dispatches(scheduler.submit(request("r4", 1_600, blocks=blocks), 4.0))
    assert again.hit_tokens == 3 * 512
    counted = scheduler.take_records(9.0, final=True).rejections
    assert [(one.reason, one.count, one.status) for one in counted] == [(RejectionReason.AFTER_PREFILL, 1, 429)]


def test_an_instance_of_both_roles_is_not_asked_again() -> None:
    pool = table(1, window=0, rejection=EarlyRejectionFacts(mode="AfterPrefill"), decode_base_seconds=0.2)
    scheduler = PoolScheduler(pool, "router-0", 1)
    for number in range(3):
        scheduler.submit(request(f"r{number}"), 0.0)
    assert not any(refusals(scheduler.first_token(f"r{number}", 1.0)) for number in range(3))


def test_early_rejection_refuses_the_same_request_before_its_prefill() -> None:
    _, at_arrival, after = outcome_of_the_fourth("Load")
    assert at_arrival is not None
    assert after is None


def test_prediction_admits_when_the_decodes_will_have_left() -> None:
    scheduler = split_scheduler("Predicted")
    for number in range(3):
        scheduler.submit(request(f"r{number}"), 0.0)
    for number in range(3):
        scheduler.first_token(f"r{number}", 1.0)
    assert refusals(scheduler.submit(request("at-once"), 2.0))
    assert dispatches(scheduler.submit(request("later", 25_000), 18.5))  # its first token is due 4 s on, when the three are 21.5 s old


def test_a_gate_that_is_turned_on_knows_what_already_decodes() -> None:
    scheduler = split_scheduler("Disabled")
    for number in range(4):
        scheduler.submit(request(f"r{number}"), 0.0)
        scheduler.first_token(f"r{number}", 1.0)
    rejection = EarlyRejectionFacts(mode="Predicted")
    scheduler.update_table(replace(scheduler.table, version=2, early_rejection=rejection), 2.0)
    assert refusals(scheduler.submit(request("r9"), 2.0))


def learner(
    step_seconds: float, prefill_seconds: float = 0.0, mode: str = "Predicted", instances: Sequence[InstanceEntry] | int = 1
) -> PoolScheduler:
    """Return an instance whose pool has seen 210 answers of 101 tokens, one after the other, at `step_seconds` a token.

    During each answer another request was prefilled in `prefill_seconds`, and the answer took that much longer.
    """
    scheduler = PoolScheduler(table(instances, window=0, rejection=EarlyRejectionFacts(mode=mode)), "router-0", 1)
    for number in range(210):
        at = 1000.0 * number
        scheduler.submit(request(f"r{number}", at=at), at)
        scheduler.first_token(f"r{number}", at + 1024 / 6250)
        if prefill_seconds:
            scheduler.submit(request(f"p{number}", round(6250 * prefill_seconds), at=at + 2), at + 2)
            scheduler.first_token(f"p{number}", at + 2 + prefill_seconds)
            scheduler.complete(f"p{number}", at + 2 + prefill_seconds, 1, None)
        scheduler.complete(f"r{number}", at + 1024 / 6250 + 100 * step_seconds + prefill_seconds, 101, None)
    return scheduler


LATER = 1e6


def test_decode_times_the_table_does_not_tell_are_learnt_under_prediction() -> None:
    scheduler = learner(0.2)  # twice the SLO
    assert dispatches(scheduler.submit(request("first", at=LATER), LATER))
    scheduler.first_token("first", LATER)
    (refusal,) = refusals(scheduler.submit(request("second", at=LATER), LATER))
    assert refusal.reason is RejectionReason.DECODE_OVERLOADED


def test_the_baseline_learns_decode_times_that_the_table_does_not_tell() -> None:
    split = [entry("p", role=Role.PREFILL), entry("d", role=Role.DECODE)]
    scheduler = learner(0.2, mode="AfterPrefill", instances=split)  # twice the SLO
    for name in ("first", "second"):
        assert dispatches(scheduler.submit(request(name, at=LATER), LATER)), "nobody is refused at arrival for decodes"
    assert scheduler.prefilled("first", LATER + 1) == (), "an idle instance takes one whatever was learnt"
    (refusal,) = refusals(scheduler.prefilled("second", LATER + 1))
    assert (refusal.reason, refusal.status) == (RejectionReason.AFTER_PREFILL, 429)
    assert scheduler.discrepancies() == ()


@pytest.mark.parametrize("mode", ["Load", "Predicted"])
def test_with_prefill_and_decode_instances_both_modes_learn_and_see_what_decodes(mode: str) -> None:
    split = [entry("p", role=Role.PREFILL), entry("d", role=Role.DECODE)]
    scheduler = learner(0.2, mode=mode, instances=split)  # twice the SLO
    assert scheduler.pool_loads(LATER).decode_least > 1
    assert dispatches(scheduler.submit(request("first", at=LATER), LATER)), "an idle instance takes one whatever was learnt"
    scheduler.prefilled("first", LATER)
    (refusal,) = refusals(scheduler.submit(request("second", at=LATER), LATER))
    assert (refusal.reason, refusal.status) == (RejectionReason.DECODE_OVERLOADED, 429)
    scheduler.first_token("first", LATER + 1)
    scheduler.complete("first", LATER + 2, 5, None)
    assert dispatches(scheduler.submit(request("third", at=LATER + 3), LATER + 3))
    assert scheduler.discrepancies() == ()


def test_an_idle_pool_takes_a_request_whatever_was_learnt() -> None:
    scheduler = learner(0.2)
    assert dispatches(scheduler.submit(request("first", at=LATER), LATER))
    scheduler.first_token("first", LATER)
    scheduler.complete("first", LATER + 1, 2, None)
    assert dispatches(scheduler.submit(request("second", at=LATER + 1), LATER + 1))


def test_prefills_that_held_decodes_up_are_not_learnt_as_slow_steps() -> None:
    scheduler = learner(0.08, prefill_seconds=4.0)  # 0.12 s a token as the client saw it, with an SLO of 0.1
    scheduler.submit(request("first", at=LATER), LATER)
    scheduler.first_token("first", LATER)
    assert dispatches(scheduler.submit(request("second", at=LATER), LATER))


def test_early_rejection_by_load_admits_while_an_instance_decodes_nothing() -> None:
    view = worked_example()
    view.table = replace(view.table, slo=replace(view.table.slo, tpot_seconds=0.001))  # no engine is that fast
    assert LoadGate().at_arrival(request("r"), 1.0, view, NOW) is not None
    view.load("d2").decoding = 0  # type: ignore[union-attr] # it is there
    assert LoadGate().at_arrival(request("r"), 1.0, view, NOW) is None


def test_an_instance_of_both_roles_refuses_by_what_will_decode_and_lets_through_what_comes_when_decodes_have_left() -> None:
    scheduler = learner(0.08)  # 8 s a decode, one at a time; two at once are learnt to be as fast
    tight = replace(scheduler.table, version=2, slo=replace(scheduler.table.slo, ttft_seconds=30.0, tpot_seconds=0.075))
    scheduler.update_table(tight, LATER)
    scheduler.submit(request("running", at=LATER), LATER)
    scheduler.first_token("running", LATER)
    (refusal,) = refusals(scheduler.submit(request("short", at=LATER + 1), LATER + 1))
    assert (refusal.reason, refusal.status) == (RejectionReason.DECODE_OVERLOADED, 429)
    assert 1 <= refusal.retry_after_seconds <= 8
    assert dispatches(scheduler.submit(request("long", 75_000, at=LATER + 1), LATER + 1))  # 12 s of prefill: then it decodes alone


def test_what_is_about_to_decode_counts_before_it_does() -> None:
    scheduler = learner(0.08)
    tight = replace(scheduler.table, version=2, slo=replace(scheduler.table.slo, ttft_seconds=30.0, tpot_seconds=0.075))
    scheduler.update_table(tight, LATER)
    assert dispatches(scheduler.submit(request("first", 6_250, at=LATER), LATER))
    assert refusals(scheduler.submit(request("second", 6_250, at=LATER), LATER))


@examples(40)
@given(
    st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(1, 60_000), st.booleans()), min_size=10, max_size=60),
    st.sampled_from(["Load", "Predicted"]),
    st.floats(1e-4, 0.2),
    st.booleans(),
)
def test_every_early_refusal_has_a_reason_and_a_positive_retry_after(
    arrivals: list[tuple[float, int, bool]], mode: str, step_seconds: float, split: bool
) -> None:
    entries = [entry("p", role=Role.PREFILL), entry("d", role=Role.DECODE)] if split else [entry("i0"), entry("i1")]
    pool = table(entries, policy="mooncake", rejection=EarlyRejectionFacts(mode=mode), decode_seconds_per_request=step_seconds)
    scheduler = PoolScheduler(pool, "router-0", 1)
    now = 0.0
    running: list[str] = []
    for number, (pause, tokens, ends) in enumerate(arrivals):
        now += pause
        outcomes = list(scheduler.submit(request(f"r{number}", tokens, at=now), now))
        if running and ends:
            name = running.pop(0)
            outcomes += scheduler.first_token(name, now)
            outcomes += scheduler.complete(name, now + 0.5, 20, None)
        running += [one.request.id for one in dispatches(outcomes)]
        for refusal in refusals(outcomes):
            assert refusal.reason in (RejectionReason.PREDICTED_TTFT, RejectionReason.DECODE_OVERLOADED, RejectionReason.QUEUE_FULL)
            assert refusal.status == 429
            assert refusal.message
            assert 1 <= refusal.retry_after_seconds <= 600

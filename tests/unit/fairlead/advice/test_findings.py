"""Each finding appears when its cause exists, as a sentence with its numbers, and not otherwise."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as some

from fairlead.advice import lateness, saturation, wording
from fairlead.advice.advising import advise
from fairlead.advice.findings import Cause, EvidenceKind, Finding, HarmUnit, Level, Remedy
from fairlead.advice.situations import (
    PoolSituation,
    SeenAdvice,
    SeenBurn,
    SeenCondition,
    SeenFigure,
    SeenMinutes,
    SeenMoves,
    SeenPredictions,
    SeenRole,
    SeenSilentRouter,
    SeenSizing,
    Served,
)
from fairlead.instances import InstanceState, Role
from fairlead.reports.engines import Quantity
from fairlead.reports.rejections import RejectionReason
from fairlead.scaling.host_caches import HostCache
from fairlead.scaling.recommendations import Controller, Hold, Verdict
from fairlead.scaling.remedies import Reach, Simulated, Tried
from fairlead.scaling.signals import DecodeStep, PoolSignals, RoleSignals
from fairlead.scaling.specs import RatioMode, ScalingMode, ScalingSpec
from fairlead.tables import EarlyRejectionFacts, SloFacts
from fairlead_testing.builders.situations import arriving, served, well, with_instance
from fairlead_testing.examples import examples

REFUSED = {RejectionReason.PREDICTED_TTFT.value: 660}


def only(pool: PoolSituation) -> Finding:
    (found,) = advise([pool])
    return found


def causes(pool: PoolSituation) -> list[Cause]:
    return [one.cause for one in advise([pool])]


def test_a_pool_that_is_well_has_no_findings() -> None:
    assert advise([well(), well("default/idle", instances=0)]) == ()


# --- saturated


def tried(value: float, *attainments: float, fewer: float | None = None, more: float | None = None, **changes: Any) -> Tried:
    of = attainments[0]
    return Tried(value=value, attainments=attainments, fewer=of if fewer is None else fewer, more=of if more is None else more, **changes)


SIMULATED = Simulated(
    simulation="s1",
    role=Role.BOTH,
    present=4,
    goal=0.9,
    ttft_seconds=5.0,
    tpot_seconds=0.1,
    requests=3000,
    seconds=3480.0,
    before=0.6,
    numbers=(tried(6, 0.85, fewer=0.93), tried(7, 0.97, 0.96, more=0.89), tried(9, 0.99)),
    ttfts=(),
    reach=Reach(requests=3000, refused=300),
)
"""A simulation's result: 7 instances are enough for the arriving work, 6 for a fifth less of it, 9 for a quarter more.
"""
BEYOND = replace(
    SIMULATED,
    numbers=(tried(8, 0.6), tried(20, 0.61)),
    ttfts=(tried(12.0, 0.95),),
    reach=Reach(requests=3000, beyond=1050, refused=1000, refused_beyond=900, ttft_seconds=12.0, speed=2.4, tokens=62_500),
)
"""A simulation's result: 35 % of the arriving requests take longer than the TTFT target even alone."""


def seen(found: Simulated | None = SIMULATED, **changes: Any) -> SeenSizing:
    return SeenSizing(**{"role": Role.BOTH, "age_seconds": 40.0, "found": found, "estimate": 11, **changes})


def overloaded(**changes: Any) -> PoolSituation:
    """Return a pool of four instances that prefill 1,000 tokens/s each and get 5,200; 660 requests were refused in 100
    s.
    """
    pool = well(refused=REFUSED, signals=arriving(5200))
    pool = replace(pool, instances=tuple(replace(one, load=1.4) for one in pool.instances))
    return replace(pool, **{"sizing": seen(), **changes})


def test_a_saturated_pool_is_told_with_its_cause_and_the_number_that_the_simulation_confirms() -> None:
    found = only(overloaded())
    assert found.sentence == (
        "default/chat refuses 6.6 requests/s because 4 of 4 instances are saturated; 7 replicas would serve it "
        "(6 to 9; 7 is confirmed by the simulation of the last 58 min)."
    )
    assert (found.cause, found.level, found.harm.amount, found.harm.unit) == (Cause.SATURATED, Level.BAD, 6.6, HarmUnit.REQUESTS)
    assert found.remedy == Remedy(kind="scale", words="7 replicas", replicas=7, simulation="s1")


def test_the_sentence_stays_while_the_newest_seconds_change() -> None:
    """Measurements of the last seconds change no number in it; only another simulation does."""
    words = {only(overloaded(signals=signals)).sentence for signals in (arriving(5200), arriving(9000), arriving(1000), None)}
    assert len(words) == 1


def test_without_a_simulation_nothing_is_said_to_serve_it() -> None:
    waiting, without = only(overloaded(sizing=None)), only(overloaded(sizing=seen(None, is_underway=True)))
    assert waiting.remedy is without.remedy is None
    assert "the number of replicas that it needs is being simulated" in waiting.sentence
    estimated = only(overloaded(sizing=seen(None, reason="12 requests were recorded in the hour until 10:20 UTC, and 200 are needed")))
    assert estimated.remedy == Remedy(kind="scale", words="11 replicas (estimate)", replicas=11)
    assert "an estimate from rates alone says that it needs 11 replicas; no simulation confirms this: 12 requests" in estimated.sentence
    unlike = only(overloaded(sizing=seen(replace(SIMULATED, unlike="the simulated pool is not like this one"))))
    assert unlike.remedy == estimated.remedy
    assert "would serve it" not in estimated.sentence + unlike.sentence


def test_what_no_number_of_instances_serves_is_told_apart_counted_and_has_its_own_remedies() -> None:
    found = only(overloaded(sizing=seen(BEYOND)))
    assert (found.cause, found.level) == (Cause.PROMPTS_TOO_LONG, Level.BAD)
    assert found.sentence.startswith(
        "default/chat: 35.0 % of requests (90.0 % of the refused ones) need more than the TTFT target of 5 s alone on an idle instance, "
        "which computes 62,500 tokens in that time; no number of instances can serve them in time"
    )
    for words in (
        "a TTFT target of 12 s (95.0 % in time",
        "a pool of their own",
        "engines 2.4 times as fast",
        "prefill instances",
        "chunked",
    ):
        assert words in found.sentence
    assert found.remedy == Remedy(kind="slo", words="a TTFT target of 12 s", fields={"ttft": "12s"}, simulation="s1")


IDLE = Reach(requests=200, beyond=196, ttft_seconds=0.1)
"""A measurement: 98 % of the requests are late even on idle instances."""


@pytest.mark.parametrize("sizing", [None, seen(None, reason="90 requests were recorded"), seen(), seen(replace(SIMULATED, unlike="other"))])
def test_a_target_that_idle_instances_miss_is_found_without_a_simulation_and_with_a_plan(sizing: SeenSizing | None) -> None:
    """After a new target, too few requests are recorded for minutes to simulate. Besides, the engine's model may not
    know the real time of a first token.
    """
    late = replace(served(200, 0), ttft_in_time=0)
    pool = with_instance(well(instances=1, slo=SloFacts(ttft_seconds=0.001), sizing=sizing, measured=IDLE), 0, served=late)
    (found,) = [one for one in advise([pool]) if one.cause is not Cause.SATURATED]
    assert (found.cause, found.level, found.evidence.kind) == (Cause.PROMPTS_TOO_LONG, Level.BAD, EvidenceKind.DECISIONS)
    assert found.harm.amount == pytest.approx(1.96)
    assert found.sentence.startswith(
        "default/chat: 98.0 % of requests got their first token later than the TTFT target of 1 ms, although their instance"
    )
    assert "a TTFT target of 100 ms (an estimate: 95 % of such requests had their first token sooner)" in found.sentence
    assert found.remedy == Remedy(kind="slo", words="a TTFT target of 100 ms (estimate)", fields={"ttft": "100ms"})


def test_a_pool_that_meets_its_objectives_is_not_told_of_requests_that_idle_instances_miss() -> None:
    assert advise([well(measured=IDLE)]) == ()


def test_a_number_that_helps_the_rest_is_offered_with_what_it_brings_and_no_more() -> None:
    helped = replace(BEYOND, before=0.3, numbers=(tried(8, 0.5), tried(20, 0.63)))
    scaled = next(one for one in advise([overloaded(sizing=seen(helped))]) if one.cause is Cause.SATURATED)
    assert "20 replicas would bring 63.0 % of all requests in time instead of 30.0 %" in scaled.sentence
    assert "35.0 % in time" in scaled.sentence
    assert "would serve it" not in scaled.sentence


def test_late_requests_of_a_saturated_pool_are_part_of_the_same_finding() -> None:
    pool = overloaded()
    for number in range(4):
        pool = with_instance(pool, number, served=served(100, 30))
    assert only(pool).sentence.startswith(
        "default/chat refuses 6.6 requests/s and serves 30.0 % of the other requests in time (goal 90 %) "
        "because 4 of 4 instances are saturated"
    )
    assert only(pool).harm.amount == pytest.approx(6.6 + 2.8)


def test_a_saturated_pool_that_is_only_late_says_so() -> None:
    pool = overloaded(refused={})
    for number in range(4):
        pool = with_instance(pool, number, served=served(100, 0), load=0.1)
    assert only(pool).sentence.startswith(
        "default/chat serves 0.0 % of requests in time (goal 90 %) because more work arrives than 4 instances "
        "can serve in time; 7 replicas would"
    )


def test_the_pools_own_percentile_decides_what_is_too_much() -> None:
    lax = overloaded(slo=SloFacts(percentile=30))
    assert causes(lax) == [Cause.REFUSED]
    assert only(lax).level is Level.WARN
    assert causes(overloaded(slo=SloFacts(percentile=90))) == [Cause.SATURATED]


@pytest.mark.parametrize(
    ("signals", "why"),
    [
        (None, "nothing was measured"),
        (arriving(5200, age=60.0), "what was measured is old"),
        (arriving(1000), "the instances can do what arrives"),
        (arriving(5200, finished_requests=3), "too few finished to know the work"),
    ],
)
def test_refusals_without_too_much_work_are_no_saturation(signals: PoolSignals | None, why: str) -> None:
    assert causes(overloaded(signals=signals, sizing=None)) == [Cause.REFUSED], why


@pytest.mark.parametrize(
    ("changes", "words", "replicas"),
    [
        ({"can_scale": False}, "its engines are started elsewhere", None),
        ({"scaling": ScalingSpec(mode=ScalingMode.SLO)}, "spec.scaling sets the number", None),
        ({"roles": (SeenRole(role=Role.BOTH, wanted=8, least=0, most=64),)}, "8 are desired already and starting", None),
        ({"roles": (SeenRole(role=Role.BOTH, wanted=4, least=0, most=4),)}, "maxReplicas 4 does not allow more", None),
        ({"roles": (SeenRole(role=Role.BOTH, wanted=4, least=0, most=5),)}, "maxReplicas allows 5", 5),
    ],
)
def test_a_plan_is_offered_only_where_it_can_be_made(changes: dict[str, Any], words: str, replicas: int | None) -> None:
    found = only(overloaded(**changes))
    assert words in found.sentence
    assert (found.remedy.replicas if found.remedy else None) == replicas


# --- refused


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (RejectionReason.PREDICTED_TTFT, "every instance was predicted to miss the TTFT target of 5 s"),
        (RejectionReason.DECODE_OVERLOADED, "decoding was predicted to miss the TPOT target of 100 ms"),
        (RejectionReason.AFTER_PREFILL, "which was found only after their prompts were computed"),
        (RejectionReason.QUEUE_FULL, "routers' queues are full"),
        (RejectionReason.QUEUE_TIMEOUT, "until they expired; early rejection would answer them at once"),
        (RejectionReason.NO_INSTANCES, "none of 4 instances accepts requests"),
        (RejectionReason.SCALED_TO_ZERO, "no instance is desired"),
        (RejectionReason.POLICY_FAILED, "the pool's routing policy failed on the requests; the routers' logs say why"),
        (RejectionReason.UPSTREAM_FAILED, "engines failed before the first byte on every try"),
        (RejectionReason.SHUTTING_DOWN, "a router was shutting down"),
        ("rejected-by-a-newer-router", "the routers' reason is rejected-by-a-newer-router"),
    ],
)
def test_every_reason_of_refusals_has_its_sentence(reason: str, words: str) -> None:
    found = only(well(refused={reason: 500}))
    assert found.sentence.startswith("default/chat refuses 5.0 requests/s: ")
    assert words in found.sentence
    assert (found.cause, found.subject, found.level) == (Cause.REFUSED, reason, Level.BAD)


def test_no_rate_of_refusals_is_rounded_to_nothing() -> None:
    rare = replace(well(refused={RejectionReason.QUEUE_FULL: 1}), window_seconds=300.0)
    assert only(rare).sentence.startswith("default/chat refuses 12 requests/h: ")


def test_few_refusals_are_a_warning() -> None:
    assert only(well(refused={RejectionReason.QUEUE_FULL.value: 1})).level is Level.WARN


def test_refusals_offer_the_change_that_ends_them() -> None:
    assert only(well(refused={RejectionReason.AFTER_PREFILL.value: 9})).remedy == Remedy(
        kind="early-rejection", words="early rejection at arrival", fields={"mode": "Load"}
    )
    expired = well(refused={RejectionReason.QUEUE_TIMEOUT.value: 9})
    assert only(expired).remedy == Remedy(kind="early-rejection", words="early rejection", fields={"mode": "Load"})
    assert only(replace(expired, early_rejection=EarlyRejectionFacts(mode="Load"))).remedy is None
    cordoned = well(instances=1, refused={RejectionReason.NO_INSTANCES.value: 9})
    cordoned = with_instance(cordoned, 0, state=InstanceState.CORDONED)
    assert only(cordoned).remedy == Remedy(kind="uncordon", words="uncordoning i0", instance="i0")
    one_of_four = with_instance(well(refused={RejectionReason.NO_INSTANCES.value: 9}), 0, state=InstanceState.CORDONED)
    assert only(one_of_four).remedy is None
    leaving = with_instance(well(instances=1, refused={RejectionReason.NO_INSTANCES.value: 9}), 0, state=InstanceState.DRAINING)
    assert "none of 1 instance accepts requests" in only(leaving).sentence
    asleep = well(instances=0, refused={RejectionReason.SCALED_TO_ZERO.value: 9})
    assert only(asleep).remedy == Remedy(kind="scale", words="1 replica", replicas=1)
    assert only(replace(asleep, can_scale=False)).remedy is None


# --- late


def test_late_first_tokens_name_the_goal_and_where_they_were() -> None:
    pool = well()
    for number in range(4):
        pool = with_instance(pool, number, served=served(100, 80))
    found = only(pool)
    assert found.sentence == (
        "80.0 % of default/chat's 400 requests had the first token within 5 s, the goal is 90 %; "
        "25.0 % of the late ones were on i3; the others miss the goal too."
    )
    assert (found.cause, found.harm.amount, found.evidence.metric) == (Cause.LATE_FIRST_TOKENS, 0.8, "ttft_p95")
    assert causes(replace(pool, slo=SloFacts(percentile=80))) == []


@pytest.mark.parametrize(
    ("harm", "words"),
    [(6.63, "6.6 requests/s"), (0.44, "0.44 requests/s"), (0.005, "0.01 requests/s"), (0.0049, "18 requests/h"), (0.00001, "1 request/h")],
)
def test_a_harm_that_two_decimals_would_round_to_nothing_is_told_by_the_hour(harm: float, words: str) -> None:
    assert wording.rate(harm) == words


@given(some.floats(1e-7, 1e4))
def test_no_rate_of_requests_and_no_share_is_shown_as_nothing(value: float) -> None:
    assert float(wording.rate(value).split()[0]) > 0
    assert wording.share(min(value, 1.0)) != "0.0 %"


def test_one_refusal_in_five_minutes_is_not_told_as_none() -> None:
    found = only(well(refused={RejectionReason.PREDICTED_TTFT.value: 1}, window_seconds=300.0))
    assert found.sentence.startswith("default/chat refuses 12 requests/h: ")


def test_most_late_first_tokens_on_one_instance_are_its_matter_only_where_the_others_meet_the_goal() -> None:
    pool = with_instance(with_instance(well(), 1, served=served(100, 60)), 3, served=served(100, 40))
    assert only(pool).sentence.endswith("; 60.0 % of the late ones were on i3; the others miss the goal too.")
    alone = with_instance(well(instances=2), 1, served=served(100, 20, tokens=0))
    assert only(alone).sentence.endswith("; 100.0 % of the late ones were on i1; the others meet the goal.")


def test_late_first_tokens_of_instances_that_are_gone_are_not_said_of_the_only_one_left() -> None:
    left = with_instance(well(instances=1), 0, served=served(100, 60))
    assert only(replace(left, gone=served(100, 60))).sentence.endswith(
        "; 50.0 % of the late ones were on i0; the others miss the goal too."
    )
    assert only(replace(left, gone=served(100, 20))).sentence.endswith("; 66.7 % of the late ones were on instances that are gone.")


@examples(200)
@given(some.lists(some.tuples(some.integers(0, 60), some.integers(0, 60)), min_size=1, max_size=5), some.integers(0, 3))
def test_what_is_said_of_late_requests_is_true_of_their_counts(seen: list[tuple[int, int]], gone: int) -> None:
    """Each instance has requests in time and late ones. The last `gone` instances no longer exist."""
    counts = [served(in_time + late, in_time) for in_time, late in seen]
    present = counts[: max(0, len(counts) - gone)]
    pool = well(instances=len(present), gone=sum(counts[len(present) :], Served()))
    for number, one in enumerate(present):
        pool = with_instance(pool, number, served=one)
    for found in lateness.find(pool):
        told = found.sentence.removesuffix(".").split("; ")[1:]
        named = [number for number in range(len(present)) if f"on i{number}" in told[0]]
        others = [one for number, one in enumerate(counts) if number not in named]
        late, judged = sum(one.late for one in others), sum(one.judged for one in others)
        assert told[0].startswith("all of them") == (bool(named) and not judged)
        assert ("its only instance" in told[0]) == (bool(named) and not judged and len(present) == 1)
        if named and judged:
            assert told[1] == f"the others {'miss the goal too' if pool.exceeds(late, judged) else 'meet the goal'}"


def test_slow_tokens_are_told_apart_from_late_first_tokens() -> None:
    slow = replace(served(100, 70), ttft_in_time=100, tpot_in_time=70)
    pool = well(instances=1)
    found = only(with_instance(pool, 0, served=slow))
    assert (found.cause, found.evidence.metric) == (Cause.SLOW_TOKENS, "tpot_p95")
    assert found.sentence == (
        "70.0 % of default/chat's 100 answers took less than 100 ms per output token, the goal is 90 %; "
        "all of them on i0, its only instance."
    )


def test_targets_that_are_missed_only_together_name_the_worse_one() -> None:
    both = replace(served(100, 85), ttft_in_time=92, tpot_in_time=93)
    found = only(with_instance(well(instances=1), 0, served=both))
    assert found.cause is Cause.LATE_FIRST_TOKENS
    assert found.sentence == (
        "85.0 % of default/chat's 100 requests had the first token within 5 s and less than 100 ms per output token, the goal is 90 %; "
        "all of them on i0, its only instance."
    )
    assert found.harm.amount == 0.15


# --- one hot instance


def hot() -> PoolSituation:
    pool = with_instance(well(), 2, served=served(100, 40, tokens=40_000), sessions=18)
    return replace(pool, instances=tuple(replace(one, sessions=18 if one.id == "i2" else 8) for one in pool.instances))


def test_one_instance_with_too_much_of_the_work_is_told_with_its_share() -> None:
    found = only(hot())
    assert found.sentence == (
        "i2 of default/chat serves 40.0 % of first tokens in time, the others 100.0 % (goal 90 %): it computes 57.1 % of the prompt tokens "
        "(fair: 25.0 %) and holds 18 of 42 sessions; a drain moves its sessions to the "
        "other instances, and a new instance replaces it."
    )
    assert (found.cause, found.subject, found.level) == (Cause.HOT_INSTANCE, "i2", Level.BAD)
    assert found.remedy == Remedy(kind="drain", words="draining i2", instance="i2")


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (SeenMinutes(had=1, late=1), "holds 18 of 42 sessions; only 1 minute is on record, and a drain is offered after 5."),
        (SeenMinutes(had=4, late=4), "; only 4 minutes are on record, and a drain is offered after 5."),
        (SeenMinutes(had=5, late=2), "; this was so in 2 of the last 5 minutes, too few to drain it."),
    ],
)
def test_a_hot_instance_is_drained_only_for_what_it_shows_in_most_of_five_minutes(seen: SeenMinutes, words: str) -> None:
    found = only(with_instance(hot(), 2, minutes=seen))
    assert (found.cause, found.remedy) == (Cause.HOT_INSTANCE, None)
    assert found.sentence.endswith(words)


@given(
    some.lists(some.tuples(some.integers(0, 40), some.integers(0, 40), some.integers(0, 40)), min_size=1, max_size=5), some.integers(1, 99)
)
def test_nothing_is_drained_for_less_than_five_minutes_or_for_trouble_in_less_than_half_of_them(
    minutes: list[tuple[int, int, int]], percentile: int
) -> None:
    """Each minute has late and timely first tokens and failed attempts. A drain needs five minutes, most of them
    bad.
    """
    allowed = 1 - percentile / 100
    had = [(late, late + well_served, failed) for late, well_served, failed in minutes if late + well_served + failed]
    late = sum(one > of * allowed for one, of, _ in had)
    failing = sum(failed > (of + failed) * allowed for _, of, failed in had)
    total = served(sum(of for _, of, _ in had), sum(of - one for one, of, _ in had), tokens=10**6, failed=sum(one for _, _, one in had))
    pool = well(slo=SloFacts(percentile=float(percentile)))
    pool = with_instance(pool, 0, served=total, minutes=SeenMinutes(had=len(had), late=late, failing=failing))
    for found in advise([pool]):
        if found.remedy is not None and found.remedy.kind == "drain":
            bad = {Cause.HOT_INSTANCE: late, Cause.INSTANCE_FAILING: failing}[found.cause]
            assert len(had) == 5 and bad >= 3


def test_a_hot_instance_of_a_pool_within_its_slo_is_a_warning() -> None:
    pool = well(instances=16)
    found = only(with_instance(pool, 0, served=served(100, 40, tokens=40_000)))
    assert (found.cause, found.level) == (Cause.HOT_INSTANCE, Level.WARN)


def test_an_instance_is_hot_only_with_more_than_its_share_and_while_others_do_well() -> None:
    for tokens in (10_000, 11_000):  # a tenth more is what one of four instances always has
        little = with_instance(hot(), 2, served=served(100, 40, tokens=tokens))
        assert causes(little) == [Cause.LATE_FIRST_TOKENS] and only(little).sentence.endswith("were on i2; the others meet the goal.")
    fair = with_instance(hot(), 2, served=served(100, 40, tokens=10_000))
    assert causes(fair) == [Cause.LATE_FIRST_TOKENS]
    heavy = with_instance(hot(), 2, weight=9.0)
    assert causes(heavy) == [Cause.LATE_FIRST_TOKENS]
    few = with_instance(hot(), 2, served=served(10, 0, tokens=40_000))
    assert Cause.HOT_INSTANCE not in causes(few)
    everywhere = hot()
    for number in range(4):
        everywhere = with_instance(everywhere, number, served=served(100, 40, tokens=40_000))
    assert causes(everywhere) == [Cause.LATE_FIRST_TOKENS]


def test_no_instance_is_hot_where_the_others_miss_the_objectives_too_or_had_nothing_to_judge() -> None:
    for rest in (served(100, 60, tokens=10_000), served(0, 0, tokens=10_000)):
        pool = hot()
        for number in (0, 1, 3):
            pool = with_instance(pool, number, served=rest)
        assert Cause.HOT_INSTANCE not in causes(pool)


def test_an_instance_that_computes_more_than_its_share_in_time_is_not_hot() -> None:
    assert causes(with_instance(well(), 2, served=served(100, 100, tokens=40_000))) == []


def test_one_of_two_instances_can_be_hot_and_the_only_one_cannot() -> None:
    assert causes(with_instance(well(instances=2), 1, served=served(100, 40, tokens=40_000))) == [Cause.HOT_INSTANCE]
    assert Cause.HOT_INSTANCE not in causes(with_instance(well(instances=1), 0, served=served(100, 40, tokens=40_000)))


def test_sessions_of_a_hot_instance_are_told_of_those_known() -> None:
    others_unknown = replace(hot(), instances=tuple(replace(one, sessions=18 if one.id == "i2" else None) for one in hot().instances))
    assert "and holds 18 of 18 sessions" in only(others_unknown).sentence
    assert "holds" not in only(with_instance(hot(), 2, sessions=None)).sentence


# --- prefill to decode


def divided(prefill: int, decode: int, *, prompts: float = 4000.0) -> PoolSituation:
    """Return a pool in which 4,000 prompt tokens/s keep four prefill instances busy, and decodes keep one instance
    busy.
    """
    common: dict[str, Any] = {
        "in_flight": 1,
        "waiting": 0,
        "prompt_tokens_per_second": prompts,
        "requests_per_second": 10.0,
        "finished_requests": 100,
    }
    sides = (
        RoleSignals(
            role=Role.PREFILL,
            serving=prefill,
            cached_share=0.0,
            prefill_tokens_per_second=1000.0,
            output_tokens_per_second=0.0,
            **common,
        ),
        RoleSignals(
            role=Role.DECODE,
            serving=decode,
            output_tokens_per_second=100.0,
            decode_step=DecodeStep(fixed_seconds=0.01, seconds_per_request=0.001, seconds_per_context_token=0.0),
            decode_context_tokens=100.0,
            decode_load=0.2,
            **common,
        ),
    )
    seen = well(
        roles=(
            SeenRole(role=Role.PREFILL, wanted=prefill, least=1, most=64),
            SeenRole(role=Role.DECODE, wanted=decode, least=1, most=64),
        ),
        refused={RejectionReason.PREDICTED_TTFT.value: 500},
        signals=PoolSignals(window_seconds=30.0, age_seconds=1.0, roles=sides),
    )
    roles = [Role.PREFILL] * prefill + [Role.DECODE] * decode
    return replace(seen, instances=tuple(replace(seen.instances[0], id=f"i{at}", role=role) for at, role in enumerate(roles)))


COUNTS = some.tuples(some.integers(0, 60), some.integers(0, 60))
"""The number of requests in time, and the number of late ones."""


@examples(100)
@given(some.sampled_from([Role.PREFILL, Role.DECODE]), COUNTS, COUNTS, COUNTS)
def test_no_share_of_a_role_that_is_short_mixes_requests_that_run_with_those_that_ended(
    role: Role, both: tuple[int, int], ttft: tuple[int, int], tpot: tuple[int, int]
) -> None:
    """Sixty first tokens can be late before ten requests have ended."""
    had = Served(
        judged=sum(both),
        in_time=both[0],
        ttft_judged=sum(ttft),
        ttft_in_time=ttft[0],
        tpot_judged=sum(tpot),
        tpot_in_time=tpot[0],
        requests=60,
    )
    short = divided(2, 4)
    pool = replace(short, refused={}, gone=had, instances=tuple(replace(one, served=Served()) for one in short.instances))
    pool = replace(pool, sizing=seen(replace(SIMULATED, role=role), role=role))
    in_time, late = ttft if role is Role.PREFILL else tpot
    found = [one for one in saturation.find(pool) if one.cause is Cause.SATURATED]
    assert bool(found) == pool.exceeds(late, in_time + late)
    for one in found:
        assert one.sentence.startswith(f"default/chat serves {wording.share(1 - late / (in_time + late))} of requests in time")


def test_a_split_that_would_serve_more_is_told() -> None:
    found = next(one for one in advise([divided(2, 4)]) if one.cause is Cause.RATIO_OFF)
    assert found.sentence.startswith(
        "default/chat divides 6 instances 2 : 4 between prefill and decode; for the present traffic, 4 : 2 could serve more requests, "
        "according to a model that ranks splits; "
    )
    assert "%" not in found.sentence, "the model ranks splits; it forecasts no share"
    assert found.remedy == Remedy(kind="ratio", words="ratio mode Auto", fields={"mode": "Auto"})
    auto = replace(divided(2, 4), ratio_mode=RatioMode.AUTO)
    found = next(one for one in advise([auto]) if one.cause is Cause.RATIO_OFF)
    assert found.remedy is None
    assert "the ratio controller moves instances once that is worth it" in found.sentence


def test_a_better_split_is_said_to_win_no_more_requests_than_are_missed() -> None:
    few = replace(divided(2, 4), refused={RejectionReason.PREDICTED_TTFT.value: 70})
    found = next(one for one in advise([few]) if one.cause is Cause.RATIO_OFF)
    assert found.harm.amount == pytest.approx(few.missed / few.window_seconds)


def test_no_split_is_judged_by_a_handful_of_requests() -> None:
    pool = divided(2, 4)
    assert pool.signals is not None
    few = tuple(replace(one, finished_requests=3) for one in pool.signals.roles)
    assert Cause.RATIO_OFF not in causes(replace(pool, signals=replace(pool.signals, roles=few)))


def test_a_good_split_or_one_that_misses_nothing_is_not() -> None:
    assert Cause.RATIO_OFF not in causes(divided(5, 1))
    assert Cause.RATIO_OFF not in causes(replace(divided(2, 4), refused={}))


def test_no_split_is_judged_by_old_signals_or_while_a_role_serves_nothing() -> None:
    pool = divided(2, 4)
    assert pool.signals is not None
    assert Cause.RATIO_OFF not in causes(replace(pool, signals=replace(pool.signals, age_seconds=31.0)))
    for at in (0, 1):
        sides = tuple(replace(side, serving=0) if place == at else side for place, side in enumerate(pool.signals.roles))
        assert Cause.RATIO_OFF not in causes(replace(pool, signals=replace(pool.signals, roles=sides)))


# --- moves


def test_moves_that_lose_all_in_all_are_told_with_what_they_cost() -> None:
    found = only(well(moves=SeenMoves(known=100, lost=12, net_seconds=-41.0)))
    assert found.sentence == (
        "default/chat's session moves cost users 41 s in the last 60 min: 12 of 100 moves with a known result were not faster than was "
        "predicted for staying."
    )
    assert (found.harm.amount, found.harm.unit, found.level) == (41.0, HarmUnit.WAITED_SECONDS, Level.WARN)
    assert found.remedy == Remedy(kind="migrations", words="pausing migrations", fields={"migrations": "Paused"})
    assert advise([well(moves=SeenMoves(known=100, lost=12, net_seconds=-41.0), moves_paused=True)]) == ()


@given(some.lists(some.floats(-60.0, 60.0), min_size=20, max_size=40))
def test_no_single_move_decides_that_all_moves_lose(gains: list[float]) -> None:
    """A move that waited a minute in a stalled queue does not show that the other moves were slow."""
    moves = SeenMoves(known=len(gains), lost=sum(one <= 0 for one in gains), net_seconds=sum(gains), worst_seconds=min(gains))
    others = sum(sorted(gains)[1:])
    assume(abs(others) > 1e-6 and abs(moves.net_seconds) > 1e-6)
    assert (causes(well(moves=moves)) == [Cause.LOSING_MOVES]) == (moves.net_seconds < 0 and others < 0)


@pytest.mark.parametrize("moves", [SeenMoves(known=100, lost=12, net_seconds=0.0), SeenMoves(known=19, lost=3, net_seconds=-9.0)])
def test_moves_that_win_or_are_too_few_are_not(moves: SeenMoves) -> None:
    assert advise([well(moves=moves)]) == ()
    assert causes(well(moves=replace(moves, known=20, net_seconds=-9.0))) == [Cause.LOSING_MOVES]


# --- engines


def test_lost_instances_are_one_finding_that_explains_the_condition() -> None:
    degraded = SeenCondition(type="Degraded", status="True", reason="InstancesLost", message="Lost: i1 (NotReady)")
    pool = with_instance(well(conditions=(degraded,)), 1, state=InstanceState.LOST, reason="NotReady")
    found = only(pool)
    assert found.sentence == "1 of 4 instances of default/chat is lost: i1 (NotReady); 3 still take requests."
    assert (found.level, found.harm.unit) == (Level.WARN, HarmUnit.INSTANCES)
    assert (found.harm.amount, found.evidence.seconds) == (1.0, 3600.0)
    assert only(with_instance(pool, 1, losses=3)) == found, "it is not told twice"
    alone = with_instance(well(instances=1), 0, state=InstanceState.LOST)
    assert only(alone).level is Level.BAD


def test_an_instance_that_is_lost_again_and_again_is_told() -> None:
    found = only(with_instance(well(), 1, losses=3))
    assert found.sentence == "i1 of default/chat was lost 3 times in the last hour; a drain replaces it."
    assert found.remedy == Remedy(kind="drain", words="draining i1", instance="i1")
    assert (found.harm.amount, found.evidence.seconds) == (1.0, 3600.0)
    assert causes(with_instance(well(), 1, losses=2)) == [Cause.INSTANCES_LOST]
    assert advise([with_instance(well(), 1, losses=1)]) == ()
    assert only(with_instance(well(can_drain=False), 1, losses=3)).remedy is None


def test_an_instance_that_fails_more_than_the_slo_bears_explains_the_refusals() -> None:
    pool = with_instance(well(refused={RejectionReason.UPSTREAM_FAILED.value: 4}), 1, served=served(30, 30, failed=12))
    found = only(pool)
    assert found.sentence == "i1 of default/chat failed 12 of 42 requests that were sent to it; a drain replaces it."
    assert (found.cause, found.harm.amount) == (Cause.INSTANCE_FAILING, 0.12)
    assert found.remedy == Remedy(kind="drain", words="draining i1", instance="i1")
    young = only(with_instance(pool, 1, minutes=SeenMinutes(had=2, failing=2)))
    assert young.remedy is None
    assert young.sentence.endswith("that were sent to it; only 2 minutes are on record, and a drain is offered after 5.")
    assert advise([with_instance(well(), 1, served=served(100, 100, failed=1))]) == ()


# --- predictions


def test_wrong_predictions_count_where_early_rejection_goes_by_them() -> None:
    pool = well(predictions=SeenPredictions(error=0.3, samples=20), early_rejection=EarlyRejectionFacts(mode="Load"))
    found = only(pool)
    assert "with a mean error of 30.0 %: early rejection at 5 s may be off by 1.5 s" in found.sentence
    assert found.harm.unit is HarmUnit.ERROR
    assert advise([replace(pool, early_rejection=EarlyRejectionFacts())]) == ()
    assert advise([replace(pool, predictions=SeenPredictions(error=pool.allowed, samples=20))]) == ()
    assert advise([replace(pool, predictions=SeenPredictions(error=0.9, samples=19))]) == (), "a handful of prefills says little"


def test_a_model_that_errs_more_than_the_formula_is_told_while_it_chooses() -> None:
    seen = SeenPredictions(model_error_seconds=0.9, formula_error_seconds=0.4, model_chooses=True)
    assert only(well(predictions=seen)).sentence == (
        "default/chat's routers choose by a model whose TTFT predictions err by 900 ms; their own formula errs "
        "by 400 ms for the same requests."
    )
    assert advise([well(predictions=replace(seen, model_chooses=False))]) == ()
    assert only(well(predictions=seen)).harm.amount == pytest.approx(0.18)  # of a TTFT target of 5 s
    assert advise([well(predictions=replace(seen, model_error_seconds=0.4))]) == ()


# --- budget, silence, conditions


@pytest.mark.parametrize(("burn", "lasts"), [(0.5, "60.0 days"), (30.0, "1.0 days"), (40.0, "18 hours")])
def test_what_burns_a_budget_within_a_day_is_told_in_hours(burn: float, lasts: str) -> None:
    seen = SeenBurn(name="fast", seconds=3600.0, burn=burn, threshold=0.4, excess_per_second=0.8)
    assert only(well(burns=(seen,))).sentence.endswith(f"at that rate a whole budget of 30 days would last {lasts}.")


def test_a_burning_budget_says_how_long_it_lasts() -> None:
    burn = SeenBurn(name="fast", seconds=3600.0, burn=9.0, threshold=8.0, excess_per_second=0.8)
    slow = SeenBurn(name="slow", seconds=21_600.0, burn=5.0, threshold=4.0, excess_per_second=0.3)
    found = only(well(burns=(slow, burn)))
    assert found.sentence == (
        "default/chat used its error budget 9.0 times faster than allowed over 1 h (alert above 8.0): at that rate a whole budget of 30 "
        "days would last 3.3 days."
    )
    days = SeenBurn(name="days", seconds=3 * 86_400.0, burn=10.0, threshold=1.0, excess_per_second=0.3)
    assert " over 3 d (alert above 1.0)" in only(well(burns=(slow, burn, days))).sentence
    assert (found.harm.amount, found.level) == (0.8, Level.WARN)


@pytest.mark.parametrize(("age", "span", "harm"), [(180.0, "3 min", 0.5), (3600.0, "1 h", 0.025), (86_400.0 * 7, "3 d", 90 / 259_200)])
def test_a_budget_of_a_pool_younger_than_the_window_burned_within_the_pools_life(age: float, span: str, harm: float) -> None:
    days = SeenBurn(name="lasting", seconds=3 * 86_400.0, burn=2.1, threshold=1.0, excess_per_second=90 / 259_200)
    found = only(well(burns=(days.within(age),)))
    assert f" over {span} (alert above 1.0)" in found.sentence
    assert found.harm.amount == pytest.approx(harm)


def test_a_pool_without_a_router_is_told_unless_nothing_is_wanted_of_it() -> None:
    found = only(well(live_routers=0, unheard_seconds=190.0))
    assert found.sentence == "No router reports on default/chat, the last report came 3 min ago: nothing is measured."
    assert found.level is Level.BAD
    assert "none ever did" in only(well(live_routers=0, unheard_seconds=None)).sentence
    assert advise([well(instances=0, live_routers=0)]) == ()


def test_an_operator_that_says_nothing_is_told() -> None:
    assert only(well(unseen_seconds=150.0)).cause is Cause.OPERATOR_SILENT
    assert advise([well(unseen_seconds=15.0)]) == ()


@pytest.mark.parametrize(
    ("condition", "sentence", "level"),
    [
        (
            SeenCondition(type="Ready", status="False", reason="InvalidSpec", message="spec.slo: no."),
            "default/chat is not ready: spec.slo: no.",
            Level.BAD,
        ),
        (
            SeenCondition(type="Degraded", status="True", reason="StrangePods", message="x is not an instance"),
            "default/chat is Degraded: x is not an instance.",
            Level.WARN,
        ),
        (
            SeenCondition(type="GatewayReady", status="False", reason="NoPicker", message="no picker"),
            "default/chat is not GatewayReady: no picker.",
            Level.WARN,
        ),
        (
            SeenCondition(type="RingSynced", status="False", reason="WaitingForRouters", message="not yet", age_seconds=60.0),
            "default/chat is not RingSynced: not yet.",
            Level.WARN,
        ),
    ],
)
def test_a_condition_that_is_not_met_is_told_in_the_operators_words(condition: SeenCondition, sentence: str, level: Level) -> None:
    found = only(well(conditions=(condition,)))
    assert (found.sentence, found.level) == (sentence, level)


def test_instances_that_start_are_a_finding_until_all_wanted_ones_serve() -> None:
    """The condition's message is some seconds older than the instances, and a page shows both."""
    starting = SeenCondition(type="Ready", status="False", reason="InstancesStarting", message="2 of 4 instances serve")
    found = only(well(instances=2, roles=(SeenRole(role=Role.BOTH, wanted=4, least=0, most=64),), conditions=(starting,)))
    assert (found.sentence, found.level) == ("default/chat is starting instances: 2 of 4 instances serve.", Level.WARN)
    assert advise([well(instances=4, conditions=(starting,))]) == ()


def test_conditions_that_only_say_what_goes_on_are_no_findings() -> None:
    fine = (
        SeenCondition(type="Ready", status="True", reason="AllServing", message=""),
        SeenCondition(type="Progressing", status="True", reason="Draining", message="1 instances drain"),
        SeenCondition(type="Degraded", status="False", reason="AsExpected", message=""),
        SeenCondition(type="SLOMet", status="False", reason="TargetMissed", message=""),
        SeenCondition(type="RingSynced", status="False", reason="WaitingForRouters", message="", age_seconds=2.0),
        SeenCondition(type="GatewayReady", status="Unknown", reason="NoGateway", message=""),
    )
    assert advise([well(conditions=fine)]) == ()


# --- the operator's advice


def advised(recommended: int, **changes: Any) -> SeenAdvice:
    seen = SeenAdvice(
        controller=Controller.SCALING,
        role=Role.BOTH,
        current=4,
        recommended=recommended,
        replicas=recommended,
        verdict=Verdict.ADVISED,
        hold=None,
        reason="5.4 instances are needed; advised only",
        age_seconds=120.0,
    )
    return replace(seen, **changes)


def advising(seen: SeenAdvice, mode: ScalingMode = ScalingMode.ADVISE) -> PoolSituation:
    return well(scaling=ScalingSpec(mode=mode), advised=(seen,))


def test_advice_of_a_mode_that_is_no_longer_in_force_is_not_shown() -> None:
    assert causes(advising(advised(6))) == [Cause.SCALING_ADVISED]
    assert advise([advising(advised(6), ScalingMode.FIXED)]) == ()
    moved = replace(divided(2, 4), refused={}, advised=(advised(3, controller=Controller.RATIO, role=Role.PREFILL, current=2),))
    assert causes(replace(moved, ratio_mode=RatioMode.ADVISE)) == [Cause.SCALING_ADVISED]
    assert advise([replace(moved, ratio_mode=RatioMode.FIXED)]) == ()


def test_what_the_operator_advised_is_told_with_its_reason_and_a_plan() -> None:
    found = only(advising(advised(6)))
    assert (
        found.sentence == "The operator advised 6 replicas of default/chat instead of 4, 2 min ago: 5.4 instances are needed; advised only."
    )
    assert (found.level, found.remedy) == (Level.WARN, Remedy(kind="scale", words="6 replicas", replicas=6))
    fewer = only(advising(advised(2)))
    assert (fewer.level, fewer.harm.amount, fewer.harm.unit) == (Level.NOTE, 2.0, HarmUnit.INSTANCES)


@pytest.mark.parametrize(
    "seen",
    [
        advised(6, current=5),
        advised(6, age_seconds=7200.0),
        advised(6, verdict=Verdict.APPLIED),
        advised(6, verdict=Verdict.HELD, hold=Hold.COOLDOWN),
        advised(6, replicas=4, hold=Hold.STABILIZING),
        advised(2, replicas=4, hold=Hold.SLO_MISSED),
        advised(5, replicas=4, hold=Hold.NOT_WORTH_IT, controller=Controller.RATIO),
        advised(4),
    ],
)
def test_advice_that_is_old_followed_or_only_held_back_for_a_while_is_not(seen: SeenAdvice) -> None:
    assert advise([advising(seen)]) == ()


def test_advice_that_a_bound_holds_back_has_no_plan() -> None:
    for verdict in (Verdict.HELD, Verdict.ADVISED):
        found = only(advising(advised(6, replicas=4, verdict=verdict, hold=Hold.AT_BOUND)))
        assert (found.cause, found.remedy, found.harm.amount) == (Cause.SCALING_ADVISED, None, 2.0)


def test_advice_offers_the_number_that_would_be_set_now_and_not_the_one_that_steps_or_bounds_forbid() -> None:
    found = only(advising(advised(12, replicas=6, hold=Hold.STEP_LIMIT)))
    assert found.remedy == Remedy(kind="scale", words="6 replicas", replicas=6)
    assert found.sentence.startswith("The operator advised 6 replicas of default/chat instead of 4") and found.harm.amount == 2.0


def test_advice_of_the_ratio_controller_is_a_plan_of_its_mode() -> None:
    seen = advised(3, controller=Controller.RATIO, role=Role.PREFILL, current=2)
    pool = replace(divided(2, 4), refused={}, ratio_mode=RatioMode.ADVISE, advised=(seen,))
    assert only(pool).remedy == Remedy(kind="ratio", words="ratio mode Auto", fields={"mode": "Auto"})


# --- stalled


def test_an_engine_that_makes_no_progress_is_told_once_with_what_is_left() -> None:
    degraded = SeenCondition(type="Degraded", status="True", reason="EngineStalled", message="chat-2: it moved nothing", age_seconds=90.0)
    pool = with_instance(well(conditions=(degraded,)), 2, troubles={"EngineStalled": 42.0, "EngineSlow": 0.0})
    found = only(pool)
    assert (found.cause, found.level, found.harm.amount) == (Cause.ENGINE_STALLED, Level.WARN, 1.0)
    assert "has made no progress for 42 s" in found.sentence
    assert "3 of 4 instances can take its requests" in found.sentence
    assert found.remedy is not None
    assert found.remedy.kind == "drain"


def test_where_every_engine_is_stalled_that_is_bad() -> None:
    pool = well()
    for number in range(4):
        pool = with_instance(pool, number, troubles={"EngineStalled": 10.0})
    assert {one.level for one in advise([pool])} == {Level.BAD}


def test_of_a_stalled_engine_whose_other_ranks_go_on_the_rank_is_named() -> None:
    found = only(with_instance(well(), 2, troubles={"EngineStalled": 42.0}, stalled_ranks=(1,)))
    assert found.sentence.startswith("Data-parallel rank 1 of i2 of default/chat has requests")
    assert "the other ranks and 3 of 4 instances can take the requests" in found.sentence
    alone = with_instance(well(), 0, troubles={"EngineStalled": 42.0}, stalled_ranks=(1, 3))
    alone = replace(alone, instances=alone.instances[:1])
    assert only(alone).sentence.startswith("Data-parallel ranks 1, 3 of i0 of default/chat have requests")
    assert only(alone).level is Level.WARN


def test_a_slow_engine_is_a_note() -> None:
    found = only(with_instance(well(), 1, troubles={"EngineSlow": 0.0}))
    assert (found.cause, found.level, found.remedy) == (Cause.ENGINE_SLOW, Level.NOTE, None)


def test_engines_that_hand_no_blocks_on_are_one_finding_with_their_number_and_replace_the_condition() -> None:
    degraded = SeenCondition(type="Degraded", status="True", reason="KvNotHandedOn", message="i0: named no KV blocks in its last 3 answers")
    pool = well(conditions=(degraded,))
    for number in range(3):
        silent = {"KvNotHandedOn": 0.0} if number < 2 else {}
        pool = with_instance(pool, number, role=Role.PREFILL, troubles=silent)
    found = only(pool)
    assert (found.cause, found.level, found.harm.amount) == (Cause.KV_NOT_HANDED_ON, Level.WARN, 2.0)
    assert found.sentence.startswith("2 of 3 prefill instances of default/chat name no KV blocks for others to fetch: i0, i1; decode")


def test_where_nothing_is_divided_only_sessions_that_move_suffer_from_engines_that_hand_no_blocks_on() -> None:
    pool = with_instance(well(), 1, troubles={"KvNotHandedOn": 0.0})
    (found,) = (one for one in advise([pool]) if one.cause is Cause.KV_NOT_HANDED_ON)
    assert found.sentence == (
        "1 of 4 instances of default/chat names no KV blocks for others to fetch: i1; sessions that move are computed again; "
        "check --kv-transfer-config."
    )


def test_figures_that_are_behind_are_told_and_a_pool_is_not_well_meanwhile() -> None:
    found = only(well(instances=1, figures_behind_seconds=725.0))
    assert (found.cause, found.level) == (Cause.FIGURES_BEHIND, Level.BAD)
    assert "12 min behind" in found.sentence


# --- all of them


def of_which(cause: Cause) -> PoolSituation:
    """Return a pool that has this finding."""
    late, slow = replace(served(100, 70), ttft_in_time=70), replace(served(100, 70), ttft_in_time=100, tpot_in_time=70)
    off = SeenFigure(quantity=Quantity.TEXT, predicted=4.0, observed=1.0, declared=None, off_seconds=240.0)
    burn = SeenBurn(name="fast", seconds=3600.0, burn=9.0, threshold=8.0, excess_per_second=0.8)
    unready = SeenCondition(type="Ready", status="False", reason="InvalidSpec", message="spec.slo: no.")
    pools = {
        Cause.SATURATED: overloaded(),
        Cause.PROMPTS_TOO_LONG: overloaded(sizing=seen(BEYOND)),
        Cause.REFUSED: well(refused={RejectionReason.QUEUE_FULL.value: 9}),
        Cause.LATE_FIRST_TOKENS: with_instance(well(instances=1), 0, served=late),
        Cause.SLOW_TOKENS: with_instance(well(instances=1), 0, served=slow),
        Cause.HOT_INSTANCE: hot(),
        Cause.RATIO_OFF: divided(2, 4),
        Cause.LOSING_MOVES: well(moves=SeenMoves(known=100, lost=12, net_seconds=-41.0)),
        Cause.INSTANCES_LOST: with_instance(well(), 1, losses=3),
        Cause.INSTANCE_FAILING: with_instance(well(), 1, served=served(30, 30, failed=12)),
        Cause.ENGINE_STALLED: with_instance(well(), 2, troubles={"EngineStalled": 42.0}),
        Cause.KV_NOT_HANDED_ON: with_instance(well(), 1, role=Role.PREFILL, troubles={"KvNotHandedOn": 0.0}),
        Cause.ENGINE_SLOW: with_instance(well(), 1, troubles={"EngineSlow": 0.0}),
        Cause.PREDICTIONS_OFF: well(predictions=SeenPredictions(error=0.3, samples=20), early_rejection=EarlyRejectionFacts(mode="Load")),
        Cause.FIGURE_OFF: well(figures=(off,)),
        Cause.HOST_CACHE_WOULD_HELP: overloaded(sizing=seen(replace(SIMULATED, host_cache=HOST))),
        Cause.BUDGET_BURNS: well(burns=(burn,)),
        Cause.FIGURES_BEHIND: well(instances=1, figures_behind_seconds=725.0),
        Cause.NO_ROUTER: well(live_routers=0, unheard_seconds=190.0),
        Cause.ROUTERS_APART: well(apart={"release": 3}, live_routers=4),
        Cause.ROUTER_SILENT: well(silent_routers=(SeenSilentRouter(name="router-1", seconds=240.0),)),
        Cause.OPERATOR_SILENT: well(unseen_seconds=150.0),
        Cause.CONDITION_NOT_MET: well(conditions=(unready,)),
        Cause.SCALING_ADVISED: advising(advised(6)),
    }
    return pools[cause]


# --- host caches

HOST = HostCache(tokens=1_600_000, predicted=0.11, error=0.024, simulated=0.1)


def with_host_cache(one: HostCache, bytes_per_token: float | None = None) -> list[Finding]:
    found = replace(SIMULATED, numbers=(), host_cache=one)
    pool = overloaded(sizing=seen(found), moves=SeenMoves(bytes_per_token=bytes_per_token))
    return [one for one in advise([pool]) if one.cause is Cause.HOST_CACHE_WOULD_HELP]


def test_a_host_cache_that_the_simulation_confirms_is_advised_with_its_error_and_its_size_in_gigabytes() -> None:
    (found,) = with_host_cache(HOST, bytes_per_token=131_072.0)
    assert found.sentence == (
        "With 210 GB of host memory per instance for KV caches, default/chat would find 11.0 % (± 2.4 %) more of its prompt tokens "
        "in caches; the simulation of the last 58 min finds 10.0 % more."
    )
    assert (found.level, found.harm.amount, found.harm.unit) == (Level.NOTE, 0.11, HarmUnit.HITS)


def test_a_size_of_a_token_that_no_move_has_shown_is_said_to_be_unknown() -> None:
    (found,) = with_host_cache(HOST)
    assert "With 1,600,000 tokens of host memory" in found.sentence
    assert found.sentence.endswith("; the size of a token in the KV cache is not known.")


@pytest.mark.parametrize(
    "one",
    [replace(HOST, simulated=None), replace(HOST, simulated=0.02), replace(HOST, predicted=0.05, simulated=0.05, error=0.03)],
    ids=["not simulated", "the simulation differs", "it may bring nothing"],
)
def test_a_host_cache_that_is_not_confirmed_or_brings_little_is_not_advised(one: HostCache) -> None:
    assert with_host_cache(one) == []


def test_what_a_simulation_finds_that_is_not_like_the_pool_advises_no_host_cache() -> None:
    found = replace(SIMULATED, numbers=(), host_cache=HOST, unlike="the simulated pool is not like this one")
    assert Cause.HOST_CACHE_WOULD_HELP not in causes(overloaded(sizing=seen(found)))


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_is_found_of_some_pool(cause: Cause) -> None:
    assert cause in causes(of_which(cause))

"""The stored record of a recommendation, and the sentence made from its figures."""

from dataclasses import replace
from typing import Any

from fairlead.instances import Role
from fairlead.scaling.bounds import BoundsInForce
from fairlead.scaling.decisions import record, sentence
from fairlead.scaling.memory import RoleMemory, ScalingMemory
from fairlead.scaling.recommendations import Cause, Controller, Hold, Imbalance, Need, Recommendation, Verdict
from fairlead_testing.builders.scaling import BEGIN, role_signals

SIGNALS = role_signals(
    prompt_tokens_per_second=8000.0, cached_share=0.25, output_tokens_per_second=300.0, prefill_load=1.5, decode_load=1.2
)


def recommendation(**changes: Any) -> Recommendation:
    found = Recommendation(
        controller=Controller.SCALING,
        role=Role.BOTH,
        current=4,
        recommended=8,
        replicas=8,
        verdict=Verdict.APPLIED,
        cause=Cause.PROMPTS,
        hold=None,
        bounds=BoundsInForce(lower=1, upper=8),
        need=Need(for_prompts=7.5, for_queue=0.0, for_outputs=2.0, for_slow_outputs=None),
        signals=(SIGNALS,),
    )
    return replace(found, **changes)


def test_the_sentence_names_what_asks_for_the_number_with_its_figures() -> None:
    assert sentence(recommendation()) == "7.5 instances are needed to prefill 8000 prompt tokens/s, 25.0 % of them cached"
    assert "300 output tokens/s" in sentence(recommendation(cause=Cause.OUTPUTS))
    assert "1.20 × slo.tpot" in sentence(recommendation(cause=Cause.SLOW_OUTPUTS))
    assert "a queue of 1.50 × slo.ttft" in sentence(recommendation(cause=Cause.QUEUE))
    for unknown in (None, Need()):
        assert sentence(recommendation(need=unknown)).startswith("? instances are needed")


def test_the_sentence_says_why_it_is_not_followed() -> None:
    held = recommendation(hold=Hold.AT_BOUND, replicas=4, verdict=Verdict.HELD)
    assert sentence(held).endswith("; nothing changes: the bounds are 1 to 8")
    limited = recommendation(hold=Hold.STEP_LIMIT, replicas=6)
    assert sentence(limited).endswith("; only 6 instead of 8: this period's steps are used up")
    assert sentence(recommendation(verdict=Verdict.ADVISED)).endswith("; advised only")
    for hold in Hold:
        assert "{" not in sentence(recommendation(hold=hold, replicas=4))


def test_a_move_between_roles_names_both_loads() -> None:
    seen = Imbalance(prefill_load=1.21, decode_load=0.35, comparisons=3, donor=Role.DECODE, donor_replicas=4)
    found = sentence(recommendation(controller=Controller.RATIO, role=Role.PREFILL, cause=Cause.LOADS_APART, imbalance=seen))
    assert found == (
        "prefill load 1.21 and decode load 0.35 are out of balance: one decode instance should become prefill, for 3 comparisons in a row"
    )


def test_a_round_that_is_repeated_makes_the_same_row_and_a_later_one_another() -> None:
    before = ScalingMemory(roles=(RoleMemory(role=Role.BOTH, declared=4, replicas=4, compared_at=BEGIN),))
    later = ScalingMemory(roles=(RoleMemory(role=Role.BOTH, declared=4, replicas=4, compared_at=BEGIN + 15),))
    first = record(recommendation(), before, "uid-1", "SLO", BEGIN + 15)
    again = record(recommendation(), before, "uid-1", "SLO", BEGIN + 17)
    assert first.id == again.id
    assert (first.current, first.recommended, first.lower, first.upper, first.mode) == (4, 8, 1, 8, "SLO")
    others = {record(recommendation(), later, "uid-1", "SLO", BEGIN).id, record(recommendation(), before, "uid-2", "SLO", BEGIN).id}
    assert first.id not in others
    assert len(others) == 2

"""Sentences about decisions and moves state the recorded facts, in the right direction, and never call a loss a
gain.
"""

from dataclasses import dataclass, replace

import pytest

from fairlead.reports.decisions import CandidateScore
from fairlead.routing.contracts.weighing import COMMON_RULES, TOTAL, Unit
from fairlead.routing.explanations.checking import contradictions
from fairlead.routing.explanations.explaining import explain, in_words, pair_in_words
from fairlead.routing.explanations.explaining_moves import explain_move
from fairlead.routing.explanations.grounds import ground_of, terms_of
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_testing.worlds.watched_policy import Recorded


def scored(instance: str, total: float, hit: int = 0, ttft: float = 1.0, **terms: float) -> CandidateScore:
    return CandidateScore(
        instance=instance, hit_tokens=hit, miss_tokens=1, pending_tokens=0, predicted_ttft_seconds=ttft, total=total, terms=terms
    )


def recorded(policy: str, rule: str, *candidates: CandidateScore, passed_over: str | None = None, **limits: float) -> Recorded:
    ground = ground_of(BUILT_IN.terms(policy), rule, limits)
    return Recorded(
        chosen=candidates[0].instance,
        rule=ground.rule,
        terms=ground.terms,
        limits=ground.limits,
        candidates=candidates,
        passed_over=passed_over,
        prompt_tokens=1000,
    )


def problems(decision: Recorded, reason: str = "", considered: int = 2) -> list[str]:
    return contradictions(decision, (), considered, reason)


@pytest.mark.parametrize("policy", BUILT_IN.names)
def test_rules_name_only_terms_and_limits_that_are_declared(policy: str) -> None:
    known = BUILT_IN.entry(policy).terms
    terms = terms_of(known)
    limits = {limit.name for limit in known.limits} | {"chosen"}
    codes = [rule.code for rule in (*COMMON_RULES, *known.rules)]
    assert len(set(codes)) == len(codes)
    for rule in known.rules:
        assert set(rule.order) <= set(terms)
        for condition in (*rule.given, *([rule.among] if rule.among else [])):
            assert condition.term in set(terms) | limits
            assert condition.against in limits
    assert set(known.parts) <= set(terms)
    assert not known.parts or known.total is not None


def test_a_narrow_win_is_told_with_both_numbers_and_the_direction() -> None:
    decision = recorded("least-loaded", "least-pending", scored("a", 1200.0, decode_tokens=0.0), scored("b", 1201.0, decode_tokens=0.0))
    assert "Waiting ahead: 1,200 tokens against 1,201 tokens on b, lower is better." in explain(decision)
    assert problems(decision) == []


def test_the_better_of_two_scores_is_the_higher_where_higher_is_better() -> None:
    a = scored("a", 4.7, queue_score=1.0, kv_score=1.0, prefix_score=2.7)
    b = scored("b", 3.6, queue_score=1.0, kv_score=1.0, prefix_score=1.6)
    assert "Score: 4.700 against 3.600 on b, higher is better." in explain(recorded("heimdall", "best-score", a, b))
    assert problems(recorded("heimdall", "best-score", a, b)) == []
    assert problems(recorded("heimdall", "best-score", b, a)) == ["according to rule best-score, a is better than b"]


def test_a_total_that_is_not_the_sum_of_its_parts_is_a_contradiction() -> None:
    one = scored("a", 4.7, queue_score=1.0, kv_score=1.0, prefix_score=2.0)
    decision = recorded("heimdall", "best-score", one)
    assert contradictions(decision, ("queue_score", "kv_score", "prefix_score"), 2, "") == [
        "the total 4.7 of a is not the sum of queue_score, kv_score, prefix_score"
    ]


def test_a_tie_says_how_it_was_broken() -> None:
    a, b = scored("a", 5.0, decode_tokens=1.0), scored("b", 5.0, decode_tokens=1.0)
    text = explain(recorded("least-loaded", "least-pending", a, b))
    assert "b is equal in waiting ahead and held by running decodes; such a tie goes to the one chosen longest ago." in text


def test_a_guard_names_what_was_passed_over_and_the_limit_it_broke() -> None:
    b, a = scored("b", 9_000.0, decode_tokens=0.0), scored("a", 41_000.0, hit=900, decode_tokens=0.0)
    decision = recorded("dualmap", "slo-guard", b, a, passed_over="a", overload_tokens=31_250.0)
    text = explain(decision)
    assert "Load with this request on a: 41,000 tokens, above the limit of 31,250 tokens" in text
    assert problems(decision, "slo-overloaded") == []
    cool = recorded("dualmap", "slo-guard", b, replace(a, total=20_000.0), passed_over="a", overload_tokens=31_250.0)
    assert problems(cool, "slo-overloaded") == [
        "rule slo-guard requires total above overload_tokens, but 20000.0 and 31250.0 do not satisfy this"
    ]


def test_a_bound_session_says_that_the_rule_stands_above_the_score() -> None:
    host = scored("a", 900.0, sessions=3.0, free_kv_tokens=10.0)
    idle = scored("b", 0.0, sessions=0.0, free_kv_tokens=10.0)
    decision = recorded("ear", "host-not-hot", host, idle, hot_tokens=1000.0)
    text = explain(decision)
    assert "its session is bound there and it is not hot" in text
    assert "The rule overrides the score: waiting ahead is 900 tokens against 0 tokens on b, lower is better." in text
    assert problems(decision) == []


def test_the_first_in_time_is_best_only_among_those_in_time() -> None:
    slow = scored("a", 1.0, ttft=9.0, decode_tokens=0.0)
    quick = scored("b", 2.0, ttft=3.0, decode_tokens=0.0)
    decision = recorded("fairlead", "in-time-first", quick, slow, passed_over="a", in_time_seconds=4.5, affinity=1.0)
    assert problems(decision) == []
    assert "Predicted TTFT on a: 9.00 s, above the limit of 4.50 s" in explain(decision)


@pytest.mark.parametrize(
    ("actual", "served_by", "words"),
    [
        (1.2, "a", "predicted in 1.00 s and came in 1.20 s."),
        (0.4, "a", "but came in 400 ms: the prediction was far off, 600 ms too late."),
        (9.0, "a", "but came in 9.00 s: the prediction was far off, 8.00 s too early."),
        (9.0, "b", "the request moved to b, where its first token came after 9.00 s."),
        (None, None, "no first token was reported."),
    ],
)
def test_the_prediction_is_held_against_what_came(actual: float | None, served_by: str | None, words: str) -> None:
    decision = replace(recorded("random", "drawn", scored("a", 0.0)), ttft_seconds=actual, served_by=served_by)
    assert explain(decision).endswith(words)


def test_a_hold_is_told_and_no_prediction_is_blamed_for_it() -> None:
    held = replace(recorded("random", "drawn", scored("a", 0.0)), held_seconds=60.0, ttft_seconds=61.2, served_by="a")
    assert "Before that, the request was held for 60.0 s: no instance accepted requests." in explain(held)
    assert explain(held).endswith("predicted in 1.00 s and came in 1.20 s, without the time for which it was held.")
    late = explain(replace(held, ttft_seconds=69.0))
    assert late.endswith("but came in 9.00 s, without the time for which it was held: the prediction was far off, 8.00 s too early.")
    for none in (0.0, None):
        assert "held for" not in explain(replace(held, held_seconds=none))


def test_both_instances_of_a_divided_request_are_told_and_a_decode_instance_alone_has_a_rule_of_its_own() -> None:
    divided = replace(recorded("random", "drawn", replace(scored("p", 0.0), total=None)), decode="x")
    assert explain(divided).endswith("It was chosen to compute only the prompt; x decodes.")
    assert problems(divided) == []
    assert problems(replace(divided, decode="p", served_by="p")) == ["p was recorded as the decode instance of its own prefill"]
    went_on = replace(divided, decode="p", served_by="q")
    assert problems(went_on) == [], "chosen to do everything, it decoded what came back to a prefill instance while it waited"
    assert explain(went_on).endswith("In the end it only decoded: q computed the prompt.")
    whole = recorded("dualmap", "no-prefill", replace(scored("x", 0.0), total=None))
    assert "no prefill instance could take the request" in explain(whole)
    assert problems(whole, "decode-only") == []
    assert "the reason decode-only does not fit the terms" in problems(recorded("random", "drawn", scored("x", 0.0)), "decode-only")


def test_a_rule_of_another_version_is_not_made_up() -> None:
    decision = recorded("fairlead", "from-the-future", scored("a", 1.0))
    assert explain(decision).startswith("a was chosen: the rule that decided is not known to this version.")


def test_values_that_differ_are_written_so_that_one_sees_it() -> None:
    assert pair_in_words(6.9, 7.2, Unit.SECONDS) == ("6.90 s", "7.20 s")
    assert pair_in_words(6.90001, 6.90002, Unit.SECONDS) == ("6.900010 s", "6.900020 s")
    assert [in_words(1, Unit.REQUESTS), in_words(2, Unit.REQUESTS), in_words(0.5, Unit.SHARE)] == ["1 request", "2 requests", "50%"]
    assert in_words(-202_469, Unit.TOKENS) == "over-committed by 202,469 tokens"
    assert in_words(61_713.8, Unit.TOKENS) == "61,714 tokens", "nobody asks for a tenth of a token"
    assert pair_in_words(61_713.8, 61_714.2, Unit.TOKENS) == ("61,713.800 tokens", "61,714.200 tokens")


@dataclass(frozen=True, kw_only=True)
class AMove:
    source: str = "a"
    target: str = "b"
    trigger: str = "slo"
    crossed: float | None = None
    threshold: float | None = None
    crossed_unit: str | None = None
    source_hit_tokens: int | None = None
    target_hit_tokens: int | None = None
    least_gain_seconds: float | None = None
    predicted_source_ttft_seconds: float | None = 5.0
    predicted_target_ttft_seconds: float | None = 1.0
    benefit_seconds: float | None = 4.0
    actual_ttft_seconds: float | None = 2.0
    paid_off: bool | None = True
    tokens_moved: int = 0
    tokens_recomputed: int = 3000
    cache: str | None = None
    transfer_seconds: float | None = None
    predicted_transfer_seconds: float | None = None
    transfer_bytes: int | None = None
    handed_over: bool = False


@pytest.mark.parametrize(
    ("move", "words"),
    [
        (AMove(), "moving 1.00 s: 4.00 s faster. It was faster: the first token took 2.00 s, 3.00 s less than predicted for staying."),
        (AMove(actual_ttft_seconds=6.5, paid_off=False), "It was not faster: the first token took 6.50 s, 1.50 s longer than predicted"),
        (
            AMove(predicted_target_ttft_seconds=51.0, benefit_seconds=-46.0, paid_off=None),
            "46.0 s slower. It was faster, which had not been predicted: the first token took 2.00 s, 3.00 s less than predicted",
        ),
        (AMove(actual_ttft_seconds=None, paid_off=None), "is not known: no first token"),
        (
            AMove(predicted_source_ttft_seconds=None, benefit_seconds=None, paid_off=None),
            "No time was predicted for staying. Whether it was faster is not known; the first token came after 2.00 s.",
        ),
    ],
)
def test_a_move_says_what_was_promised_and_whether_it_came_true(move: AMove, words: str) -> None:
    assert words in explain_move(move, "Session s")
    assert explain_move(move, "Session s").startswith("Session s went from a to b: another instance promised an earlier first token.")


def test_a_session_that_a_router_handed_over_says_so_before_what_became_of_its_cache() -> None:
    move = AMove(handed_over=True, cache="moved", tokens_moved=3000, transfer_seconds=0.2)
    assert "A router moved it before its next turn: the router sent the session's last prompt to the target. Its KV cache," in explain_move(
        move, "Session s"
    )
    assert "A router moved it" not in explain_move(AMove(), "Session s")


@pytest.mark.parametrize(
    ("move", "words"),
    [
        (AMove(), "another instance promised an earlier first token."),
        (
            AMove(crossed=5.4, threshold=5.0, crossed_unit="seconds"),
            "staying was predicted to miss the TTFT target (5.40 s to the first token; the target is 5.00 s).",
        ),
        (
            AMove(trigger="hot-migration", crossed=70_000.0, threshold=62_500.0, crossed_unit="tokens"),
            "its host was hot (70,000 tokens were to be computed there, and the limit is 62,500 tokens).",
        ),
        (
            AMove(trigger="prefix-equal", crossed=900.0, threshold=300.0, crossed_unit="tokens"),
            "both instances held as much of its prompt, and the new one had less to do (900 tokens waited at the "
            "old instance, 300 tokens at the new one).",
        ),
        (
            AMove(trigger="hotspot", crossed=6.05, threshold=5.0, crossed_unit="seconds"),
            "the queue it waited in was overloaded (6.05 s were predicted until the first token of its last request; the limit is 5.00 s).",
        ),
        (AMove(trigger="drain"), "its instance drained."),
        (AMove(trigger="from-the-future"), "from-the-future."),
        (AMove(trigger="prefix-key", benefit_seconds=-0.8), "because its requests always follow the prefix's place on the ring."),
    ],
)
def test_a_move_says_the_number_that_decided_and_one_of_before_what_it_knows(move: AMove, words: str) -> None:
    assert words in explain_move(move, "Session s")


def test_total_is_a_name_no_policy_uses_for_something_else() -> None:
    assert all(term.name != TOTAL for policy in BUILT_IN.names for term in BUILT_IN.entry(policy).terms.terms)


@pytest.mark.parametrize(
    ("session", "told"), [("conversation:1", "placed as conversation:1"), (None, "placed as a request without a session")]
)
def test_a_name_that_several_conversations_share_is_told_with_what_the_request_went_by(session: str | None, told: str) -> None:
    decision = replace(recorded("ear", "name-shared", scored("a", 0.0, sessions=0.0)), named="default_user_id", session=session)
    assert "names the session default_user_id, but several conversations share that name" in explain(decision)
    assert told in explain(decision)

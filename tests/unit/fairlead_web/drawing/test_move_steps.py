"""The steps and the net effect of a migration are shown from its record; values that are not recorded are shown as
unknown.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import CacheFate, MoveOutcome
from fairlead_client.resources.moves import Migration
from fairlead_client.resources.sessions import BindingHistoryItem
from fairlead_testing.fakes.public_data.world import World
from fairlead_web.drawing.move_steps import cache_words, net_effect, steps_of

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
WORLD = World(now=NOW)
MOVE = replace(
    WORLD.migrations()[1],
    source="a",
    target="b",
    request="req-1",
    at=NOW,
    predicted_source_ttft_seconds=5.0,
    predicted_target_ttft_seconds=1.0,
    benefit_seconds=4.0,
    actual_ttft_seconds=2.0,
    paid_off=True,
    outcome=MoveOutcome.COMPLETED,
    tokens_moved=0,
    tokens_recomputed=3000,
)


def homes(released_seconds: float = 0.0) -> list[BindingHistoryItem]:
    left = BindingHistoryItem(
        instance="a",
        version=1,
        reason=BindingReason.COLD,
        bound_at=NOW - timedelta(minutes=10),
        released_at=NOW - timedelta(seconds=released_seconds),
        router="r",
        migration=None,
    )
    return [replace(left, instance="b", version=2, bound_at=NOW, released_at=None, migration=MOVE.id), left]


def told(move: Migration, history: list[BindingHistoryItem] | None) -> dict[str, tuple[str, str]]:
    return {step.words: (step.state, step.told) for step in steps_of(move, None, history)}


def test_a_cache_that_came_along_or_did_not_is_told_with_its_time() -> None:
    moved = replace(
        MOVE, cache=CacheFate.MOVED, tokens_moved=2976, tokens_recomputed=24, transfer_seconds=0.4, predicted_transfer_seconds=0.3
    )
    assert told(moved, None)["Transfer"] == ("done", "Its KV cache, 2,976 tokens, was transferred after 400 ms (300 ms predicted).")
    late = replace(MOVE, cache=CacheFate.LATE, transfer_seconds=2.0)
    assert told(late, None)["Transfer"][0] == "none"
    assert [cache_words(one) for one in (moved, late, MOVE)] == ["2,976 tokens moved", "recomputed: too slow", "recomputed"]


def test_a_decision_a_binding_and_its_predecessor_give_the_steps_their_times() -> None:
    decision = WORLD.decisions()[0]
    plan, transfer, cutover, release = steps_of(MOVE, decision, homes(30))
    assert (plan.state, plan.at, plan.path) == ("done", decision.at, f"/decisions/{decision.id}")
    assert (transfer.state, transfer.at) == ("none", None)
    assert transfer.told == "Nothing was copied: 3,000 tokens had to be computed again on b."
    assert (cutover.at, cutover.told) == (NOW, "Binding 2: from here on the session's requests go to b.")
    assert (release.at, release.told) == (
        NOW - timedelta(seconds=30),
        "a released the session 30.0 s earlier; no instance held it meanwhile, after 9 min 30 s.",
    )
    assert told(MOVE, homes())["Release"][1] == "a released the session in the same instant, after 10 min."


def test_what_is_not_recorded_has_no_time_and_says_so() -> None:
    for history, why in ((None, "could not be read"), ([], "does not reach back so far")):
        found = told(MOVE, history)
        assert found["Plan"] == ("unknown", found["Plan"][1])
        assert "not in the recorded sample" in found["Plan"][1]
        for step in ("Cutover", "Release"):
            assert found[step][0] == "unknown"
            assert why in found[step][1]
    assert told(MOVE, homes()[:1])["Release"] == ("unknown", "When a released the session is not recorded.")


def test_a_move_by_a_person_leads_to_its_plan() -> None:
    asked = replace(MOVE, request=None, trigger=BindingReason.OPERATOR)
    assert steps_of(asked, None, [])[0].path == f"/plans/{asked.id}"
    assert "was not reported" in told(replace(asked, trigger=BindingReason.SLO), [])["Plan"][1]


def test_copied_tokens_are_told_without_a_duration_that_nobody_measured() -> None:
    state, words = told(replace(MOVE, tokens_moved=800, tokens_recomputed=0), homes())["Transfer"]
    assert (state, words) == ("done", "800 tokens of KV cache were fetched from a. How long it took is not recorded.")
    assert told(replace(MOVE, tokens_recomputed=0), homes())["Transfer"][0] == "none"


def test_the_net_effect_is_staying_less_what_came() -> None:
    gained = net_effect(MOVE)
    assert (gained.value, gained.told, gained.level) == ("3.00 s saved", "5.00 s predicted for staying, minus 2.00 s measured.", "good")
    lost = net_effect(replace(MOVE, actual_ttft_seconds=6.0, paid_off=False))
    assert (lost.value, lost.level) == ("1.00 s lost", "bad")


def test_a_gain_that_nobody_predicted_is_not_called_paid_off() -> None:
    lucky = net_effect(replace(MOVE, benefit_seconds=-78.0, paid_off=None))
    assert (lucky.value, lucky.level) == ("3.00 s saved", "")
    assert "had not been predicted" in lucky.told


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"actual_ttft_seconds": None, "outcome": MoveOutcome.UNDERWAY}, "still in progress"),
        ({"actual_ttft_seconds": None, "outcome": MoveOutcome.FAILED}, "No first token was reported"),
        ({"predicted_source_ttft_seconds": None}, "was predicted for staying"),
    ],
)
def test_an_effect_that_cannot_be_known_is_not_made_up(change: dict[str, object], why: str) -> None:
    found = net_effect(replace(MOVE, paid_off=None, **change))  # type: ignore[arg-type]  # any field
    assert found.value == "not known"
    assert why in found.told

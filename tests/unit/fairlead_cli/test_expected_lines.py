"""What a plan's simulation expects, in lines of the command line."""

from datetime import UTC, datetime

from fairlead_cli.planning import expected_lines, hand_over_lines, kept_lines
from fairlead_client.resources.expectations import ExpectationState, ExpectedFigure, PlanExpectation, Quantity
from fairlead_client.resources.plans import HandOverForecast, HandOverResult

AT = datetime(2026, 11, 23, 10, tzinfo=UTC)


def test_figures_are_printed_for_now_and_with_the_plan_and_unknown_ones_with_their_reason() -> None:
    done = PlanExpectation(
        plan="p1",
        state=ExpectationState.DONE,
        start=AT,
        end=AT,
        requests=1000,
        measured_seconds=1800.0,
        seeds=[0, 1],
        rates=[0.8, 1.25],
        figures=[
            ExpectedFigure(quantity=Quantity.ATTAINMENT, before=0.8, after=0.95),
            ExpectedFigure(quantity=Quantity.HIT_RATE, before=0.5, after=0.4, unknown="chance decides"),
            ExpectedFigure(quantity=Quantity.SESSIONS_MOVED, before=2.0, after=41.6),
        ],
    )
    head, *lines = expected_lines(done)
    assert "1,000 requests recorded from 2026-11-23 10:00:00 UTC" in head
    assert "seeds 0 and 1 (with this plan also at 0.8 and 1.25 times the rate). The change" in head
    assert lines == [
        "  in time: 80.0% now, 95.0% with this plan",
        "  of prompt tokens from caches: unknown; chance decides",
        "  sessions that move: 2 now, 42 with this plan",
    ]


def test_a_plan_that_is_being_simulated_says_how_far_it_is() -> None:
    [line] = expected_lines(PlanExpectation(plan="p1", state=ExpectationState.QUEUED, done=5, total=4000))
    assert line == "Simulating the effect, 5 of 4,000 requests; see `fairlead plans show p1`."


def test_what_is_kept_of_caches_is_printed_with_its_price_or_why_it_is_not_known_and_then_what_was_kept() -> None:
    known = HandOverForecast(hits_kept=0.931, seconds_longer=40.0, more_work=0.021)
    assert hand_over_lines(known) == [
        "Keeps 93% of the pool's cache hits in the next five minutes; this takes 40 s longer and 2.1% more work."
    ]
    assert hand_over_lines(HandOverForecast(unknown="no speed")) == [
        "How much is kept of the leaving instances' caches is not known: no speed."
    ]
    assert hand_over_lines(None) == kept_lines(HandOverResult(plan="p", expected=known)) == []
    kept = HandOverResult(
        plan="p", expected=known, until=AT, sessions_moved=9, sessions_handed_over=7, tokens_moved=5000, tokens_lost=300, hits_kept=0.9
    )
    (line,) = kept_lines(kept)
    assert line.startswith(
        "Share of the pool's hits that was kept until 2026-11-23 10:00:00 UTC: 90% (93% expected). Of 9 sessions that moved, routers handed 7"
    )
    assert "5,000 tokens were transferred, 0 were computed in advance, and 300 were computed again" in line

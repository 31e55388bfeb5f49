"""A session's homes, as a drawing and in words."""

from datetime import UTC, datetime, timedelta

from fairlead.reports.bindings import BindingReason
from fairlead_client.resources.sessions import BindingHistoryItem
from fairlead_web.drawing.holders import DRAWN, LANES, holder_band, holders_in_words

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


def home(
    instance: str, start: float, end: float | None, version: int = 1, reason: BindingReason = BindingReason.COLD
) -> BindingHistoryItem:
    """Return a home from `start` to `end` minutes ago; every home after the first began with a migration."""
    return BindingHistoryItem(
        instance=instance,
        version=version,
        reason=reason,
        bound_at=NOW - timedelta(minutes=start),
        released_at=None if end is None else NOW - timedelta(minutes=end),
        router="r",
        migration=None if version == 1 else f"m-{version}",
    )


def test_holders_get_a_lane_each_and_the_present_one_reaches_now() -> None:
    band = holder_band([home("a", 40, 20), home("b", 20, 10), home("a", 10, None)], NOW)
    assert [lane.name for lane in band.lanes] == ["a", "b"]
    assert [(bar.x, bar.width) for bar in band.lanes[0].bars] == [(0, 500), (750, 250)]
    assert holder_band([], NOW).lanes == ()


def test_of_many_homes_the_newest_are_drawn() -> None:
    homes = [home(f"i{number}", 900 - number, 899 - number, version=number + 1) for number in range(40)]
    band = holder_band(homes, NOW)
    assert [lane.name for lane in band.lanes] == [f"i{number}" for number in range(40 - LANES, 40)]
    assert band.homes == LANES
    back_and_forth = [home("ab"[number % 2], 900 - number, 899 - number, version=number + 1) for number in range(400)]
    assert sum(len(lane.bars) for lane in holder_band(back_and_forth, NOW).lanes) == DRAWN


def test_a_holder_keeps_its_colour_when_another_one_takes_over() -> None:
    homes = [home(f"i{number}", 900 - number, 899 - number, version=number + 1) for number in range(LANES + 5)]
    for count in range(1, len(homes)):
        before, after = (holder_band(homes[:some], NOW) for some in (count, count + 1))
        colours = {lane.name: {bar.series for bar in lane.bars} for lane in before.lanes}
        assert all(colours[lane.name] == {bar.series for bar in lane.bars} for lane in after.lanes if lane.name in colours)


def test_the_sentence_says_who_held_it_longest_why_it_moved_and_when_nobody_did() -> None:
    homes = [
        home("a", 60, 20),
        home("b", 20, 15, 2, BindingReason.SLO),
        home("c", 10, None, 3, BindingReason.DRAIN),
    ]
    assert holders_in_words(homes, 3, NOW) == (
        "3 instances held it within 1 h, a the longest: 40 min (66.7 %). It moved 2 times: slo 1×, drain 1×. "
        "For 5 min in between no instance held it."
    )


def test_a_session_that_never_moved_or_ended_says_so() -> None:
    assert holders_in_words([home("a", 30, None)], 1, NOW) == "a alone held it, for 30 min."
    assert holders_in_words([home("a", 30, 10)], 1, NOW) == "a alone held it, for 20 min. No instance has held it since, for 10 min."
    assert holders_in_words([], 0, NOW) == ""


def test_homes_that_are_forgotten_are_not_passed_over_in_silence() -> None:
    told = holders_in_words([home("b", 30, None, 7, BindingReason.SLO)], 7, NOW)
    assert told == "Its newest 1 of 7 bindings are recorded. b alone held it, for 30 min. It moved once: slo."

"""Pauses after failures of a server, which grow."""

from itertools import pairwise

from fairlead.conditions.facts import ActionFailure, ActionFailureReason
from fairlead_operator.backoff import ActionBackoff, ServerBackoff


def problem(words: str) -> ActionFailure:
    return ActionFailure(reason=ActionFailureReason.ACTION_FAILED, message=words)


def test_a_refused_action_waits_twice_as_long_each_time_up_to_the_longest() -> None:
    refusals, now, tries = ActionBackoff(longest=60.0), 0.0, []
    while now < 600:
        if refusals.waiting("create", now) is None:
            tries.append(now)
            refusals.add("create", problem("quota"), now)
        now += 0.5
    assert tries[:6] == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0]
    assert [round(after - before) for before, after in pairwise(tries[6:])] == [60] * (len(tries) - 7)


def test_new_words_are_told_and_the_same_are_not() -> None:
    refusals = ActionBackoff(longest=60.0)
    assert refusals.add("create", problem("quota"), 0.0).is_news
    assert not refusals.add("create", problem("quota"), 9.0).is_news
    assert refusals.add("create", problem("forbidden"), 99.0).is_news
    refusals.clear("create")
    assert refusals.add("create", problem("forbidden"), 999.0).is_news, "it had worked in between"


def test_what_may_pass_is_told_when_it_comes_a_second_time_in_a_row() -> None:
    refusals = ActionBackoff(longest=60.0)
    first, second, third = (refusals.add("drain", problem("conflict"), at, is_passing=True) for at in (0.0, 9.0, 19.0))
    assert (first.told, first.is_news) == (None, False)
    assert (second.told, second.is_news) == (problem("conflict"), True)
    assert (third.told, third.is_news) == (problem("conflict"), False)


def test_what_took_long_to_be_refused_waits_as_long_before_it_is_tried_again() -> None:
    refusals = ActionBackoff(longest=60.0)
    refusals.add("create", problem("webhook"), 30.0, took=30.0)
    assert refusals.due(30.0) == 30.0


def test_what_is_not_wanted_any_more_is_forgotten() -> None:
    refusals = ActionBackoff(longest=60.0)
    refusals.add("create", problem("quota"), 0.0)
    assert refusals.due(0.25) == 0.75
    refusals.keep(set())
    assert refusals.due(0.25) is None
    assert refusals.waiting("create", 0.25) is None


def test_a_clock_that_went_back_ends_a_pause() -> None:
    refusals = ActionBackoff(longest=60.0)
    refusals.add("create", problem("quota"), 1000.0)
    assert refusals.waiting("create", 1000.5) is not None
    assert refusals.waiting("create", 10.0) is None


def test_a_silent_server_is_asked_after_longer_and_longer_pauses_and_at_once_after_an_answer() -> None:
    now, lefts = 0.0, []
    pauses = ServerBackoff(30.0, lambda: now, lambda: 0.5)
    for _ in range(8):
        pauses.failed(pauses.now(), "timeout", None)
        lefts.append(pauses.left())
        now += pauses.left()
    assert lefts == [1, 2, 4, 8, 16, 30, 30, 30]
    pauses.answered()
    assert pauses.left() == 0
    pauses.failed(pauses.now(), "timeout", None)
    assert pauses.left() == 1


def test_questions_that_were_under_way_together_count_once() -> None:
    now = 0.0
    pauses = ServerBackoff(30.0, lambda: now, lambda: 0.5)
    asked = [pauses.now() for _ in range(16)]
    now = 3.0
    for at in asked:
        pauses.failed(at, "timeout", None)
    assert pauses.left() == 1


def test_chance_spreads_the_pauses() -> None:
    short, long = (ServerBackoff(30.0, lambda: 0.0, lambda chance=chance: chance) for chance in (0.0, 1.0))  # type: ignore[misc]
    for pauses in (short, long):
        pauses.failed(pauses.now(), "timeout", None)
    assert (short.left(), long.left()) == (0.75, 1.25)

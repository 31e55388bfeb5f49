"""Routers that decide separately are reported, with their reason and the remedy."""

import pytest

from fairlead.advice.advising import advise
from fairlead.advice.findings import Cause
from fairlead.reports.shares import Apart
from fairlead_testing.builders.situations import well


@pytest.mark.parametrize("why", list(Apart))
def test_routers_that_decide_for_themselves_are_told_with_their_reason(why: Apart) -> None:
    (found,) = advise([well(apart={why.value: 3}, live_routers=4)])
    assert (found.cause, found.subject, found.harm.amount) == (Cause.ROUTERS_APART, why.value, 3.0)
    assert found.sentence.startswith("3 of 4 routers decide for default/chat separately")
    assert why.value not in found.sentence, "the reason is told in words"


def test_a_newer_routers_reason_is_told_in_its_words() -> None:
    (found,) = advise([well(apart={"the moon": 1}, live_routers=2)])
    assert "the moon" in found.sentence


def test_where_one_decides_there_is_nothing_to_tell() -> None:
    assert advise([well()]) == ()

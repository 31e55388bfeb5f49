"""How often a caller may do something before it has to wait."""

from datetime import UTC, datetime, timedelta

import pytest

from fairlead_api.access.limits import MOST_KNOWN, Allowances
from fairlead_api.infra.errors import TooMany

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_burst_passes_and_what_follows_waits_as_long_as_it_is_told() -> None:
    limits = Allowances(burst=3, per_second=0.1, code="too-many-logins")
    for _ in range(3):
        limits.require("here", START)
        limits.spend("here", START)
    with pytest.raises(TooMany) as caught:
        limits.require("here", START)
    assert (caught.value.code, caught.value.retry_after_seconds) == ("too-many-logins", 10)
    limits.require("elsewhere", START)
    with pytest.raises(TooMany):
        limits.require("here", START + timedelta(seconds=9))
    limits.require("here", START + timedelta(seconds=10))


def test_an_allowance_never_grows_beyond_its_burst_and_a_clock_that_goes_back_adds_nothing() -> None:
    limits = Allowances(burst=2, per_second=1.0, code="too-many-requests")
    for at in (START, START + timedelta(days=1), START + timedelta(days=1)):
        limits.spend("here", at)
    with pytest.raises(TooMany):
        limits.require("here", START + timedelta(days=1))
    with pytest.raises(TooMany):
        limits.require("here", START)


def test_memory_is_bounded_by_those_seen_last() -> None:
    limits = Allowances(burst=1, per_second=0.001, code="too-many-requests")
    limits.spend("first", START)
    for number in range(MOST_KNOWN - 1):
        limits.spend(number, START)
    with pytest.raises(TooMany):
        limits.require("first", START)
    limits.spend("one more", START)
    limits.require("first", START)

"""The differences of a heatmap's region: real ones are found, and chance is not reported as one."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead_api.loads.differing import Region, Seen, SeenRequests, differences, region_of
from fairlead_testing.examples import examples

NOW = datetime(2026, 11, 29, 10, tzinfo=UTC)
REGION = Region(instances=frozenset({"hot"}), start=NOW, end=NOW + timedelta(minutes=5))
ONE = Seen(
    at=NOW,
    instance="hot",
    session="s",
    priority_class="default",
    reason="prefix-affinity",
    prompt_tokens=2_000,
    miss_tokens=1_000,
    weight=1.0,
)


def compared(inside: list[Seen], outside: list[Seen]) -> list[tuple[str, str]]:
    nodes = {"hot": "node-a", "cool": "node-b"}
    seen = [*inside, *(replace(one, instance="cool") for one in outside)]
    revisions = [(NOW - timedelta(days=1), 1), (NOW + timedelta(hours=1), 2)]
    return [(one.about, one.value) for one in differences(REGION, SeenRequests(seen=seen, nodes=nodes, revisions=revisions)).found]


def requests(count: int, **given: object) -> list[Seen]:
    return [replace(ONE, session=f"s{at}", **given) for at in range(count)]  # type: ignore[arg-type]  # fields vary by test


def test_what_is_planted_in_a_region_is_found_and_what_is_as_everywhere_is_not() -> None:
    heavy = [replace(one, session="heavy", prompt_tokens=70_000, miss_tokens=70_000, priority_class="batch") for one in requests(40)]
    found = compared([*heavy, *requests(20)], requests(200))
    assert {about for about, _ in found} == {"session", "class", "prompt", "hits", "node"}
    assert ("session", "heavy") in found
    assert ("class", "batch") in found
    assert ("prompt", "64,000 tokens and more") in found
    assert ("hits", "nothing cached") in found
    assert ("node", "node-a") in found


def test_too_few_requests_say_nothing() -> None:
    made = differences(REGION, SeenRequests(seen=requests(10), nodes={}, revisions=[]))
    assert (made.enough, made.inside, made.outside, made.found) == (False, 10, 0, [])


def test_a_request_weighs_what_it_stands_for() -> None:
    """All moved requests are kept, but only 5 % of the others. So forty of each in the sample are 1 of 21, not a
    half.
    """
    moved = [replace(one, reason="hot-migration") for one in requests(40)]
    sampled = [replace(one, weight=20.0) for one in requests(40)]
    seen = [*moved, *sampled, *(replace(one, instance="cool", weight=20.0) for one in requests(40))]
    found = differences(REGION, SeenRequests(seen=seen, nodes={}, revisions=[]))
    shares = {(one.about, one.value): one.inside_share for one in found.found}
    assert shares.get(("reason", "hot-migration"), 40 / 840) == pytest.approx(40 / 840)


@given(st.integers(0, 10_000), st.integers(30, 300))
@examples(60)
def test_chance_alone_is_hardly_ever_told_as_a_difference(seed: int, count: int) -> None:
    """Both sides have the same distribution of classes. None of 60 examples differs by three standard errors, which
    happens once in 370 times.
    """
    drawn = random.Random(seed)
    sides = [
        [replace(ONE, session=None, priority_class=drawn.choice(("a", "b", "c")), miss_tokens=None) for _ in range(count)] for _ in range(2)
    ]
    found = [about for about, _ in compared(*sides) if about == "class"]
    assert len(found) <= 1


def test_a_region_is_asked_for_by_ids_and_a_day_at_most() -> None:
    region, start, end = region_of("a, b", "now-5m", "now", ("now-1h", "now"), NOW)
    assert region == Region(instances=frozenset({"a", "b"}), start=NOW - timedelta(minutes=5), end=NOW)
    assert (start, end) == (NOW - timedelta(hours=1), NOW)
    with pytest.raises(InvalidInput, match="instances"):
        region_of(" , ", "now-5m", "now", ("now-1h", "now"), NOW)
    with pytest.raises(InvalidInput, match="rest_from"):
        region_of("a", "now-5m", "now", ("now-3d", "now"), NOW)

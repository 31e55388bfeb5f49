"""Every unit of the instances' cost is in exactly one line: a group of requests, idle or unattributed."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.costs.allocation import Allocation, Life, Use, Work, allocate, merged, unused
from fairlead.costs.money import HOUR_MICROSECONDS, MICRO, UNITS, apportioned, micros_of, read_back, rounded, shown, written
from fairlead.costs.prices import Price
from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead_testing.examples import examples

H = HOUR_MICROSECONDS
HOURS = 6


def test_a_pool_without_requests_is_all_idle() -> None:
    found = allocate([_life("a", 0, 2 * H)], [_price(0, "2.50")], {}, {}, 0, 24 * H)
    (parts,) = found.roles.values()
    assert (parts.idle, parts.used, parts.unattributed) == (5 * MICRO * UNITS, 0, 0)
    assert not found.lines


def test_busy_time_is_divided_by_the_tokens_that_were_computed() -> None:
    uses = {0: [Use(group="one", prefill_tokens=300, output_tokens=10), Use(group="two", prefill_tokens=100, output_tokens=30)]}
    work = {(Role.BOTH, 0): Work(busy=H // 2, prefilling=H // 4)}
    found = allocate([_life("a", 0, H)], [_price(0, "8")], work, uses, 0, H)
    one, two = found.lines["EUR", "one"], found.lines["EUR", "two"]
    assert (rounded(one.prefill), rounded(one.decode)) == (1_500_000, 500_000)
    assert (rounded(two.prefill), rounded(two.decode)) == (500_000, 1_500_000)
    assert rounded(found.roles["EUR", Role.BOTH].idle) == 4 * MICRO


def test_a_prefill_instance_costs_by_prompts_and_a_decode_instance_by_answers() -> None:
    lives = [Life(pod="p", role=Role.PREFILL, began=0), Life(pod="d", role=Role.DECODE, began=0)]
    prices = [Price(role=Role.PREFILL, since=0, micros_per_hour=3 * MICRO, currency="EUR"),
              Price(role=Role.DECODE, since=0, micros_per_hour=MICRO, currency="EUR")]  # fmt: skip
    work = {(Role.PREFILL, 0): Work(busy=H), (Role.DECODE, 0): Work(busy=H, prefilling=H)}
    found = allocate(lives, prices, work, {0: [Use(group="one", prefill_tokens=5, output_tokens=5)]}, 0, H)
    assert (rounded(found.lines["EUR", "one"].prefill), rounded(found.lines["EUR", "one"].decode)) == (3 * MICRO, MICRO)


def test_a_price_applies_from_its_time_on() -> None:
    found = allocate([_life("a", 0, 2 * H)], [_price(0, "1"), _price(H + H // 2, "3")], {}, {}, 0, 2 * H)
    assert rounded(found.roles["EUR", Role.BOTH].units) == 3 * MICRO
    assert allocate([_life("a", 0, 2 * H)], [_price(H, "1")], {}, {}, 0, 2 * H).unpriced == H


def test_busy_time_without_tokens_is_unattributed() -> None:
    found = allocate([_life("a", 0, H)], [_price(0, "1")], {(Role.BOTH, 0): Work(busy=H, prefilling=H)}, {0: [Use(group="x")]}, 0, H)
    assert rounded(found.roles["EUR", Role.BOTH].unattributed) == MICRO


def test_cached_tokens_are_worth_what_the_computed_ones_cost() -> None:
    work = {(Role.BOTH, 0): Work(busy=H, prefilling=H)}
    found = allocate([_life("a", 0, H)], [_price(0, "1")], work, {0: [Use(group="x", prefill_tokens=10, hit_tokens=30)]}, 0, H)
    assert rounded(found.cached["EUR"]) == 3 * MICRO


@pytest.mark.parametrize("text", ["", "-1", "1,5", "1.2345678", "12345678", "1e3", ".5", "１", "1."])
def test_an_amount_is_a_plain_decimal(text: str) -> None:
    with pytest.raises(InvalidInput, match="six decimals"):
        micros_of("x", text)


def test_amounts_are_written_with_six_decimals() -> None:
    assert written(micros_of("x", "2.5")) == "2.500000"
    assert written(123_456_789_012_345) == "123456789.012345"


moments = st.integers(-H, HOURS * H + H)
lives = st.lists(
    st.builds(
        Life,
        pod=st.sampled_from(["a", "b", "c"]),
        role=st.sampled_from([Role.PREFILL, Role.DECODE, Role.BOTH]),
        began=moments,
        ended=st.none() | moments,  # an end before the beginning is a clock that was set back
    ),
    max_size=8,
)
prices = st.lists(
    st.builds(
        Price,
        role=st.sampled_from(Role),
        since=moments,
        micros_per_hour=st.none() | st.integers(0, 10**10),
        currency=st.sampled_from(["EUR", "USD"]),
    ),
    max_size=6,
    unique_by=lambda one: (one.role, one.since),
)
work = st.dictionaries(
    st.tuples(st.sampled_from(Role), st.integers(0, HOURS)), st.builds(Work, busy=st.integers(0, 9 * H), prefilling=st.integers(0, 9 * H))
)
tokens = st.integers(0, 10**9)
uses = st.dictionaries(
    st.integers(0, HOURS),
    st.lists(
        st.builds(Use, group=st.sampled_from("xyz"), requests=tokens, prefill_tokens=tokens, hit_tokens=tokens, output_tokens=tokens),
        max_size=5,
    ),
)
Histories = st.tuples(lives, prices, work, uses)


@given(Histories, st.integers(0, HOURS))
@examples(300)
def test_the_parts_add_up_to_hours_times_price(history: tuple[Any, Any, Any, Any], until: int) -> None:
    found = allocate(*history, 0, until * H)
    for currency in ("EUR", "USD"):
        asked = _hours_times_price(history[0], history[1], currency, until * H)
        assert _of_roles(found, currency) == asked
        assert _of_hours(found, currency) == asked
        in_lines = sum(line.units for (unit, _), line in found.lines.items() if unit == currency)
        assert in_lines == sum(parts.used for (unit, _), parts in found.roles.items() if unit == currency)
    assert all(parts.idle >= 0 and parts.used >= 0 and parts.unattributed >= 0 for parts in found.roles.values())
    assert all(line.prefill >= 0 and line.decode >= 0 for line in found.lines.values())


@given(Histories, st.integers(0, HOURS), st.integers(0, HOURS))
@examples(200)
def test_ranges_side_by_side_cost_what_the_whole_costs(history: tuple[Any, Any, Any, Any], middle: int, until: int) -> None:
    middle, until = sorted((middle, until))
    whole = allocate(*history, 0, until * H)
    parts = allocate(*history, 0, middle * H), allocate(*history, middle * H, until * H)
    for key, line in whole.lines.items():
        assert line.units == sum(part.lines[key].units for part in parts if key in part.lines)
    for currency in ("EUR", "USD"):
        assert _of_roles(whole, currency) == sum(_of_roles(part, currency) for part in parts)


@given(lives)
@examples(200)
def test_a_moment_of_a_pod_counts_once(found: list[Life]) -> None:
    edges = sorted({edge for one in found for edge in (one.began, one.ended) if edge is not None})
    apart = merged(found)
    for at in edges:
        for pod in "abc":
            before = {one.role for one in found if one.pod == pod and one.began <= at and (one.ended is None or at < one.ended)}
            now = [one.role for one in apart if one.pod == pod and one.began <= at and (one.ended is None or at < one.ended)]
            assert len(now) <= 1
            assert not before or not now or now[0] in before


@given(st.lists(st.integers(0, 10**20), max_size=20))
@examples(200)
def test_shown_parts_add_up_to_the_shown_sum(parts: list[int]) -> None:
    found = shown(parts)
    assert sum(found) == rounded(sum(parts))
    assert all(abs(Fraction(one) - Fraction(part, UNITS)) <= 1 for one, part in zip(found, parts, strict=True))


@given(st.integers(0, 10**20), st.lists(st.integers(0, 10**9), min_size=1).filter(any))
@examples(200)
def test_shares_add_up_to_the_amount(amount: int, weights: list[int]) -> None:
    shares = apportioned(amount, weights)
    assert sum(shares) == amount
    assert all(abs(Fraction(share) - Fraction(amount * weight, sum(weights))) <= 1 for share, weight in zip(shares, weights, strict=True))


def _life(pod: str, began: int, ended: int) -> Life:
    return Life(pod=pod, role=Role.BOTH, began=began, ended=ended)


def _price(since: int, amount: str) -> Price:
    return Price(role=Role.BOTH, since=since, micros_per_hour=micros_of("price", amount), currency="EUR")


def _of_roles(found: Allocation, currency: str) -> int:
    return sum(parts.units for (unit, _), parts in found.roles.items() if unit == currency)


def _of_hours(found: Allocation, currency: str) -> int:
    return sum(parts.units for (unit, _), parts in found.hours.items() if unit == currency)


def _hours_times_price(lived: list[Life], asked: list[Price], currency: str, end: int) -> int:
    """Return the sum over the periods between two times at which a life or a price changes."""
    ordered = sorted(lived, key=lambda one: (one.began, float("inf") if one.ended is None else one.ended))
    newest = sorted(asked, key=lambda one: one.since, reverse=True)
    edges = sorted({0, end, *(edge for one in lived for edge in (one.began, one.ended) if edge is not None), *(one.since for one in asked)})
    total = 0
    for begin, until in pairwise(edge for edge in edges if 0 <= edge <= end):
        for pod in "abc":
            roles = [one.role for one in ordered if one.pod == pod and one.began <= begin and (one.ended is None or begin < one.ended)]
            price = next((one for one in newest if one.role in roles[-1:] and one.since <= begin), None)
            if price is not None and price.micros_per_hour is not None and price.currency == currency:
                total += (until - begin) * price.micros_per_hour
    return total


@given(st.integers(0, 10**18))
@examples(50)
def test_an_amount_of_any_size_is_read_back_as_it_was_written(micros: int) -> None:
    assert read_back(written(micros)) == micros


_STEPS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), max_size=6).map(lambda steps: sorted(steps, key=lambda one: one[0]))


@given(windows=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=3), wanted=_STEPS, declared=_STEPS)
@examples(200)
def test_schedules_save_what_was_declared_and_not_wanted_while_a_window_was_open(
    windows: list[tuple[int, int]], wanted: list[tuple[int, int]], declared: list[tuple[int, int]]
) -> None:
    def number(steps: list[tuple[int, int]], at: int) -> int:
        return next((number for since, number in reversed(steps) if since <= at), 0)

    found = unused(windows, wanted, declared, [_price(0, "1")], 0, 12)
    is_open = [any(opens <= at < closes for opens, closes in windows) and bool(wanted) and wanted[0][0] <= at for at in range(12)]
    saved = sum(max(0, number(declared, at) - number(wanted, at)) for at in range(12) if is_open[at])
    assert sum(units for _, units in found) == saved * MICRO


class _Counted(Sequence[tuple[int, int]]):
    """A list of steps that counts how often a step is read."""

    def __init__(self, steps: list[tuple[int, int]]) -> None:
        self._steps = steps
        self.looks = 0

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, place: Any) -> Any:
        self.looks += 1
        return self._steps[place]


def test_what_schedules_saved_takes_hardly_more_steps_than_the_wanted_number_changed() -> None:
    wanted = _Counted([(at, at % 3) for at in range(2_000)])
    unused([(0, 2_000)], wanted, [(0, 2)], [_price(0, "1")], 0, 2_000)
    assert wanted.looks < 20 * len(wanted)

"""Prices: measured costs add up to the cost tool's own sum, and a declared price is never replaced."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairlead.costs.allocation import Life, allocate
from fairlead.costs.money import HOUR_MICROSECONDS, MICRO, UNITS
from fairlead.costs.prices import LEAST_MICROSECONDS, Price, Stay, in_force, measured_prices
from fairlead.instances import Role
from fairlead_testing.examples import examples

H = HOUR_MICROSECONDS


def _stay(instance: str, microseconds: int = H, role: Role = Role.BOTH) -> Stay:
    return Stay(instance=instance, role=role, microseconds=microseconds)


def _measured(hour: int, micros: int) -> Price:
    return Price(role=Role.BOTH, since=hour * H, micros_per_hour=micros, currency="USD", measured=True)


def test_two_instances_of_a_role_have_the_mean_of_their_costs_as_price() -> None:
    assert measured_prices({"a": 3 * MICRO, "b": MICRO}, [_stay("a"), _stay("b")]) == {Role.BOTH: 2 * MICRO}


def test_half_an_hour_that_cost_one_is_two_an_hour() -> None:
    assert measured_prices({"a": MICRO}, [_stay("a", H // 2)]) == {Role.BOTH: 2 * MICRO}


def test_an_instance_that_changed_its_role_costs_each_role_by_time() -> None:
    found = measured_prices({"a": 4 * MICRO}, [_stay("a", H // 4, Role.PREFILL), _stay("a", 3 * H // 4, Role.DECODE)])
    assert found == {Role.PREFILL: 4 * MICRO, Role.DECODE: 4 * MICRO}


def test_a_role_of_which_no_cost_is_known_has_no_price() -> None:
    assert measured_prices({"other": MICRO}, [_stay("a")]) == {}


def test_a_moment_of_a_life_is_no_measure_of_an_hour() -> None:
    assert measured_prices({"a": MICRO}, [_stay("a", LEAST_MICROSECONDS - 1)]) == {}


def test_a_declared_price_counts_before_a_measured_one() -> None:
    declared = [Price(role=Role.BOTH, since=H // 2, micros_per_hour=7, currency="EUR")]
    found = in_force(declared, [_measured(0, 5), _measured(1, 6)])
    assert _at(found, 0) == (5, "USD", True)
    assert _at(found, H // 2) == (7, "EUR", False)
    assert _at(found, 5 * H) == (7, "EUR", False)


def test_a_measured_price_is_of_its_hour_and_no_other() -> None:
    found = in_force([Price(role=Role.BOTH, since=H // 2, micros_per_hour=None)], [_measured(1, 5)])
    assert [_at(found, at)[0] for at in (0, H - 1, H, 2 * H - 1, 2 * H)] == [None, None, 5, 5, None]


def _at(prices: Sequence[Price], at: int) -> tuple[Any, ...]:
    before = [price for price in prices if price.since <= at]
    return (before[-1].micros_per_hour, before[-1].currency, before[-1].measured) if before else (None, "", False)


STAYS = st.lists(
    st.builds(Stay, instance=st.sampled_from("abc"), role=st.sampled_from(Role), microseconds=st.integers(LEAST_MICROSECONDS, H)),
    max_size=8,
)


@given(STAYS, st.dictionaries(st.sampled_from("abcd"), st.integers(0, 10**9)))
@examples(100)
def test_an_hour_at_measured_prices_costs_what_the_tool_said(stays: list[Stay], costs: dict[str, int]) -> None:
    """It may differ by half a micro-unit for each instance hour, and by the cost of an instance that did not exist."""
    prices = measured_prices(costs, stays)
    paid = sum(prices.get(stay.role, 0) * stay.microseconds for stay in stays) / H
    assert abs(paid - sum(costs.get(name, 0) for name in {stay.instance for stay in stays})) <= 2 * len(stays)


@given(st.lists(st.tuples(st.integers(0, 5 * H), st.none() | st.just(7))), st.dictionaries(st.integers(0, 5), st.integers(1, 5)))
@examples(100)
def test_each_moment_has_the_declared_price_or_else_the_one_of_its_hour(
    declared: list[tuple[int, int | None]], hours: dict[int, int]
) -> None:
    specs = [Price(role=Role.BOTH, since=since, micros_per_hour=micros, currency="EUR") for since, micros in dict(declared).items()]
    found = in_force(specs, [_measured(hour, micros) for hour, micros in hours.items()])
    for at in {edge + more for edge in (*(one.since for one in specs), *(hour * H for hour in range(7))) for more in (0, H // 3)}:
        own = _at(sorted(specs, key=lambda one: one.since), at)
        assert _at(found, at)[0] == (own[0] if own[0] is not None else hours.get(at // H))


def test_lives_are_charged_at_measured_prices_and_the_hours_are_counted_apart() -> None:
    found = allocate([Life(pod="a", role=Role.BOTH, began=0)], in_force([], [_measured(0, 5 * MICRO)]), {}, {}, 0, 3 * H)
    (parts,) = found.roles.values()
    assert (parts.units, parts.measured, found.unpriced) == (5 * MICRO * UNITS, H, 2 * H)

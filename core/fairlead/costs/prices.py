"""Prices of instance hours. A declared price is in force until the next declared price. In hours without a declared
price, the measured price is used.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fairlead.costs.money import HOUR_MICROSECONDS
from fairlead.instances import Role

LEAST_MICROSECONDS = 1_000_000
"""Least time, in microseconds, for which a role's instances must have existed to get a measured price. The cost of a
shorter time does not show the cost of a whole hour.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a role's instances from `since` on (microseconds since 1970), until the role's next price.
    `micros_per_hour` None = no price. `measured` says that a cost tool gave the price, and not the pool's spec.
    """

    role: Role
    since: int
    micros_per_hour: int | None
    currency: str = ""
    measured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """The time, in microseconds, for which an instance had a role within an hour."""

    instance: str
    role: Role
    microseconds: int


def measured_prices(costs: Mapping[str, int], stays: Iterable[Stay]) -> dict[Role, int]:
    """Return the price of each role in micro-units per instance hour, computed from `costs`, the cost of each instance
    in one hour, in micro-units.

    The price is the total cost of the role's instances divided by their total time. The cost of an instance that
    changed its role is divided in proportion to the time in each role. A role without a known cost has no price.
    """
    of_instances: dict[str, dict[Role, int]] = defaultdict(lambda: defaultdict(int))
    for stay in stays:
        of_instances[stay.instance][stay.role] += stay.microseconds
    amounts, times = defaultdict[Role, int](int), defaultdict[Role, int](int)
    for instance, roles in of_instances.items():
        total = sum(roles.values())
        for role, microseconds in roles.items():
            times[role] += microseconds
            if instance in costs and total:
                amounts[role] += costs[instance] * microseconds * HOUR_MICROSECONDS // total
    return {role: (2 * amount + times[role]) // (2 * times[role]) for role, amount in amounts.items() if times[role] >= LEAST_MICROSECONDS}


def in_force(declared: Iterable[Price], measured: Iterable[Price]) -> list[Price]:
    """Return one list of prices, ordered by role and time. In each hour the declared price is in force or, if the spec
    declares none, the measured price.

    A measured price holds for the hour that begins at its `since`.
    """
    of_declared, of_measured = _by_role(declared), _by_role(measured)
    return [price for role in Role for price in _of_role(role, of_declared[role], of_measured[role])]


def _by_role(prices: Iterable[Price]) -> Mapping[Role, list[Price]]:
    found: dict[Role, list[Price]] = defaultdict(list)
    for price in sorted(prices, key=lambda one: one.since):
        found[price.role].append(price)
    return found


def _of_role(role: Role, declared: Sequence[Price], measured: Sequence[Price]) -> list[Price]:
    if not measured:
        return list(declared)
    hours = {price.since: price for price in measured}
    edges = {edge for since in hours for edge in (since, since + HOUR_MICROSECONDS)} | {price.since for price in declared}
    found, own, waiting = list[Price](), Price(role=role, since=0, micros_per_hour=None), list(reversed(declared))
    for edge in sorted(edges):
        while waiting and waiting[-1].since <= edge:
            own = waiting.pop()
        price = own if own.micros_per_hour is not None else hours.get(edge - edge % HOUR_MICROSECONDS, own)
        found.append(_from(price, edge))
    return found


def _from(price: Price, since: int) -> Price:
    return Price(role=price.role, since=since, micros_per_hour=price.micros_per_hour, currency=price.currency, measured=price.measured)

"""Divides the cost of a pool's instances among its requests.

The rule: an instance costs its role's price for its whole lifetime, busy or idle. In each hour, the part of a role's
time in which its instances had no request is idle. The rest was prefill or decode, as measured; prefill is divided by
the computed prompt tokens, decode by the generated tokens. Busy time without any such token is unattributed: its
requests were cut off, or bypassed the scheduler.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from fairlead.costs.money import HOUR_MICROSECONDS, apportioned
from fairlead.costs.prices import Price
from fairlead.instances import Role

FOREVER = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """The time span in which a pod was an instance of a role, in microseconds since 1970. `ended` is exclusive; None if
    the instance still lives.
    """

    pod: str
    role: Role
    began: int
    ended: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The busy time of a role's instances in an hour, and the part of this time that was spent on prefill. Both are
    sums over the instances, in microseconds.
    """

    busy: int
    prefilling: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The usage of a group's requests (such as all requests with one API key) within an hour. `hit_tokens` are prompt
    tokens found in the cache.
    """

    group: str
    requests: int = 0
    prefill_tokens: int = 0
    hit_tokens: int = 0
    output_tokens: int = 0


@dataclass(slots=True, kw_only=True)
class Line:
    """The cost of a group's requests, in units, and the usage of these requests."""

    prefill: int = 0
    decode: int = 0
    requests: int = 0
    prefill_tokens: int = 0
    hit_tokens: int = 0
    output_tokens: int = 0

    @property
    def units(self) -> int:
        """The group's whole cost."""
        return self.prefill + self.decode


@dataclass(slots=True, kw_only=True)
class Parts:
    """A cost in units. It is divided into three parts: the time that requests used, the idle time, and the busy time
    without tokens.
    """

    used: int = 0
    prefill: int = 0
    """The part of `used` that belongs to prefill; the remainder belongs to decode."""
    idle: int = 0
    unattributed: int = 0
    microseconds: int = 0
    """Time of instances that had a price, in microseconds."""
    measured: int = 0
    """The part of `microseconds` for which the price was a measured price."""

    @property
    def units(self) -> int:
        """The whole cost."""
        return self.used + self.idle + self.unattributed

    def add(self, other: "Parts") -> None:
        """Add another cost of the same currency."""
        self.used += other.used
        self.prefill += other.prefill
        self.idle += other.idle
        self.unattributed += other.unattributed
        self.microseconds += other.microseconds
        self.measured += other.measured


@dataclass(slots=True, kw_only=True)
class Allocation:
    """The cost of a pool. `lines` is by currency and group of requests, `roles` by currency and role, `hours` by
    currency and hour (hours since 1970). `cached` estimates, by currency, the additional cost if the cached tokens had
    been computed.
    """

    lines: dict[tuple[str, str], Line] = field(default_factory=lambda: defaultdict(Line))
    roles: dict[tuple[str, Role], Parts] = field(default_factory=lambda: defaultdict(Parts))
    hours: dict[tuple[str, int], Parts] = field(default_factory=lambda: defaultdict(Parts))
    cached: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    unpriced: int = 0
    """Microseconds of instances that had no price."""


def allocate(
    lives: Iterable[Life],
    prices: Sequence[Price],
    work: Mapping[tuple[Role, int], Work],
    uses: Mapping[int, Sequence[Use]],
    start: int,
    end: int,
) -> Allocation:
    """Return the pool's cost from `start` until before `end`, both in microseconds since 1970. `work` is by role and
    hour, `uses` by hour.
    """
    found = Allocation()
    spans = _spans(lives, prices, start, end)
    alive: dict[tuple[Role, int], int] = defaultdict(int)
    costs: dict[tuple[Role, int, str], Parts] = defaultdict(Parts)
    for role, hour, microseconds, price in spans:
        alive[role, hour] += microseconds
        if price is None or price.micros_per_hour is None:
            found.unpriced += microseconds
            continue
        cost = costs[role, hour, price.currency]
        cost.idle += microseconds * price.micros_per_hour
        cost.microseconds += microseconds
        cost.measured += microseconds if price.measured else 0
    for hour, currency in sorted({(hour, currency) for _, hour, currency in costs}):
        _count(found, currency, uses.get(hour, ()))
    for (role, hour, currency), cost in sorted(costs.items()):
        _divide(found, role, hour, currency, cost, alive[role, hour], work.get((role, hour)), uses.get(hour, ()))
    return found


def _divide(
    found: Allocation, role: Role, hour: int, currency: str, cost: Parts, alive: int, work: Work | None, uses: Sequence[Use]
) -> None:
    busy = 0 if work is None else min(work.busy, alive)
    used = cost.idle * busy // alive
    prefill = used * _prefill_time(role, busy, work) // busy if busy else 0
    cost.idle -= used
    for amount, tokens in ((prefill, "prefill_tokens"), (used - prefill, "output_tokens")):
        weights = [getattr(use, tokens) for use in uses]
        if not sum(weights):
            cost.unattributed += amount
            continue
        cost.used += amount
        cost.prefill += amount if tokens == "prefill_tokens" else 0
        for use, share in zip(uses, apportioned(amount, weights), strict=True):
            line = found.lines[currency, use.group]
            if tokens == "prefill_tokens":
                line.prefill += share
            else:
                line.decode += share
    found.cached[currency] += _cached(prefill, uses)
    found.roles[currency, role].add(cost)
    found.hours[currency, hour].add(cost)


def _prefill_time(role: Role, busy: int, work: Work | None) -> int:
    if role is not Role.BOTH:
        return busy if role is Role.PREFILL else 0
    return 0 if work is None else min(work.prefilling, busy)


def _cached(prefill: int, uses: Sequence[Use]) -> int:
    computed = sum(use.prefill_tokens for use in uses)
    return prefill * sum(use.hit_tokens for use in uses) // computed if computed else 0


def _count(found: Allocation, currency: str, uses: Sequence[Use]) -> None:
    """Add the groups' use within one hour to the groups' lines in this currency."""
    for use in uses:
        line = found.lines[currency, use.group]
        line.requests += use.requests
        line.prefill_tokens += use.prefill_tokens
        line.hit_tokens += use.hit_tokens
        line.output_tokens += use.output_tokens


def _spans(lives: Iterable[Life], prices: Sequence[Price], start: int, end: int) -> Iterator[tuple[Role, int, int, Price | None]]:
    """Yield role, hour, microseconds and price for each piece of a lifetime within [start, end). No piece spans two
    hours or a change of price.
    """
    of_roles = {role: sorted((one for one in prices if one.role is role), key=lambda one: one.since) for role in Role}
    for life in merged(lives):
        began, ended = max(life.began, start), min(end if life.ended is None else life.ended, end)
        while began < ended:
            hour = began // HOUR_MICROSECONDS
            price, until = _price_at(of_roles[life.role], began)
            stop = min(ended, until, (hour + 1) * HOUR_MICROSECONDS)
            yield life.role, hour, stop - began, price
            began = stop


def _price_at(prices: Sequence[Price], at: int) -> tuple[Price | None, int]:
    """Return the price in force at this time, and the time until which it is in force."""
    if not prices or at < prices[0].since:
        return None, prices[0].since if prices else FOREVER
    for price, later in pairwise(prices):
        if at < later.since:
            return price, later.since
    return prices[-1], FOREVER


def merged(lives: Iterable[Life]) -> list[Life]:
    """Return the lifetimes without overlaps: each moment of a pod counts once, for the role that began last."""
    of_pods: dict[str, list[Life]] = defaultdict(list)
    for life in lives:
        of_pods[life.pod].append(life)
    return [life for pod in sorted(of_pods) for life in _apart(of_pods[pod])]


def _apart(lives: Sequence[Life]) -> Iterator[Life]:
    """Yield the lifetimes of one pod, cut at every begin and end. Each moment belongs to the lifetime that began
    last.
    """
    ordered = sorted((one for one in lives if one.began < _end(one)), key=lambda one: (one.began, _end(one)))
    if len(ordered) < 2:
        yield from ordered
        return
    edges = sorted({edge for one in ordered for edge in (one.began, _end(one))})
    for began, ended in pairwise(edges):
        covering = [one for one in ordered if one.began <= began < _end(one)]
        if covering:
            yield replace(covering[-1], began=began, ended=None if ended == FOREVER else ended)


def _end(life: Life) -> int:
    return FOREVER if life.ended is None else life.ended


Steps = Sequence[tuple[int, int]]
"""A number over time: pairs of a time in microseconds and the number from then on, in order of time."""


def unused(windows: Steps, wanted: Steps, declared: Steps, prices: Sequence[Price], start: int, end: int) -> list[tuple[str, int]]:
    """Return the additional cost that a role's instances would have had with the declared number instead of the wanted
    number. Only times within [start, end) in which a schedule's window was open are counted.

    The result is pairs of a currency and an amount in units. `windows` are pairs of a begin and an end.
    """
    ordered = sorted(prices, key=lambda one: one.since)
    usable = [(opens, closes) for opens, closes in windows if opens < closes]
    opened, shut = sorted(opens for opens, _ in usable), sorted(closes for _, closes in usable)
    edges = {start, end, *opened, *shut, *(at for steps in (wanted, declared) for at, _ in steps)}
    edges |= {one.since for one in ordered}
    found = []
    for began, ended in pairwise(sorted(edge for edge in edges if start <= edge <= end)):
        fewer = _at(declared, began) - _at(wanted, began)
        price, _ = _price_at(ordered, began)
        is_open = bisect_right(opened, began) > bisect_right(shut, began)
        if is_open and fewer > 0 and wanted and wanted[0][0] <= began and price is not None and price.micros_per_hour:
            found.append((price.currency, fewer * (ended - began) * price.micros_per_hour))
    return found


def _at(steps: Steps, at: int) -> int:
    """Return the number that was in force at a time; 0 before the first step."""
    place = bisect_right(steps, at, key=lambda step: step[0])
    return steps[place - 1][1] if place else 0

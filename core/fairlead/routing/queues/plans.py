"""Plans of the `deadline` discipline: which waiting requests can all be in time on one instance, and which goes first.

Moore and Hodgson's rule takes requests in order of deadline and leaves out the longest whenever a request would be
late, which leaves out as few as possible. Sidney's extension keeps certain requests in any case (Operations Research
23, 1975).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from fairlead.routing.queues.accounting import TrackedRequest


@dataclass(slots=True)
class Planned:
    """A waiting request: the deadline of its prefill, its duration, and its place in order of arrival."""

    due: float
    seconds: float
    place: int
    tracked: TrackedRequest


def left_out(requests: Sequence[Planned], at: float, kept: Collection[int] = ()) -> set[int]:
    """Return the places of requests that must be late so that all others are in time if the first of them begins at
    `at`. Requests are in order of deadline. The requests at the places `kept` are never left out; each of them must be
    able to be in time alone.
    """
    first_out: list[tuple[bool, float, int]] = []
    out: set[int] = set()
    for one in requests:
        at += one.seconds
        if one.place not in kept:
            heappush(first_out, (one.tracked.continues and not kept, -one.seconds, one.place))
        while at > one.due and first_out:
            _, seconds, place = heappop(first_out)
            at += seconds
            out.add(place)
            if not kept and -seconds >= one.seconds:  # one was enough: it took as long as this one, before which all were in time
                break
    return out


def within(requests: Sequence[Planned], budgets: Mapping[str, float]) -> list[Planned]:
    """Return, for each tenant, the shortest requests that fit its budget of work, in order of deadline."""
    left = dict(budgets)
    chosen: set[int] = set()
    for one in sorted(requests, key=lambda one: (not one.tracked.continues, one.seconds, one.place)):
        tenant, work = one.tracked.request.tenant, one.tracked.work_microseconds
        if work <= left[tenant]:
            left[tenant] -= work
            chosen.add(one.place)
    return [one for one in requests if one.place in chosen]


def slack(planned: Sequence[Planned], at: float) -> float:
    """Return the seconds that all planned requests can wait and still be in time."""
    least = inf
    for one in planned:
        at += one.seconds
        least = min(least, one.due - at)
    return least


def shortest_harmless(planned: Sequence[Planned], at: float) -> Planned:
    """Return the shortest request that leaves all others in time if it goes first; at least the request with the first
    deadline does.
    """
    best = planned[0]
    room = inf
    for one in planned:
        if one.seconds <= room and one.seconds < best.seconds:
            best = one
        at += one.seconds
        room = min(room, one.due - at)
    return best


def water_level(tenants: Sequence[tuple[int, int]], work: float) -> float:
    """Return the level of served work that results if this much work is given to the least served tenants first;
    `tenants` are in order of served work.
    """
    steps = sorted([(served, 1) for served, _ in tenants] + [(served + has, -1) for served, has in tenants])
    at, rate = float(steps[0][0]), 0
    for position, change in steps:
        needed = (position - at) * rate
        if rate and needed >= work:
            return at + work / rate
        work -= needed
        at, rate = float(position), rate + change
    return at

"""Plans of the `deadline` discipline: which waiting requests can all be in time on one instance, and which of them is
sent first.

Moore and Hodgson's rule takes requests in order of deadline and leaves out the longest request whenever one would be
late. So as few requests as possible are left out. Sidney's extension keeps certain requests in any case (Operations
Research 23, 1975).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from fairlead.routing.queues.accounting import TrackedRequest


@dataclass(slots=True)
class Planned:
    """A waiting request: the deadline and the duration of its prefill, and its index in order of arrival."""

    due: float
    seconds: float
    place: int
    tracked: TrackedRequest


def left_out(requests: Sequence[Planned], at: float, kept: Collection[int] = ()) -> set[int]:
    """Return the indexes of the requests that must be left out so that all others are in time if the first prefill
    begins at `at`. `requests` are in order of deadline. The requests with the indexes `kept` are never left out; all of
    them together must be able to be in time.
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
    """Return the requests that fit into their tenant's budget of work, in order of deadline. A tenant's turns of tasks
    in progress are taken first, then its shortest requests.
    """
    left = dict(budgets)
    chosen: set[int] = set()
    for one in sorted(requests, key=lambda one: (not one.tracked.continues, one.seconds, one.place)):
        tenant, work = one.tracked.request.tenant, one.tracked.work_microseconds
        if work <= left[tenant]:
            left[tenant] -= work
            chosen.add(one.place)
    return [one for one in requests if one.place in chosen]


def slack(planned: Sequence[Planned], at: float) -> float:
    """Return the number of seconds for which all planned requests could wait so that all of them are still in time."""
    least = inf
    for one in planned:
        at += one.seconds
        least = min(least, one.due - at)
    return least


def shortest_harmless(planned: Sequence[Planned], at: float) -> Planned:
    """Return the shortest request that can be sent first without making a planned request late. If there is no such
    request, return the request with the earliest deadline.
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
    """Return the served work that the least served tenants have after `work` is distributed to them so that their
    served work becomes equal. `tenants` are pairs of served work and waiting work, in order of served work; no tenant
    gets more than its waiting work.
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

"""The `deadline` discipline of a queue: it sends as many requests as possible in time to meet the TTFT target, and
sends the other requests without delaying the requests that can be in time.

             add
              │
              ▼             would miss the target
    ┌───────────────────┐   even if sent at once    ┌────────┐
    │ able: planned     │ ────────────────────────► │  late  │
    │   or left out,    │        find_late          └────────┘
    │   in each plan    │                                │  the shortest: while late requests may be sent and no
    └───────────────────┘                                │  planned request waits, or in the time reserved for them
              │  the shortest planned request            │
              ▼  that makes no other late                ▼
    ────────────────────────────── sent ──────────────────────────────

The plan is the largest set of able requests that can all meet the TTFT target (Moore and Hodgson: take requests in
order of deadline, and leave out the longest prefill whenever a request would be late). For example, with a target of 5
s and prefills of 1, 2 and 4 s that arrived together, the requests of 1 and 2 s are planned and the request of 4 s is
left out. The left-out request becomes late as soon as 4 s no longer fit before its deadline. `late_requests` decides
when late requests may be sent.

Between two prefills the engine rests from prefilling for as long as the running decodes need to keep the TPOT target
(`contracts.rests`). A short prefill may start before its rest; the rest must then be taken later. So short prefills are
sent together, and their rests are taken together. While the pool has time for all prefills and decodes, no request
becomes late because of a rest: a rest leaves a quarter of the target for the requests after it. For example, with a
target of 2 s a prefill of 0.8 s starts at most 0.6 s after its request arrived. Rests are kept in an overloaded pool,
and also where the share of answers that miss TPOT is larger than the share of late first tokens (`late_requests`). In
such pools, prefills in place of rests make more answers miss the TPOT target than they bring first tokens in time.

If tenants share the pool fairly (`turns`), the tenants with the least served work are planned first. A tenant's share
is the part of the time until the last deadline that makes the served work of all tenants equal. Requests planned within
this share stay planned when the remaining requests are planned around them. Their rests give way to deadlines even in a
full pool, because other tenants filled it. So a tenant with many requests gets all the time that other tenants leave,
but no more. So that no request waits forever, a late request is sent at any load once its tenant is far enough behind.
Let x be the served work of its tenant, plus the work of the request, plus the credit. The request is sent once the
served work of every other tenant with requests that can be in time is at least x.

Turns that continue a task in progress (`TrackedRequest.continues`) are left out of the plan only after all first turns
of tasks have been left out. Once late, such turns are sent before first turns. Once they have waited for about the
target, they are sent before everything else, even while decodes are owed a rest: if such a turn were refused by its
time limit, its whole task would be lost. First turns get back at least the share `new_task_share` of the time that such
turns take. While requests of several tenants wait, the tenants' turns decide instead of these rules.

The danger is in the estimates: if they are too short, time is spent on requests that are late after all. Estimates are
scaled by the pace observed on the instance.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from operator import attrgetter, itemgetter

from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.requests import Overtaken, RoutingRequest
from fairlead.routing.contracts.rests import rest_seconds
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.queues.late_by_length import LateByLength, shortness
from fairlead.routing.queues.plans import Planned, left_out, shortest_harmless, slack, within
from fairlead.routing.queues.queueing import NOBODY
from fairlead.routing.queues.turns import Turns

STEP_SECONDS = 0.05
"""Seconds added to every predicted prefill, because a prefill begins only when the engine's present decode step ends.
"""
SHORT_SECONDS = 0.15
"""Maximum seconds of a short prefill, the step included. A short prefill may start before the rest ahead of it is over,
and the missing part of the rest is taken later. The missing part may be as long as the rest that a prefill of this
length requires. If every short prefill waited for a full rest, there would be gaps between short prefills.
"""
MARGIN = 0.02
"""Share of the TTFT target that is kept as a margin."""
PATIENCE = 0.9
"""A late turn of a task in progress is sent before everything else once it has waited for this share of the TTFT
target.
"""


RESERVE = 0.25
"""Share of the TTFT target that rests must leave free, because the next request may arrive before the present prefill
is done.
"""

NEXT_LOOK_SECONDS = 0.05
"""Maximum seconds until a queue is examined again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineRules:
    """The facts and rules of the pool that a queue needs.

    While `late_may_go` is true, late requests get all free time. They always get at least the share `late_share` (0-1)
    of all time. `found_late` is called for each request that becomes late. `decode_share` is the share of an instance's
    time that its decodes need. While `has_time` is true, the pool has time for all prefills and decodes, and rests give
    way to deadlines. `speed` is the prefill speed in tokens per second.
    """

    late_share: float
    late_may_go: Callable[[], bool]
    found_late: Callable[[TrackedRequest], None]
    has_time: Callable[[], bool]
    decode_share: Callable[[InstanceLoad], float]
    speed: Callable[[], float]
    new_task_share: float = 0.1
    """Late turns of tasks in progress take time from first turns of tasks. First turns get back at least this share
    (0-1) of that time.
    """


class DeadlineQueue:
    """The queued requests of one instance, whose counters are `load`. Without `turns`, all requests count as requests
    of one tenant.

    Taking a request is O(n log n), where n is the number of requests that are not late.
    """

    def __init__(self, load: InstanceLoad, target_seconds: float, rules: DeadlineRules, turns: Turns | None = None) -> None:
        self._load = load
        self._target = target_seconds * (1 - MARGIN)
        self._rules = rules
        self._turns = turns
        self._able: dict[str, TrackedRequest] = {}
        """The requests that can still meet the TTFT target, by id."""
        self._late = LateByLength()
        self._first_late: TrackedRequest | None = None
        """The late request to send next; cached until the queue changes."""
        self._earned = 0.0
        """Seconds that late requests may take from requests that can be in time."""
        self._owed_beginnings = 0.0
        """Seconds that first turns of tasks may take from late turns of tasks in progress."""
        self._latest_starts: list[tuple[float, int, TrackedRequest]] = []
        """Heap of (latest time at which the request can start in time, arrival number, request). The time is computed
        from the pace at the time when the request was added. The heap has the requests in `_able`, and some requests
        that have left the queue.
        """
        self._added = 0
        self._pace_then = load.prefill_pace
        self._nothing_until = -inf
        """Time before which no planned request may be sent, unless another request arrives."""

    def __len__(self) -> int:
        return len(self._late.requests) + len(self._able)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._late.requests or request_id in self._able

    def add(self, tracked: TrackedRequest) -> None:
        """Put a request into the queue; whether it is late is determined when the queue is next examined."""
        self._able[tracked.request.id] = tracked
        if self._turns is not None:
            self._turns.waits(tracked)
        self._nothing_until = -inf
        self._added += 1
        heappush(self._latest_starts, (self._latest_start(tracked), self._added, tracked))

    def remove(self, request_id: str) -> None:
        """Remove the request with this id, late or not; unknown ids are ignored."""
        late = self._late.pop(request_id)
        self._first_late = None
        tracked = self._able.pop(request_id, None) if late is None else late
        if tracked is not None and self._turns is not None:
            self._turns.leaves(tracked, late=late is not None)
        self._nothing_until = -inf

    def find_late(self, now: float) -> Sequence[TrackedRequest]:
        """Mark and return the requests that would miss the TTFT target even if they were sent at once.

        The call costs nothing while no request can be late yet, and O(log n) for each late request. If the pace has
        changed, it costs O(n).
        """
        starts, pace = self._latest_starts, self._load.prefill_pace
        if pace <= self._pace_then and not (starts and now > starts[0][0]):
            return ()
        if pace != self._pace_then:
            self._pace_then = pace
            starts = self._latest_starts = [(self._latest_start(one), place, one) for place, one in enumerate(self._able.values())]
            heapify(starts)
        by_place: list[tuple[int, TrackedRequest]] = []
        while starts and now > starts[0][0]:
            _, place, tracked = heappop(starts)
            if self._able.get(tracked.request.id) is tracked and now > self._latest_start(tracked):
                del self._able[tracked.request.id]
                by_place.append((place, tracked))
        found = [tracked for _, tracked in sorted(by_place, key=itemgetter(0))]
        for tracked in found:
            self._late.add(tracked)
            self._first_late = None
            if self._turns is not None:
                self._turns.found_late(tracked)
            self._nothing_until = -inf
            self._rules.found_late(tracked)
        return found

    def take(self, now: float) -> TrackedRequest | None:
        """Remove and return the request to send next; None if no request should be sent now."""
        self.find_late(now)
        if now < self._nothing_until:
            return None
        if len(self._able) == 1 and self._turns is None and not self._late.requests and (alone := self._take_alone(now)) is not None:
            return alone
        late = self._shortest_late()
        if late is not None and 0 < self._seconds(late) <= self._earned:
            self._earned -= self._seconds(late)
            return self._taken(late, now)
        if late is not None and self._is_owed(late):
            return self._taken(late, now)
        planned, _ = self._plan(now)
        if late is not None and late.continues and (first := self._before_all(late, planned, now)) is not None:
            return self._taken(first, now)
        if planned:
            return self._take_planned(planned, now)
        if late is None and self._able:  # held up by what is in flight: nothing fits before its deadline, yet nothing is late
            late = min(self._able.values(), key=shortness)
        if late is None or not self._rules.late_may_go():
            return None
        return self._taken(late, now) if now >= self._rested_at(self._seconds(late), now) or self._rules.has_time() else None

    def _take_alone(self, now: float) -> TrackedRequest | None:
        """Remove and return the queue's only request, if it can be sent at once and meet the target. This is the usual
        case in a pool that is not overloaded. Otherwise return None and change nothing.
        """
        (tracked,) = self._able.values()
        load = self._load
        seconds = _seconds(tracked, load.prefill_pace)
        if now + self._ahead_seconds(now) + seconds > self._due(tracked):
            return None
        rest = self._rest_seconds(seconds)
        if rest and not load.prefilling and now < self._rested_at(seconds, now):
            return None
        load.owe_rest(rest, now)
        self._able.clear()
        self._nothing_until = -inf
        return tracked

    @property
    def can_begin_again(self) -> bool:
        """Whether this queue object can be reused once it is empty. False if tenants take turns, because their turns
        end with the queue.
        """
        return self._turns is None

    def begin_again(self) -> None:
        """Reset an empty queue to its initial state."""
        if self._earned or self._late.has_had_any:
            self._earned = self._owed_beginnings = 0.0
            self._late, self._first_late = LateByLength(), None
        self._latest_starts.clear()
        self._pace_then = self._load.prefill_pace
        self._nothing_until = -inf

    def take_in_time(self, now: float) -> TrackedRequest | None:
        """Remove and return the next request, as `take` does, but only a request that can still meet its deadline and
        that may be sent right behind the prefills in flight. None if there is no such request.
        """
        self.find_late(now)
        planned, _ = self._plan(now)
        return self._take_planned(planned, now, beside=True) if planned else None

    def take_any(self, now: float) -> TrackedRequest | None:
        """Remove and return a request for an idle instance, after `take` has returned None; None if no request waits.
        Nothing decodes on an idle instance, so no rest is needed, and late requests may be late only by a wrong
        estimate.
        """
        self.find_late(now)
        planned, _ = self._plan(now)
        if planned:
            return self._taken(planned[0].tracked if len(planned) == 1 else shortest_harmless(planned, now).tracked, now)
        chosen = self._shortest_late() or min(self._able.values(), key=shortness, default=None)
        return None if chosen is None else self._taken(chosen, now)

    def in_order(self, now: float) -> list[TrackedRequest]:
        """Return the requests in about the order in which they would be sent if no more requests arrived: planned
        requests by deadline, then requests left out of the plan, then late requests.
        """
        planned, left_out = self._plan(now)
        return [*(one.tracked for one in (*planned, *left_out)), *self._late.by_length()]

    def lower_than(self, request: RoutingRequest) -> Overtaken:
        """Return an empty result, because all requests in this queue have the same priority."""
        return NOBODY

    def overtaken_by(self, request: RoutingRequest) -> Overtaken:
        """Return the waiting work of other tenants that would be sent after the request by fair share. Requests of the
        same tenant are not counted, because they may be sent in any order.
        """
        return NOBODY if self._turns is None else self._turns.overtaken_by(request.tenant)

    def _shortest_late(self) -> TrackedRequest | None:
        """Return the shortest late request; None if there is none. If tenants take turns, only requests of the tenants
        with the least served work are compared.
        """
        if self._first_late is None and self._late.requests:
            turns = self._turns
            self._first_late = self._late.shortest(None if turns is None or not turns.are_shared else turns.least_served_of_late())
        return self._first_late

    def _before_all(self, late: TrackedRequest, planned: Sequence[Planned], now: float) -> TrackedRequest | None:
        """Return the request to send before all planned requests; None if a planned request should be sent next.

        The result is `late`, a late turn of a task in progress, once it has waited long enough or if no planned request
        continues a task. But if the time reserved for first turns of tasks suffices for a first turn, the result is
        this first turn.
        """
        if self._turns is not None and self._turns.are_shared:
            return None
        if now < late.request.arrived_at + PATIENCE * self._target and any(one.tracked.continues for one in planned):
            return None
        beginning = self._first_beginning(planned)
        if beginning is None:
            self._owed_beginnings = 0.0
        elif self._seconds(beginning) <= self._owed_beginnings:
            self._owed_beginnings -= self._seconds(beginning)
            return beginning
        else:
            self._owed_beginnings += self._rules.new_task_share * self._seconds(late)
        return late

    def _first_beginning(self, planned: Sequence[Planned]) -> TrackedRequest | None:
        """Return the shortest first turn of a task among the planned requests or, if there is none, among all
        requests.
        """
        able = [one.tracked for one in planned if not one.tracked.continues]
        waiting = able or [one for one in (*self._able.values(), *self._late.requests.values()) if not one.continues]
        return min(waiting, key=shortness, default=None)

    def _is_behind(self, tracked: TrackedRequest) -> bool:
        return self._turns is not None and self._turns.is_behind(tracked)

    def _is_owed(self, late: TrackedRequest) -> bool:
        return self._turns is not None and self._turns.are_shared and bool(self._able) and self._turns.is_owed(late)

    def _take_planned(self, planned: list[Planned], now: float, *, beside: bool = False) -> TrackedRequest | None:
        chosen = planned[0] if len(planned) == 1 else shortest_harmless(planned, now + self._ahead_seconds(now))
        together = self._load.prefilling and not beside  # as many may be in flight
        rested_at = -inf if together else self._rested_at(chosen.seconds, now)
        if now < rested_at and (self._rules.has_time() or self._is_behind(chosen.tracked)):
            rested_at = min(rested_at, now + slack(planned, now) - RESERVE * self._target - NEXT_LOOK_SECONDS)
        if now < rested_at:
            if not beside:  # what is in flight may be over sooner
                self._nothing_until = rested_at
            return None
        if self._late.requests:
            self._earned += self._rules.late_share * chosen.seconds
        return self._taken(chosen.tracked, now)

    def _rested_at(self, seconds: float, now: float) -> float:
        """Return the earliest time (Unix seconds) at which a prefill of this many seconds may start so that the running
        decodes stay within their TPOT target; minus infinity if it may start now.
        """
        rest = self._rest_seconds(seconds)
        if not rest:
            return -inf
        missing = rest - self._load.rest_credit(now)
        if seconds <= SHORT_SECONDS:
            missing -= self._rest_seconds(SHORT_SECONDS)
        if missing <= 0:
            return -inf
        return now + missing + (self._ahead_seconds(now) if self._load.prefilling else 0.0)

    def _rest_seconds(self, seconds: float) -> float:
        """Return the seconds of rest that a prefill of this many seconds requires. The engine's step in progress, which
        `seconds` includes, requires no rest, because requests decode in this step.
        """
        return rest_seconds(seconds - STEP_SECONDS, self._rules.decode_share(self._load))

    def _plan(self, now: float) -> tuple[list[Planned], list[Planned]]:
        """Return two lists: the largest set of requests that can all be in time, in order of deadline, and the requests
        left out. If tenants take turns, the requests within each tenant's fair share are planned first.
        """
        if not self._able:
            return [], []
        requests = [Planned(self._due(one), self._seconds(one), place, one) for place, one in enumerate(self._able.values())]
        at = now + self._ahead_seconds(now)
        if len(requests) == 1:  # as in any pool that keeps up
            return ([], requests) if at + requests[0].seconds > requests[0].due else (requests, [])
        requests.sort(key=attrgetter("due"))
        kept: set[int] = set()
        if self._turns is not None and self._turns.are_shared:
            room = max(0.0, requests[-1].due - at) / sum(one.seconds for one in requests)
            first = within(requests, self._turns.budgets(room))
            kept = {one.place for one in first} - left_out(first, at)
        out = left_out(requests, at, kept)
        if not out:
            return requests, []
        return [one for one in requests if one.place not in out], [one for one in requests if one.place in out]

    def _taken(self, tracked: TrackedRequest, now: float) -> TrackedRequest:
        """Remove the request from the queue so that it is sent at once, and record the rest that must follow its
        prefill.
        """
        self._load.owe_rest(self._rest_seconds(self._seconds(tracked)), now)
        if self._turns is None:
            self.remove(tracked.request.id)
            return tracked
        late = self._late.pop(tracked.request.id) is not None
        self._first_late = None
        if not late:
            del self._able[tracked.request.id]
        self._turns.sent(tracked, late=late)
        self._nothing_until = -inf
        return tracked

    def _ahead_seconds(self, now: float) -> float:
        """Return the remaining seconds of the prefills in flight."""
        return max(0.0, self._load.dispatched_prefill_tokens / self._rules.speed() - self._load.done_seconds(now))

    def _due(self, tracked: TrackedRequest) -> float:
        return tracked.request.arrived_at + self._target

    def _latest_start(self, tracked: TrackedRequest) -> float:
        """Return the time at which the request becomes late, by the present pace."""
        return self._due(tracked) - _seconds(tracked, self._pace_then)

    def _seconds(self, tracked: TrackedRequest) -> float:
        return _seconds(tracked, self._load.prefill_pace)


PACE_WEIGHT = 0.1
LASTING_PACE_WEIGHT = 0.02
"""Weight of a prefill of usual length in the instance's lasting pace, the slower of two averages of measured time
divided by predicted time. `PACE_WEIGHT` is the weight in the other average, the present pace.
"""
FASTEST, SLOWEST = 0.001, 1000.0
"""The smallest and the largest possible pace (measured time of prefills divided by their predicted time)."""
MOST_TIMES = 4.0
"""Maximum factor between a prefill's time and the time that the pace predicts; a larger difference counts as this
factor. So a single outlier has little effect. Many similar prefills can still bring the pace to any value (to 10 within
nine prefills).
"""
LONGEST_PREFILL_SECONDS = 600.0

RISING_AMONG_OTHERS = 0.125
"""Factor on the weight of a prefill that took longer than the pace predicts, if several routers send to the instance,
because prefills of other routers may have delayed it.
"""


def next_pace(
    pace: float, usual_seconds: float, seconds: float, predicted_seconds: float, weight: float = PACE_WEIGHT, rising: float = 1.0
) -> tuple[float, float]:
    """Return the smoothed pace and the usual length of a prefill in seconds, updated with a prefill that took
    `seconds`.

    A prefill counts in proportion to its length, because a large part of a short prefill is the wait for the engine's
    step. A prefill of usual length has the weight `weight`, multiplied by `rising` if it took longer than the pace
    predicts. `seconds` is limited to at most four times, and at least a quarter of, the time predicted by the pace.
    `predicted_seconds` is limited to ten minutes.
    """
    expected = (predicted_seconds if predicted_seconds < LONGEST_PREFILL_SECONDS else LONGEST_PREFILL_SECONDS) + STEP_SECONDS
    usual_seconds += weight * (expected - usual_seconds)
    observed = seconds / expected if seconds == seconds else pace
    if not pace / MOST_TIMES <= observed <= MOST_TIMES * pace:  # no calls: this runs twice for each first token
        observed = MOST_TIMES * pace if observed > pace else pace / MOST_TIMES
    if not FASTEST <= observed <= SLOWEST:
        observed = SLOWEST if observed > SLOWEST else FASTEST
    weight *= expected / usual_seconds * (rising if observed > pace else 1.0)
    return pace + weight * (observed - pace), usual_seconds


def _seconds(tracked: TrackedRequest, pace: float) -> float:
    return tracked.prefill_microseconds / 1e6 * pace + STEP_SECONDS

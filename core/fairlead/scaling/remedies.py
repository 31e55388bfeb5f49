"""What would help a pool that misses its objectives, by simulations of the requests that it got.

Requests decide one by one, not by their mean: one whose prompt alone takes longer than the TTFT target on an idle
instance that has every known prefix is late with any number of instances (`Reach`). The rest may need more of them. A
number is offered only after a simulation of the recorded requests, refused ones included, confirmed it; an estimate
from rates is never more than called one.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10, sqrt

from fairlead.instances import Role
from fairlead.scaling.host_caches import HostCache

LEAST_GAIN = 0.02
"""A remedy is offered only if it brings at least this share of all requests in time."""
_PLATEAU = 0.01
"""A number is as good as the best if it serves at most this share of requests less in time."""
_ONE_OF_TWENTY = 1.645
"""Standard deviations that a normal variable exceeds in one of twenty cases."""
_NICE = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How many of the recorded `requests` no number of instances serves in time, and what would.

    `beyond` need longer than the TTFT target alone, on an idle instance with every prefix that came before; `refused`
    got no answer, `refused_beyond` are both. `too_long` need more KV memory than an engine has, which neither time nor
    speed mends; they are among `beyond`. With a TTFT of `ttft_seconds`, or with engines `speed` times as fast, no more
    would be beyond than the percentile allows. `tokens` is the longest prompt, or part of one that is not cached, that
    an instance computes within the target. As many other requests of the same kind bring more than `swing` more work
    (0.2: a fifth) in one of twenty cases.
    """

    requests: int
    beyond: int = 0
    too_long: int = 0
    refused: int = 0
    refused_beyond: int = 0
    ttft_seconds: float | None = None
    speed: float | None = None
    tokens: int | None = None
    swing: float = 0.0

    @property
    def share(self) -> float:
        """Share (0-1) of all requests that no number of instances serves in time."""
        return self.beyond / self.requests if self.requests else 0.0

    def exceeds(self, allowed: float) -> bool:
        """Whether surely more than this share of requests like these is beyond any number of instances: by two standard
        deviations of the share.
        """
        return self.requests > 0 and self.share - 2 * sqrt(self.share * (1 - self.share) / self.requests) > allowed

    @property
    def share_of_refused(self) -> float | None:
        """The same share of the refused requests; None if none was refused."""
        return self.refused_beyond / self.refused if self.refused else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A value that simulations tried (instances of a role, or a TTFT target in seconds), and the shares of all requests
    in time; refused requests count as late.

    Shares are given by seed at the recorded rate, and with fewer and more requests. With as many other requests of the
    same kind the share is lower by more than `error` in one of twenty cases. `unknown` says why these cannot be relied
    on.
    """

    value: float
    attainments: tuple[float, ...]
    fewer: float
    more: float
    error: float = 0.0
    unknown: str | None = None

    @property
    def attainment(self) -> float:
        """Mean over the seeds."""
        return sum(self.attainments) / len(self.attainments)

    @property
    def surely(self) -> float:
        """The share that is reached in nineteen of twenty cases."""
        return max(0.0, self.attainment - self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What simulations of one stretch of recorded requests say of a pool: one snapshot for sentence, button and plan.

    `present` instances of the role bring the share `before` in time. `ttfts` are with the present number.
    `held` is the number that was offered before, which stands while it is within the new range.
    """

    simulation: str
    role: Role
    present: int
    goal: float
    """Share (0-1) of requests that is to be in time."""
    ttft_seconds: float
    tpot_seconds: float
    requests: int
    seconds: float
    """Seconds from the first to the last request."""
    before: float
    numbers: tuple[Tried, ...]
    ttfts: tuple[Tried, ...]
    reach: Reach
    unlike: str | None = None
    """Why the simulated pool is not like the real one: nothing is confirmed then."""
    host_cache: HostCache | None = None
    """What a cache in host memory would add to the hits of the same requests."""
    held: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """A value that the simulation confirms: it brings `attainment` of all requests in time, in nineteen of twenty cases
    at least `surely`, and `meets` the goal or not. With fewer requests `least` would do, with more `most` (None: more
    than was tried).
    """

    value: float
    attainment: float
    surely: float
    meets: bool
    least: float
    most: float | None


def enough_instances(found: Simulated) -> Confirmed | None:
    """The confirmed number of instances; None if none is confirmed, or none helps."""
    if found.unlike is not None:
        return None
    numbers = sorted(found.numbers, key=lambda one: one.value)
    chosen = _chosen(numbers, found.before, found.goal)
    if chosen is None or found.held is None or chosen.value == found.held:
        return chosen
    former = next((one for one in numbers if one.value == found.held and one.unknown is None), None)
    if former is None or not chosen.least <= former.value <= (chosen.most or former.value):
        return chosen
    if former.surely < (found.goal if chosen.meets else chosen.surely - _PLATEAU):
        return chosen
    return replace(chosen, value=former.value, attainment=former.attainment, surely=former.surely)


def enough_time(found: Simulated) -> Confirmed | None:
    """The confirmed TTFT target for the present number of instances; None if none is confirmed, or none helps."""
    return None if found.unlike is not None else _chosen(sorted(found.ttfts, key=lambda one: one.value), found.before, found.goal)


def _chosen(tried: Sequence[Tried], before: float, goal: float) -> Confirmed | None:
    """The least value from which on all keep the goal; where none does, the least that is about as good as the best."""
    known = [one for one in tried if one.unknown is None]
    if not known:
        return None
    enough = [one for place, one in enumerate(known) if all(later.surely >= goal for later in known[place:])]
    best = max(one.surely for one in known)
    one = enough[0] if enough else next(one for one in known if one.surely >= best - _PLATEAU)
    if one.surely < before + LEAST_GAIN:
        return None
    wanted = goal if enough else best - _PLATEAU
    return Confirmed(
        value=one.value,
        attainment=one.attainment,
        surely=one.surely,
        meets=bool(enough),
        least=min([one.value, *(other.value for other in known if other.fewer >= wanted)]),
        most=next((other.value for other in known if other.value >= one.value and other.more >= wanted), None),
    )


def reach_of(
    alone: Sequence[float | None],
    refused: Sequence[bool],
    ttft_seconds: float,
    goal: float,
    speed: float | None,
    sessions: Sequence[str | None] = (),
) -> Reach:
    """From the seconds that each request takes alone (None: longer than an engine's memory) and whether it was refused.

    `speed` is what an instance computes, in tokens per second; `sessions` has the session of each request, where these
    are known. Half of what a percentile allows is left to queueing.
    """
    beyond = [one is None or one >= ttft_seconds for one in alone]
    fitting = sorted(one for one in alone if one is not None)
    spared = len(alone) * (1 - goal) / 2 - (len(alone) - len(fitting))
    needed = fitting[max(0, ceil(len(fitting) - spared) - 1)] if fitting and 0 <= spared < len(fitting) else None
    is_more = needed is not None and needed >= ttft_seconds
    return Reach(
        requests=len(alone),
        beyond=sum(beyond),
        too_long=len(alone) - len(fitting),
        refused=sum(refused),
        refused_beyond=sum(late and turned for late, turned in zip(beyond, refused, strict=True)),
        ttft_seconds=nice(1.1 * needed) if is_more and needed is not None else None,
        speed=needed / ttft_seconds * 1.1 if is_more and needed is not None else None,
        tokens=None if speed is None else floor(speed * ttft_seconds),
        swing=swing_of(alone, sessions),
    )


def swing_of(alone: Sequence[float | None], sessions: Sequence[str | None] = ()) -> float:
    """The share by which another half of such requests brings more work than this later half, in one of twenty cases.

    Sessions that arrive at random (a compound Poisson process) bring work whose variance is about the sum of squares of
    each session's work. A request without a session counts as its own session.
    """
    of_session = defaultdict[str | int, float](float)
    for number, seconds in enumerate(alone):
        session = sessions[number] if sessions else None
        of_session[number if session is None else session] += seconds or 0.0
    work = sum(of_session.values())
    if work <= 0:
        return 0.0
    deviation = sqrt(sum(one**2 for one in of_session.values())) / work
    return _ONE_OF_TWENTY * 2 * deviation  # a half deviates √2 times as much as the whole, and so do two halves from each other


def drop_of(attainment: float, more: float, rate: float, swing: float) -> float:
    """By how much the share in time falls with this much more work, when it is `more` at `rate` times the requests:
    interpolated on the line through both, which ends at zero.
    """
    return min(attainment, max(0.0, attainment - more) * swing / (rate - 1))


def nice(seconds: float) -> float:
    """The next number of few digits that is no smaller: 10.3 → 12."""
    size = 10.0 ** floor(log10(seconds))
    return next(size * step for step in _NICE if size * step >= seconds * (1 - 1e-9))


def first_numbers(present: int, estimate: float | None, most: int) -> list[int]:
    """Numbers of instances above the present one to try first: steps of half again and more, and the estimate."""
    tried = {ceil(present * step) for step in (1.3, 2, 3, 5, 8)} | ({ceil(estimate)} if estimate else set())
    return sorted(number for number in tried if present < number <= most) or ([most] if most > present else [])


def further_numbers(present: int, first: dict[int, float], goal: float) -> list[int]:
    """Numbers between those that were tried, about the least that is enough or about as good as the best, and one more
    for the case that this does not hold. `first` has the share in time of each.
    """
    numbers = sorted(first)
    if not numbers:
        return []
    wanted = min(goal, max(first.values()) - _PLATEAU)
    enough = next(one for one in numbers if first[one] >= wanted)
    below = max([one for one in numbers if one < enough], default=present)
    between = {ceil(below + (enough - below) * part / 3) for part in (1, 2)}
    beyond = min([one for one in numbers if one > enough], default=enough)
    more = min(beyond, max(enough + 1, ceil(1.3 * enough))) if beyond > enough else enough
    return sorted({one for one in (*between, enough, more) if one > below})

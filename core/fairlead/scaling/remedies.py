"""Remedies for a pool that misses its objectives, found by simulations of its recorded requests.

Requests are examined one by one, not by their mean. A request is late with any number of instances if its prompt alone
takes longer than the TTFT target on an idle instance that has cached every known prefix (`Reach`). The other requests
may need more instances. A number is offered only if a simulation of the recorded requests, including refused ones,
confirmed it; an estimate from rates is always called an estimate.
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
"""Difference between shares (0-1) of requests served in time, up to which a number of instances counts as equally good
as the best number.
"""
_ONE_OF_TWENTY = 1.645
"""Number of standard deviations: a normal variable exceeds its mean by more than this in one of twenty cases."""
_NICE = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The recorded requests that no number of instances could serve in time, and the remedies for them.

    `requests` counts all recorded requests. `beyond` counts requests that take longer than the TTFT target even alone,
    on an idle instance with every earlier prefix cached. `refused` counts refused requests, and `refused_beyond`
    refused requests that are also beyond. `too_long` counts requests that need more KV memory than an engine has, which
    neither time nor speed can change; `beyond` includes them. With a TTFT target of `ttft_seconds`, or with engines
    that are `speed` times as fast, the share of `beyond` would be no larger than the percentile allows. `tokens` is the
    longest prompt, or uncached part of a prompt, that an instance computes within the target. `swing` is the share by
    which the work of an equal number of similar requests exceeds the work of these requests in one of twenty cases
    (0.2: a fifth).
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
        """Return whether the share of requests beyond any number of instances is larger than `allowed`, even after two
        standard deviations of this share are subtracted.
        """
        return self.requests > 0 and self.share - 2 * sqrt(self.share * (1 - self.share) / self.requests) > allowed

    @property
    def share_of_refused(self) -> float | None:
        """Share (0-1) of the refused requests that no number of instances serves in time; None if no request was
        refused.
        """
        return self.refused_beyond / self.refused if self.refused else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The simulated share of all requests that is in time, for one value: a number of instances of a role, or a TTFT
    target in seconds. Refused requests count as late.

    `attainments` are the shares for each seed at the recorded rate, `fewer` and `more` the shares with fewer and more
    requests. In one of twenty cases, an equal number of similar requests has a share that is lower by more than
    `error`. `unknown` is the reason why the result is not reliable; None if it is reliable.
    """

    value: float
    attainments: tuple[float, ...]
    fewer: float
    more: float
    error: float = 0.0
    unknown: str | None = None

    @property
    def attainment(self) -> float:
        """Mean share in time over the seeds."""
        return sum(self.attainments) / len(self.attainments)

    @property
    def surely(self) -> float:
        """The share in time that is reached in nineteen of twenty cases."""
        return max(0.0, self.attainment - self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The results of simulating one stretch of a pool's recorded requests. The finding's sentence, button and plan all
    use these same results.

    `present` instances of the role serve the share `before` in time. `ttfts` were tried with the present number of
    instances. `held` is the number that was offered before; it is offered again as long as it is within the new range.
    """

    simulation: str
    role: Role
    present: int
    goal: float
    """Share (0-1) of requests that must be in time."""
    ttft_seconds: float
    tpot_seconds: float
    requests: int
    seconds: float
    """Seconds between the first and the last request."""
    before: float
    numbers: tuple[Tried, ...]
    ttfts: tuple[Tried, ...]
    reach: Reach
    unlike: str | None = None
    """The reason why the simulated pool differs from the real pool, so that its results confirm nothing; None if it
    does not differ.
    """
    host_cache: HostCache | None = None
    """The hits that a cache in host memory would add for the same requests."""
    held: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """A value that the simulation confirms. With it, the mean share of all requests in time is `attainment`, and in
    nineteen of twenty cases the share is at least `surely`; `meets` says whether `surely` reaches the goal. With fewer
    requests the value `least` would suffice, with more requests the value `most` (None: more than was tried).
    """

    value: float
    attainment: float
    surely: float
    meets: bool
    least: float
    most: float | None


def enough_instances(found: Simulated) -> Confirmed | None:
    """Return the confirmed number of instances; None if no number is confirmed, or no number helps."""
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
    """Return the confirmed TTFT target for the present number of instances; None if no target is confirmed, or no
    target helps.
    """
    return None if found.unlike is not None else _chosen(sorted(found.ttfts, key=lambda one: one.value), found.before, found.goal)


def _chosen(tried: Sequence[Tried], before: float, goal: float) -> Confirmed | None:
    """Return the smallest tried value that reaches the goal and above which all tried values reach it too. If there is
    no such value, return the smallest value that is about as good as the best value. None if no value helps.
    """
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
    """Return the `Reach` of requests, computed from the seconds that each request takes alone (None: too long for an
    engine's KV memory) and from whether it was refused.

    `speed` is an instance's prefill speed in tokens per second; `sessions` has the session of each request, if known.
    Half of the lateness that the percentile allows is reserved for queueing.
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
        ttft_seconds=_target_above(needed) if is_more and needed is not None else None,
        speed=needed / ttft_seconds * 1.1 if is_more and needed is not None else None,
        tokens=None if speed is None else floor(speed * ttft_seconds),
        swing=swing_of(alone, sessions),
    )


LEAST_MEASURED = 20
"""Minimum number of measured requests for which `measured_reach` returns a result."""


def measured_reach(alone: Sequence[float | None], weights: Sequence[float], ttft_seconds: float, goal: float) -> Reach | None:
    """Return the `Reach` of requests that were served, measured instead of computed. None if it is not certain that
    more than the share `1 - goal` of them would have been late with any number of instances.

    `alone` has the seconds from dispatch to the first token of each request whose instance had no other prompts to
    compute, None for all other requests. Only requests with such a time can count as beyond any number of instances. A
    request of weight 2 stands for two requests. Half of the lateness that the percentile allows is reserved for
    queueing.
    """
    idle = sorted((one, weight) for one, weight in zip(alone, weights, strict=True) if one is not None)
    whole, of_idle = sum(weights), sum(weight for _, weight in idle)
    if len(alone) < LEAST_MEASURED or not of_idle:
        return None
    beyond = sum(weight for one, weight in idle if one >= ttft_seconds)
    within, needed = 0.0, idle[-1][0]
    for one, weight in idle:
        within += weight
        if within >= (1 + goal) / 2 * of_idle * (1 - 1e-9):
            needed = one
            break
    reach = Reach(requests=len(alone), beyond=floor(beyond / whole * len(alone)), ttft_seconds=_target_above(needed))
    return reach if reach.exceeds(1 - goal) and needed >= ttft_seconds else None


def _target_above(seconds: float) -> float:
    """Return the next round TTFT target, in whole milliseconds, that is at least a tenth longer than `seconds`."""
    return ceil(nice(1.1 * seconds) * 1000 - 1e-6) / 1000


def swing_of(alone: Sequence[float | None], sessions: Sequence[str | None] = ()) -> float:
    """Return the share by which, in one of twenty cases, the work of another sample of similar requests exceeds the
    work of this sample.

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
    """Return the difference by which the share in time falls if the work grows by the share `swing`. `more` is the
    share in time at `rate` times the requests. The result is interpolated on the line through both shares and is at
    most `attainment`.
    """
    return min(attainment, max(0.0, attainment - more) * swing / (rate - 1))


def nice(seconds: float) -> float:
    """Return the smallest round number that is not smaller than the given number: 10.3 → 12."""
    size = 10.0 ** floor(log10(seconds))
    return next(size * step for step in _NICE if size * step >= seconds * (1 - 1e-9))


def first_numbers(present: int, estimate: float | None, most: int) -> list[int]:
    """Return the numbers of instances to try first, all above the present number: about 1.3, 2, 3, 5 and 8 times the
    present number, and the estimate.
    """
    tried = {ceil(present * step) for step in (1.3, 2, 3, 5, 8)} | ({ceil(estimate)} if estimate else set())
    return sorted(number for number in tried if present < number <= most) or ([most] if most > present else [])


def further_numbers(present: int, first: dict[int, float], goal: float) -> list[int]:
    """Return the numbers of instances to try next, around the smallest tried number that is enough (or about as good as
    the best): some smaller numbers, that number itself, and one larger number in case that number turns out not to be
    enough. `first` has the share in time of each tried number.
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

"""Turns the results of a plan's simulation into a report: the expected figures, or why a figure is unknown. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from fairlead.percentages import percentage
from fairlead_api.simulations.plan_changes import RATES, SEEDS
from fairlead_client.resources.expectations import ExpectedFigure, Quantity
from fairlead_client.simulation_jobs import PARTS, PartFigures, RunFigures

WITHIN = 0.25
"""Maximum relative difference between two values of a figure at which the figure still counts as reliable."""
FEW_SESSIONS = 3.0
"""Maximum difference at which two numbers of sessions count as equal."""
SURE_SESSIONS = 87.0
"""Minimum number of moved sessions, as a mean of two runs, that is reported as a reliable figure. Two random counts
with this mean differ by at most a quarter in nine of ten cases, if the standard deviation of a count is its square
root.
"""
_STUDENT = 2.13
"""A mean of `PARTS` parts lies within this number of standard errors of the true value in nine of ten cases (Student's
t).
"""
_NEGLIGIBLE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The recorded figures of the pool's requests: the share (0-1) of served requests within the objectives, the hit
    rate, and the number of moved sessions; None if not measured.
    """

    attainment: float | None = None
    hit_rate: float | None = None
    sessions_moved: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trialled:
    """The figures of each run of a plan's simulation, in the order of `plan_changes.Trial.runs`, and the recorded
    figures of the same requests.
    """

    figures: list[RunFigures]
    recorded: Recorded
    measured_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The values of one quantity in all runs: without the change (`before`), with the change (`after`), and with the
    change at other request rates (`at_rates`).

    `parts` has the quantity in consecutive parts of the requests' time, and `session_parts` in groups of sessions, each
    as a mean over the seeds.
    """

    quantity: Quantity
    before: Sequence[float]
    after: Sequence[float]
    at_rates: Sequence[float]
    parts: Sequence[float] = ()
    session_parts: Sequence[float] = ()

    @property
    def least(self) -> float:
        """The largest difference at which two values always count as equal."""
        return FEW_SESSIONS if self.quantity is Quantity.SESSIONS_MOVED else _NEGLIGIBLE

    def words(self, value: float) -> str:
        return f"{value:.0f}" if self.quantity is Quantity.SESSIONS_MOVED else percentage(value)


def figures_of(found: Trialled) -> list[ExpectedFigure]:
    """Return the expected figures without and with the planned change, as means over the seeds.

    A figure is unknown in these cases:

    - Without the change, the simulated figure differs by more than a quarter from the recorded figure.
    - The figure differs by more than a quarter between the two seeds, or between the request rates.
    - The figure differs so much between parts of the requests that other requests might give another result.
    - The figure is a small number of sessions.
    """
    seeded = found.figures[: 2 * len(SEEDS)]
    before, after, at_rates = seeded[::2], seeded[1::2], found.figures[2 * len(SEEDS) :]
    shares = [
        _Found(
            quantity=quantity,
            before=[_share(one, quantity) for one in before],
            after=[_share(one, quantity) for one in after],
            at_rates=[_share(one, quantity) for one in at_rates],
            parts=_means([one.parts for one in after], quantity),
            session_parts=_means([one.session_parts for one in after], quantity),
        )
        for quantity in (Quantity.ATTAINMENT, Quantity.REFUSED_SHARE, Quantity.HIT_RATE)
    ]
    moved = _Found(quantity=Quantity.SESSIONS_MOVED, before=_moved(before), after=_moved(after), at_rates=_moved(at_rates))
    attainment, refused, hit_rate = shares
    late = unlike_recorded(before, found.recorded)
    return [
        _figure(attainment, late),
        _figure(refused, late),
        _figure(hit_rate, _unlike(hit_rate, fmean(hit_rate.before), found.recorded.hit_rate, "of prompt tokens from caches")),
        _figure(moved, _unlike(moved, fmean(moved.before), found.recorded.sessions_moved, "sessions moved")),
    ]


def unlike_recorded(as_it_is: Sequence[RunFigures], recorded: Recorded) -> str | None:
    """Return the reason why the simulation of the unchanged pool is not reliable: its share of served requests within
    the objectives differs too much from the recorded share. None if it is reliable.
    """
    in_time = [one.attainment * one.requests / one.served if one.served else 0.0 for one in as_it_is]
    found = _Found(quantity=Quantity.ATTAINMENT, before=in_time, after=(), at_rates=())
    return _unlike(found, fmean(in_time), recorded.attainment, "in time")


def sampling_error(run: RunFigures) -> float:
    """Return the sampling error of the share of requests within the objectives. In one of twenty cases, the same number
    of other requests would have a share that is lower by more than this error.

    Estimated by batch means as in `_by_part`, from parts divided by time or by session, whichever give the larger
    error.
    """
    parts = [[one.attainment for one in of_what] for of_what in (run.parts, run.session_parts) if len(of_what) == PARTS]
    return max((_STUDENT * sqrt(2 / PARTS) * stdev(one) for one in parts), default=0.0)


def alike(one: float, other: float, least: float) -> bool:
    """Return whether two values of a figure differ by at most a quarter of the larger one, or by at most `least`."""
    return abs(one - other) <= max(least, WITHIN * max(one, other))


def _figure(found: _Found, unlike: str | None) -> ExpectedFigure:
    expected = fmean(found.after)
    unknown = unlike or _by_chance(found) or _by_rate(found, expected) or _by_part(found, expected)
    return ExpectedFigure(quantity=found.quantity, before=fmean(found.before), after=expected, unknown=unknown)


def _by_chance(found: _Found) -> str | None:
    low, high, expected = min(found.after), max(found.after), fmean(found.after)
    if not alike(low, high, found.least):
        return f"it depends on chance: one seed gives {found.words(low)}, another {found.words(high)}"
    if found.quantity is Quantity.SESSIONS_MOVED and FEW_SESSIONS < expected < SURE_SESSIONS:
        return f"too few sessions move (about {expected:.0f}) to predict how many"
    return None


def _by_rate(found: _Found, expected: float) -> str | None:
    """Return the reason why the figure depends too much on the request rate; None if it does not. Real traffic never
    repeats exactly, and real engines are not exactly as fast as declared. Either difference has the effect of another
    request rate.
    """
    if all(alike(expected, value, found.least) for value in found.at_rates):
        return None
    others = " and ".join(f"{found.words(value)} at {rate:g} times the rate" for rate, value in zip(RATES, found.at_rates, strict=True))
    return f"it depends on the request rate: {found.words(expected)} at the recorded rate, {others}"


def _by_part(found: _Found, expected: float) -> str | None:
    """Return the reason why another sample of requests might give another figure; None if this is unlikely. The
    probability is estimated by batch means, which compare parts of the requests.

    Requests close in time share a burst, and requests of one session are similar, so the requests are divided into
    parts twice: by time and by session.
    """
    for parts, of_what in ((found.parts, "the time"), (found.session_parts, "the sessions")):
        if len(parts) != PARTS:
            continue
        error = stdev(parts) / sqrt(PARTS)
        if _STUDENT * sqrt(2) * error > max(found.least, WITHIN * expected):
            low, high = found.words(min(parts)), found.words(max(parts))
            return f"it depends on which requests arrive: one fifth of {of_what} gives {low}, another {high}"
    return None


def _means(runs: Sequence[Sequence[PartFigures]], quantity: Quantity) -> list[float]:
    """Return, for each part of the requests, the mean of the quantity over the runs."""
    return [fmean(_share(one, quantity) for one in same) for same in zip(*runs, strict=True)]


def _share(one: RunFigures | PartFigures, quantity: Quantity) -> float:
    match quantity:
        case Quantity.ATTAINMENT:
            return one.attainment
        case Quantity.REFUSED_SHARE:
            return one.refused_share
        case _:
            return one.hit_rate


def _moved(runs: Iterable[RunFigures]) -> list[float]:
    return [float(one.sessions_moved or 0) for one in runs]


def _unlike(found: _Found, simulated: float, recorded: float | None, words: str) -> str | None:
    if recorded is None:
        return "the results of the pool itself were not recorded, so the simulated pool cannot be compared with it"
    if alike(simulated, recorded, found.least):
        return None
    return (
        f"the simulated pool is not like this one: {found.words(simulated)} {words} without the change, but "
        f"{found.words(recorded)} were recorded"
    )

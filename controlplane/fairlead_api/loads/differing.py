"""Finds the peculiarities of a region of a heatmap: compares the recorded requests of some instances in a range of time
with all other requests, by all recorded properties of a request. Pure.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import sqrt

from fairlead.errors import InvalidInput
from fairlead_api.infra.times import parse_range
from fairlead_client.resources.load_explanations import LEAST_SAMPLES, Difference, Differences

SHOWN = 30
LONGEST = timedelta(days=1)
MOST_INSTANCES = 512
TELLING_ERRORS = 3.0
"""Minimum difference between two shares, in standard errors, that is reported. Among hundreds of compared shares, some
differ by two standard errors by chance.
"""
_LENGTHS = ((1_000, "below 1,000 tokens"), (4_000, "1,000 to 4,000"), (16_000, "4,000 to 16,000"), (64_000, "16,000 to 64,000"))
_LONGEST = "64,000 tokens and more"
_HITS = ((0.0, "nothing cached"), (0.5, "up to half cached"), (0.9, "half to 90 % cached"))
_ALL_HITS = "above 90 % cached"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A recorded request. `weight` is the number of requests that it represents. `miss_tokens` is the number of its
    prompt tokens that its instance had not cached; None if the decision's scores were not recorded.
    """

    at: datetime
    instance: str
    session: str | None
    priority_class: str
    reason: str
    prompt_tokens: int
    miss_tokens: int | None
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRequests:
    """Recorded requests, the nodes of their instances, and the pool's revisions, oldest first."""

    seen: Sequence[Seen]
    nodes: Mapping[str, str | None]
    revisions: Sequence[tuple[datetime, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A region of a heatmap: instances and the range of time [start, end)."""

    instances: frozenset[str]
    start: datetime
    end: datetime

    def has(self, one: Seen) -> bool:
        return one.instance in self.instances and self.start <= one.at < self.end


@dataclass(slots=True)
class _Sum:
    """Sums over requests: their weights, the squares of their weights, and their number."""

    weight: float = 0.0
    squares: float = 0.0
    count: int = 0

    def add(self, weight: float) -> None:
        self.weight += weight
        self.squares += weight * weight
        self.count += 1

    @property
    def worth(self) -> float:
        """The effective sample size (Kish): the number of requests of equal weight that would give a share with the
        same accuracy.
        """
        return self.weight**2 / self.squares if self.squares else 0.0


def region_of(instances: str, start: str, end: str, rest: tuple[str, str], now: datetime) -> tuple[Region, datetime, datetime]:
    """Return the region that a query names, and the start and end of the range of all compared requests. Raises
    InvalidInput, which names the query parameter.
    """
    names = frozenset(filter(None, (name.strip() for name in instances.split(","))))
    if not 0 < len(names) <= MOST_INSTANCES:
        raise InvalidInput("instances", instances[:80], f"write 1 to {MOST_INSTANCES} ids of instances, separated by commas")
    begun, ended = _between(start, end, now)
    first, last = _between(*rest, now)
    if max(ended, last) - min(begun, first) > LONGEST:
        raise InvalidInput("rest_from", rest[0], "write a range that lies within a day of the region")
    return Region(instances=names, start=begun, end=ended), min(begun, first), max(ended, last)


def _between(start: str, end: str, now: datetime) -> tuple[datetime, datetime]:
    begun, ended = parse_range(start, end, now)
    return begun or now, ended or now


def differences(region: Region, of: SeenRequests) -> Differences:
    """Return the shares that differ between the region and all other requests by more than chance, the most certain
    difference first.
    """
    sums = {True: _Sum(), False: _Sum()}
    parts: dict[tuple[str, str], dict[bool, _Sum]] = defaultdict(lambda: {True: _Sum(), False: _Sum()})
    for one in of.seen:
        inside = region.has(one)
        sums[inside].add(one.weight)
        for named in _named(one, of):
            parts[named][inside].add(one.weight)
    found = [_difference(*named, part, sums) for named, part in parts.items()]
    telling = [one for one in found if abs(one.inside_share - one.outside_share) > TELLING_ERRORS * one.error]
    telling.sort(key=lambda one: (-abs(one.inside_share - one.outside_share) / one.error, one.about, one.value))
    enough = min(sums[True].worth, sums[False].worth) >= LEAST_SAMPLES
    return Differences(
        instances=sorted(region.instances),
        start=region.start,
        end=region.end,
        inside=sums[True].count,
        outside=sums[False].count,
        enough=enough,
        found=telling[:SHOWN] if enough else [],
    )


def _named(one: Seen, of: SeenRequests) -> Iterator[tuple[str, str]]:
    yield "session", one.session or "none"
    yield "class", one.priority_class
    yield "reason", one.reason
    yield "prompt", next((words for least, words in _LENGTHS if one.prompt_tokens < least), _LONGEST)
    if one.miss_tokens is not None and one.prompt_tokens:
        hits = 1.0 - min(one.miss_tokens, one.prompt_tokens) / one.prompt_tokens
        yield "hits", next((words for most, words in _HITS if hits <= most), _ALL_HITS)
    if node := of.nodes.get(one.instance):
        yield "node", node
    if before := [number for at, number in of.revisions if at <= one.at]:
        yield "revision", str(before[-1])


def _difference(about: str, value: str, part: Mapping[bool, _Sum], sums: Mapping[bool, _Sum]) -> Difference:
    shares = {inside: part[inside].weight / sums[inside].weight if sums[inside].weight else 0.0 for inside in (True, False)}
    return Difference(
        about=about,
        value=value,
        inside=part[True].count,
        outside=part[False].count,
        inside_share=shares[True],
        outside_share=shares[False],
        error=sqrt(sum(_variance(shares[inside], sums[inside].worth) for inside in (True, False))),
    )


def _variance(share: float, worth: float) -> float:
    """Return the variance of an estimated share. `worth` is the effective sample size. One request with the property
    and one without it are added to the sample, so that a share of 0 does not count as certain.
    """
    guarded = (share * worth + 1.0) / (worth + 2.0)
    return guarded * (1.0 - guarded) / (worth + 2.0)

"""The explanation of an instance's load over a time range: its figures compared with the other instances', the sessions
whose requests it received, and the sessions that moved.
"""

from dataclasses import dataclass
from datetime import datetime

from fairlead.instances import InstanceState, Role
from fairlead_client.resources.heatmaps import GOOD_WHEN_HIGH


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFigure:
    """One metric of the explained instance in the range; None without measurements.

    `maximum` and `mean` are computed from the values of single seconds, as in a heatmap's cell. `before` is the maximum
    in the preceding range of equal length. `others` is the median of the maximums of the role's other instances;
    `others_count` is the number of these instances, and `others_over` the number of them that exceeded the `limit`. For
    a metric whose low values are bad, `before` and `others` are means, to be compared with `mean`.
    """

    metric: str
    unit: str
    maximum: float | None
    mean: float | None
    before: float | None
    others: float | None
    others_count: int
    others_over: int
    limit: float | None

    @property
    def compared(self) -> float | None:
        """The instance's own figure with which `before` and `others` are compared."""
        return self.mean if self.metric in GOOD_WHEN_HIGH else self.maximum


LEAST_SAMPLES = 30
"""Minimum number of recorded requests for estimating a share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderShare:
    """The recorded requests of one session; `session` None means all requests without a session.

    `requests` and `prompt_tokens` count only recorded requests. `tokens_share` (0-1) is the session's share of all
    prompt tokens. It is exact if every request is recorded, else an estimate that weights each request by how rarely
    its kind is recorded, and None if too few requests are recorded for an estimate (see `Senders`). `prefill_tokens`
    are the prompt tokens that the router knew to be uncached when it chose the instance, and `prefill_share` is their
    share of all such tokens. Both are None if no score of the instance was recorded. If all requests are recorded
    (`Senders.is_whole`), `prefill_tokens` are the tokens that the engine computed, by its own count of cached tokens if
    it reports one. `is_unnamed`: the row is one session whose name is not known any more.
    """

    session: str | None
    requests: int
    prompt_tokens: int
    tokens_share: float | None
    prefill_tokens: int | None = None
    prefill_share: float | None = None
    is_unnamed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Senders:
    """The sessions whose requests went to the instance from `start` to the end of the range. They are ordered by their
    tokens, the largest number first.

    Routers record every request that ends, with a number that stands for its session. If this record covers nearly all
    `sent` requests, it is used (`is_whole`), and shares are exact sums over the recorded requests; sessions whose names
    are not known have `unnamed_share` of the prompt tokens. Otherwise sampled decisions are used. Some kinds of
    requests are always sampled and others rarely. So shares are estimated only if the sample is at least as precise as
    a sample of `LEAST_SAMPLES` requests of a single kind.

    `recorded` is the number of requests whose session is known, out of `sent` requests in all (None if that number is
    no longer stored). `sessions_seen` is the number of their sessions. `top` has at most ten sessions, and
    `top_by_prefill` the ten sessions with the most tokens to prefill. `start` is earlier than the range's start if the
    range is too short for an estimate, and later if more is recorded than one response reads.
    """

    start: datetime
    sent: int | None
    recorded: int
    sessions_seen: int
    top: list[SenderShare]
    top_by_prefill: list[SenderShare]
    is_whole: bool = False
    unnamed_share: float = 0.0

    @property
    def is_exact(self) -> bool:
        """Whether every request is recorded."""
        return self.recorded == self.sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Moves between the explained instance and another instance."""

    instance: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The moves of one kind within the range: their number, and the ten instances with the most moves. All moves are
    recorded.

    `complete` is false if there are more moves than one response counts; `total` is then a lower bound.
    """

    total: int
    complete: bool
    instances: int
    flows: list[Flow]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowChange:
    """A change that may have caused the instance's load: a revision of the pool's spec, or a change of an instance's
    state.
    """

    at: datetime
    kind: str
    words: str
    actor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadExplanation:
    """The explanation of an instance's load from `start` to `end`, both widened to whole samples.

    `causes` are sentences made from the other fields, the most important cause first; empty if nothing stands out.
    `requests` counts requests sent to the instance within the range; token counts are of requests that ended in the
    range.
    """

    pool: str
    instance: str
    state: InstanceState
    role: Role
    start: datetime
    end: datetime
    metric: str
    causes: list[str]
    figures: list[WindowFigure]
    requests: int
    prompt_tokens: int
    hit_tokens: int
    output_tokens: int
    others_requests: float | None
    """Median of the numbers of requests sent to the other instances."""
    senders: Senders
    arrived: Moved
    left: Moved
    changes: list[WindowChange]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A property of requests that is more or less frequent among the recorded requests of some instances (inside) than
    among the requests with which they are compared (outside).

    `about` is `session`, `class`, `reason` (of the routing decision), `prompt` (its length), `hits` (the part of the
    prompt that was cached), `node` or `revision` (of the pool's spec). `inside` and `outside` count recorded requests;
    the shares (0-1) weight each request by how rarely its kind is recorded, and `error` is the standard error of their
    difference.
    """

    about: str
    value: str
    inside: int
    outside: int
    inside_share: float
    outside_share: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """The differences between the recorded requests of `instances` from `start` to `end` (inside) and the requests with
    which they are compared (outside), the most certain difference first: only shares that differ by more than three
    standard errors. `enough` is False if there are too few requests inside or outside for any statement.
    """

    instances: list[str]
    start: datetime
    end: datetime
    inside: int
    outside: int
    enough: bool
    found: list[Difference]

"""The facts about a pool from which advice is computed. Rates are over `window_seconds`; ages are
seconds before now.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fairlead.instances import ACCEPTING, InstanceState, Role
from fairlead.scaling.remedies import Reach, Simulated
from fairlead.scaling.signals import PoolSignals
from fairlead.scaling.sizing import Capacity
from fairlead.scaling.specs import RatioMode, ScalingSpec
from fairlead.tables import EarlyRejectionFacts, SloFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Requests of the window. They are counted as judged and as in time, each against both targets together, against
    TTFT and against TPOT.

    `prefilled_tokens` are uncached prompt tokens. `failed` counts attempts that failed on the instance, even if another
    instance then served the request.
    """

    judged: int = 0
    in_time: int = 0
    ttft_judged: int = 0
    ttft_in_time: int = 0
    tpot_judged: int = 0
    tpot_in_time: int = 0
    requests: int = 0
    failed: int = 0
    prefilled_tokens: int = 0

    def __add__(self, other: "Served") -> "Served":
        return Served(
            judged=self.judged + other.judged,
            in_time=self.in_time + other.in_time,
            ttft_judged=self.ttft_judged + other.ttft_judged,
            ttft_in_time=self.ttft_in_time + other.ttft_in_time,
            tpot_judged=self.tpot_judged + other.tpot_judged,
            tpot_in_time=self.tpot_in_time + other.tpot_in_time,
            requests=self.requests + other.requests,
            failed=self.failed + other.failed,
            prefilled_tokens=self.prefilled_tokens + other.prefilled_tokens,
        )

    @property
    def late(self) -> int:
        """Number of requests that missed a target (TTFT or TPOT). While no router judges both targets, it counts only
        requests that missed TTFT.
        """
        return self.judged - self.in_time if self.judged else self.ttft_judged - self.ttft_in_time

    @property
    def ended(self) -> int:
        """Number of judged requests, including late requests."""
        return self.judged or self.ttft_judged

    @property
    def by_both(self) -> tuple[int, int]:
        """Number of requests that missed at least one target, and number of judged requests."""
        return self.late, self.ended

    @property
    def by_ttft(self) -> tuple[int, int]:
        """Number of late first tokens, and number of judged first tokens; both include running requests."""
        return self.ttft_judged - self.ttft_in_time, self.ttft_judged

    @property
    def by_tpot(self) -> tuple[int, int]:
        """Number of answers that missed the TPOT target, and number of judged answers."""
        return self.tpot_judged - self.tpot_in_time, self.tpot_judged


ENOUGH_MINUTES = 5
"""Minutes an instance must have been observed before advice drains it. They fill a window of five minutes, so caches
are warm and one burst does not decide.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenMinutes:
    """Minutes of the window in which an instance had requests to judge. `late` and `failing` count the minutes in which
    more first tokens were late, or more attempts failed, than allowed.
    """

    had: int = 0
    late: int = 0
    failing: int = 0

    def last(self, bad: int) -> bool:
        """Return whether the instance was observed for long enough, and the number `bad` of bad minutes is more than
        half of the observed minutes.
        """
        return self.had >= ENOUGH_MINUTES and 2 * bad > self.had


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenInstance:
    """An instance that has not ended. `load` is the larger of two ratios: predicted TTFT by its target and predicted
    TPOT by its target; None if no latency was measured. `losses` is the number of times that the instance was lost in
    the last hour. `sessions` is None if the sessions were not counted. `troubles` maps the problems that routers see
    with the engine to their durations in seconds. `stalled_ranks` are the data-parallel ranks that make no progress
    while other ranks do. `minutes` counts the good and the bad minutes of the window.
    """

    id: str
    role: Role = Role.BOTH
    state: InstanceState = InstanceState.SERVING
    reason: str = ""
    weight: float = 1.0
    served: Served = Served()
    load: float | None = None
    losses: int = 0
    sessions: int | None = None
    troubles: Mapping[str, float] = field(default_factory=dict)
    stalled_ranks: tuple[int, ...] = ()
    minutes: SeenMinutes = SeenMinutes()

    @property
    def accepting(self) -> bool:
        """Whether new requests may be placed on this instance."""
        return self.state in ACCEPTING


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRole:
    """A role, its desired number of instances, and the bounds that the spec sets."""

    role: Role
    wanted: int
    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenMoves:
    """Session moves of the last `seconds`. The fields are: the number of moves with a known outcome; the number of
    these moves that gave no earlier first token than was predicted for staying; the total seconds gained (negative:
    lost); and the seconds of the move that lost most (`worst_seconds`). `bytes_per_token` is the size of the
    transferred KV blocks by the engines' own count; None if no blocks were transferred or counted.
    """

    seconds: float = 3600.0
    known: int = 0
    lost: int = 0
    net_seconds: float = 0.0
    worst_seconds: float = 0.0
    bytes_per_token: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCondition:
    type: str
    status: str
    reason: str
    message: str
    age_seconds: float | None = None
    """Seconds since the condition's status changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenAdvice:
    """The newest recommendation of a controller for a role, and its outcome. `replicas` is the number that the
    controller would set now: the recommended number or, while something limits the change, a number between the current
    and the recommended one.
    """

    controller: str
    role: Role
    current: int
    recommended: int
    replicas: int
    verdict: str
    hold: str | None
    reason: str
    age_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenBurn:
    """An active alert on the error budget. It has the factor by which the budget burns faster than allowed over the
    long window (`seconds` long), and the requests per second above the allowed rate in that window.
    """

    name: str
    seconds: float
    burn: float
    threshold: float
    excess_per_second: float

    def within(self, seconds: float) -> "SeenBurn":
        """Return the same alert for a pool that is only `seconds` old. The excess rate is computed over the pool's age
        instead of the whole window.
        """
        known = min(self.seconds, seconds)
        return replace(self, seconds=known, excess_per_second=self.excess_per_second * self.seconds / known)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPredictions:
    """The relative error of routers' predictions of prefill times: the mean over the `samples` prefills that live
    routers observed.

    `unused_error` is the error of the figure (measured or declared) that is not in use, None if only one figure exists.
    For a policy that learns, two further fields are the mean absolute errors, in seconds, of the policy's model and of
    the router's own formula, for the same requests.
    """

    error: float | None = None
    unused_error: float | None = None
    samples: int = 0
    model_error_seconds: float | None = None
    formula_error_seconds: float | None = None
    model_chooses: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFigure:
    """A figure of a pool's engines as live routers report it: the figure in use, the observed figure and the figure
    that the spec declares. Each is the mean over the routers, weighted by their samples, in the quantity's unit; None
    if missing. `off_seconds` is the longest time for which a router has found the figure in use wrong.
    """

    quantity: str
    """A `fairlead.reports.engines.Quantity`, or the name of a quantity that only newer routers know."""
    predicted: float | None
    observed: float | None
    declared: float | None
    off_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSizing:
    """The newest simulation of remedies for the pool: requested `age_seconds` ago, about `role`.

    `is_underway` says whether the simulation still runs; `reason` says why the pool has no simulation. `estimate` is
    the number of instances computed from rates and means at the time of the request. `found` is the result of the last
    finished simulation for the current targets, `found_seconds` ago.
    """

    role: Role
    age_seconds: float
    is_underway: bool = False
    reason: str | None = None
    estimate: int | None = None
    found: Simulated | None = None
    found_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSilentRouter:
    """A router that routed for the pool and made its last report `seconds` ago, without a report of its end.

    `requests` is the number of the pool's requests that it had in progress at its last report, waiting requests
    included. `joined_since` is the number of live routers of the pool whose first report came after that report.
    """

    name: str
    seconds: float
    requests: int = 0
    joined_since: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSituation:
    """The facts about a pool from which findings are made.

    `refused` has the number of refused requests in the window for each reason; `failed` is the number of requests in
    the window that failed permanently. `signals` is None if the signals were not read, because the pool has no problem
    or no router reports. `unheard_seconds` is the age of the newest report of any router that routes for the pool, None
    if there never was a report. `unseen_seconds` is the age of the operator's newest state.
    """

    pool: str
    slo: SloFacts
    scaling: ScalingSpec
    early_rejection: EarlyRejectionFacts
    ratio_mode: RatioMode = RatioMode.FIXED
    capacity: Capacity
    roles: tuple[SeenRole, ...]
    can_scale: bool = True
    """Whether a plan can change the number of instances."""
    can_drain: bool = True
    """Whether a plan can empty an instance."""
    window_seconds: float = 300.0
    instances: tuple[SeenInstance, ...] = ()
    gone: Served = Served()
    """Requests of the window that were served by instances that no longer exist."""
    refused: Mapping[str, int] = field(default_factory=dict)
    failed: int = 0
    signals: PoolSignals | None = None
    sizing: SeenSizing | None = None
    measured: Reach | None = None
    """Requests that missed the TTFT target although they found an idle instance, according to the routing decisions
    that were kept in the window. None if there are not too many of them, or if the decisions were not read.
    """
    moves: SeenMoves = SeenMoves()
    moves_paused: bool = False
    """Whether migrations are paused already."""
    conditions: tuple[SeenCondition, ...] = ()
    advised: tuple[SeenAdvice, ...] = ()
    burns: tuple[SeenBurn, ...] = ()
    predictions: SeenPredictions = SeenPredictions()
    figures: tuple[SeenFigure, ...] = ()
    apart: Mapping[str, int] = field(default_factory=dict)
    """Number of routers that decide alone although other routers exist, by the reason
    (`fairlead.reports.shares.Apart`).
    """
    live_routers: int = 1
    silent_routers: tuple[SeenSilentRouter, ...] = ()
    """Routers that are no longer live and did not report their end. A router is listed until the API forgets it."""
    unheard_seconds: float | None = 0.0
    unseen_seconds: float = 0.0
    figures_behind_seconds: float = 0.0
    """Delay of the roll-ups in seconds, if the delay is too long for findings to use them; 0 otherwise. With a delay,
    findings ignore served and refused requests.
    """

    @property
    def served(self) -> Served:
        """The sum of the served requests of all instances."""
        return sum((one.served for one in self.instances), self.gone)

    @property
    def allowed(self) -> float:
        """The share (0-1) of requests that may miss the objectives."""
        return max(0.0, 1 - self.slo.percentile / 100)

    def per_second(self, requests: float) -> float:
        """Return a count of the window as a rate per second."""
        return requests / self.window_seconds

    def exceeds(self, missed: float, of: float) -> bool:
        """Return whether `missed` out of `of` requests is a larger share than the objectives allow."""
        return of > 0 and missed / of > self.allowed + 1e-9

    @property
    def missed(self) -> int:
        """Number of requests of the window that missed the objectives: late, refused, or failed permanently."""
        return self.served.late + sum(self.refused.values()) + self.failed

    @property
    def ended(self) -> int:
        """Number of requests of the window that have ended, with any outcome."""
        return self.served.ended + sum(self.refused.values()) + self.failed

    @property
    def out_of_slo(self) -> bool:
        """Whether a larger share of requests missed the objectives than is allowed."""
        return self.exceeds(self.missed, self.ended)

    @property
    def simulated(self) -> Simulated | None:
        """Return the simulation's results; None if there are no results for the current targets."""
        return None if self.sizing is None else self.sizing.found

    def role(self, role: Role) -> SeenRole | None:
        """Return the role of this name; None if the pool does not have it."""
        return next((one for one in self.roles if one.role is role), None)

    def accepting(self, role: Role) -> tuple[SeenInstance, ...]:
        """Return the role's instances that take requests."""
        return tuple(one for one in self.instances if one.role is role and one.accepting)

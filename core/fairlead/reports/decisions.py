"""Sampled routing decisions, and the values that the policy compared for them."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic

from fairlead.reports.generic import Pool, Time
from fairlead.reports.rejections import RejectionReason
from fairlead.tables import DEFAULT_CLASS, PoolKey
from fairlead.targets import target_of
from fairlead.values import value


class DecisionReason(StrEnum):
    """The reason why the chosen instance was chosen."""

    ONLY_INSTANCE = "only-instance"
    ROUND_ROBIN = "round-robin"
    LEAST_LOADED = "least-loaded"
    PREFIX_AFFINITY = "prefix-affinity"
    PREFIX_EQUAL = "prefix-equal"
    PREFIX_OUTWEIGHED = "prefix-outweighed"
    SLO_OVERLOADED = "slo-overloaded"
    SESSION_BOUND = "session-bound"
    SESSION_COLD = "session-cold"
    SESSION_HOT_MIGRATED = "session-hot-migrated"
    SESSION_HOST_GONE = "session-host-gone"
    SESSION_NAME_SHARED = "session-name-shared"
    HOTSPOT_MIGRATED = "hotspot-migrated"
    RANDOM = "random"
    FEWEST_REQUESTS = "fewest-requests"
    LOAD_IMBALANCED = "load-imbalanced"
    SHORTEST_TTFT = "shortest-ttft"
    BEST_SCORE = "best-score"
    PREFIX_EXPLORED = "prefix-explored"
    PREFIX_REPLICATED = "prefix-replicated"
    LEARNED_TTFT = "learned-ttft"
    DECODE_ONLY = "decode-only"
    FALLBACK = "fallback"
    NONE_CHOSEN = "none-chosen"
    """No instance could take the request."""


@value
class CandidateScore:
    """One candidate of a decision: an instance, or one of its data-parallel ranks (`fairlead.targets`).

    `total` is the value the policy compared, None when it compares nothing.
    `fairlead.routing.explanations.grounds` gives its unit and direction, and the possible `terms`.
    `predicted_ttft_seconds` is the policy's prediction, if it makes one.
    """

    instance: str
    hit_tokens: int
    miss_tokens: int
    pending_tokens: int
    predicted_ttft_seconds: float
    total: float | None
    terms: dict[str, float] = field(default_factory=dict)


@value
class Weighing:
    """The grounds of a policy's choice.

    They are the rule that decided, the chosen candidate and the next best candidate, the number of instances
    considered, the instance that another rule would have chosen (`passed_over`), and the thresholds and weights in
    force (`limits`).
    """

    rule: str
    candidates: tuple[CandidateScore, ...]
    considered: int
    passed_over: str | None = None
    limits: dict[str, float] = field(default_factory=dict)


class KeptFor(StrEnum):
    """The reason why a decision is kept. If several reasons apply, the first reason in this order is recorded."""

    ASKED = "asked"
    """The decision's client asked to keep it (`x-fairlead-explain`), or sampled its trace."""
    SESSION = "session"
    """All decisions of the decision's session are kept for some minutes."""
    REFUSED = "refused"
    FAILED = "failed"
    RETRIED = "retried"
    LATE = "late"
    """The decision's request missed the TTFT or the TPOT target."""
    MOVED = "moved"
    """The session's binding moved with the decision, or the request was re-routed."""
    SAMPLE = "sample"
    """A sample of all other requests is kept."""


class RequestOutcome(StrEnum):
    """The end of a decision's request."""

    SERVED = "served"
    REFUSED = "refused"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """The client cancelled the request."""
    DECLINED = "declined"
    """The engine responded with a status 4xx."""


@value
class Attempt:
    """A failed attempt at a request: the instance, how it failed (`failure`, as the router names it), and the seconds
    from the request's arrival to the failure.
    """

    instance: str
    failure: str
    after_seconds: float
    rank: int | None = None


HANDED_OVER = "drained"
"""Value of `Continuation.why` for an answer that moved to another instance because its instance was draining, not
because it had failed.
"""
UNREACHED = frozenset({"refused", "unreachable"})
"""Failures, as routers name them, of instances that accepted no connection and so never received the request."""


@value
class Continuation:
    """An answer that continued on another instance (the target), in the same stream, after the client had received its
    beginning from the first instance (the source). The fields include the cost of this move.

    `why` is the router's name of the source's failure, or `HANDED_OVER`. Before the move, the client had received
    `carried_tokens` of the answer; the target had to compute a predicted `computed_tokens` of prompt and answer again.
    `gap_seconds` is the time until the answer continued, None if it did not.
    """

    source: str
    target: str
    why: str
    after_seconds: float
    """Seconds after the request's arrival."""
    carried_tokens: int
    computed_tokens: int
    gap_seconds: float | None = None
    unlike: str | None = None
    """The reason why the answer after the move may differ from the answer that the source would have generated. `seed`:
    the state of its sampling is lost. `penalties` (for presence and frequency): the target counts the earlier part of
    the answer as prompt. None if no reason is known.
    """
    source_rank: int | None = None
    target_rank: int | None = None


@value
class ShadowChoice:
    """The choice of a policy that only advises (`spec.routing.shadows`), for the same request at the same instant.

    `target` is an instance or rank, named as in the candidates of the decision, None if the policy failed; `alike` says
    whether the request went to this target. The predicted TTFTs and hits of both targets are computed by the router's
    own formula, even if the policies use other formulas. No engine has confirmed the figures of `target`.
    """

    policy: str
    target: str | None
    alike: bool = False
    predicted_ttft_seconds: float = 0.0
    hit_tokens: int = 0
    chosen_ttft_seconds: float = 0.0
    chosen_hit_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledDecision(Generic[Pool, Time]):
    """A routing decision as a router reports it and as the public API shows it.

    It is kept when its request has ended, for the reason `kept`. `sample_rate` is the share (0-1] of the requests with
    that reason that are kept: 1 / `sample_rate` is the row's weight, and the weights of all rows add up to the number
    of requests.

    `queued_seconds` is the time from arrival to dispatch; for `held_seconds` of it no instance accepted requests (None
    = the router does not report it). `ttft_seconds` is the request's final TTFT, including these waits, at the instance
    `served_by`, which differs from `chosen` if the request was re-routed or moved in the meantime. `decode` is the last
    decode instance tried, if another instance did the prefill. The ranks are data-parallel ranks; None for instances
    with a single rank. `named` is the client's name for the session if several conversations share that name; `session`
    is then another of its names, or the beginning of its prompt, or None.

    For a refused request, `chosen` is the instance that would have got the request ("" if no instance could take it),
    and `rejection` is the reason of the refusal. `attempts` are the instances that failed the request, in order;
    `continuations` the moves of its answer to other instances after it had begun. `client_request` is the client's own
    id of the request (`x-request-id`), None if it gave none. `trace` is the id of the trace that the router exported,
    None if it exported none of the request. `shadows` are the choices of the policies that only advise. The targets are
    the pool's targets at the end of the request. `outcome` is None if it is unknown: from an older router, or because
    another router saw the end.

    Subclasses declare `pool` and `at` again with their types, like the subclasses of `Move`.
    """

    id: str
    pool: Pool
    request: str
    session: str | None
    at: Time
    policy: str
    table_version: int
    chosen: str
    runner_up: str | None
    reason: DecisionReason
    prompt_tokens: int
    queued_seconds: float | None = None
    held_seconds: float | None = None
    ttft_seconds: float | None = None
    sample_rate: float = 1.0
    served_by: str | None = None
    decode: str | None = None
    priority_class: str = DEFAULT_CLASS
    named: str | None = None
    chosen_rank: int | None = None
    runner_up_rank: int | None = None
    served_by_rank: int | None = None
    decode_rank: int | None = None
    kept: KeptFor = KeptFor.SAMPLE
    outcome: RequestOutcome | None = None
    rejection: RejectionReason | None = None
    tpot_seconds: float | None = None
    ttft_target_seconds: float | None = None
    tpot_target_seconds: float | None = None
    client_request: str | None = None
    attempts: tuple[Attempt, ...] = ()
    continuations: tuple[Continuation, ...] = ()
    trace: str | None = None
    shadows: tuple[ShadowChoice, ...] = ()

    @property
    def target(self) -> str:
        """The chosen instance or data-parallel rank, named as in `candidates`."""
        return target_of(self.chosen, self.chosen_rank)

    @property
    def served_target(self) -> str | None:
        """The instance or data-parallel rank that computed the prompt, named as in `candidates`; None if no instance
        did.
        """
        return None if self.served_by is None else target_of(self.served_by, self.served_by_rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord(SampledDecision[PoolKey, float]):
    """A sampled decision with the values that the policy compared."""

    pool: PoolKey
    at: float
    weighing: Weighing

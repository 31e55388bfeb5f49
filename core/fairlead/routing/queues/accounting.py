"""Accounting: each request is included in the right counters, exactly once, from its submission to its end.

A tracked request is in one stage. The stage decides which counters of the instance include its tokens. Every change of
stage is a method in this module that removes the request from the old counters and adds it to the new ones. No other
code writes the counters of an `InstanceLoad`. A request that prefills on one instance and decodes on another counts on
both from the time it is queued: on the prefill instance for its prefill, on the decode instance as *incoming*. Once its
prompt is computed, the request counts only on the decode instance.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from fairlead.kv_events.sources import NOTHING_SLOW, Source, TierCounts
from fairlead.reports.decisions import Attempt, CandidateScore, Continuation, KeptFor
from fairlead.reports.moves import CacheTransfer
from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.decode_history import DecodeMark
from fairlead.routing.contracts.faults import Fault
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.knowledge.shared_names import Hold
from fairlead.routing.queues.pending_moves import PendingMove


class Stage(Enum):
    """The stage of an accepted request."""

    HELD = "held"
    """The request is not counted at any instance, because no instance accepts requests at the moment."""
    QUEUED = "queued"
    PREFILLING = "prefilling"
    DECODING = "decoding"


HELD: Final = Stage.HELD
QUEUED: Final = Stage.QUEUED
PREFILLING: Final = Stage.PREFILLING
DECODING: Final = Stage.DECODING
"""The stages as module constants. Python 3.11 takes three times as long to look up a member of an enum, and each
request needs a dozen look-ups.
"""


@dataclass(slots=True)
class Suspicion:
    """A failure of a request on an instance, `seconds` after the request was sent there. Whether the instance or the
    request is at fault is not known at first. `counted` is True if the failure counts against the instance.
    """

    instance: str
    fault: Fault
    seconds: float
    is_probe: bool = False
    """Whether the request was the probe of the instance's circuit."""
    counted: bool = False
    excused: bool = False
    """Whether this failure is excused: another instance, which serves other requests, failed this request in the same
    way.
    """
    is_in_doubt: bool = False
    """Whether the instance had failed another request before this one and has served no request since. It is then
    unknown whether the instance serves any requests.
    """


@dataclass(slots=True)
class TrackedRequest:
    """An accepted request. `instance` is "" while the request is held; `miss_tokens` are the uncached tokens that are
    counted for the request on that instance. The fields are not keyword-only, because Python would then look up the
    default of each field again for each request.
    """

    request: RoutingRequest
    submitted_at: float
    stage: Stage = HELD
    instance: str = ""
    alternate: str | None = None
    fallbacks: tuple[str, ...] = ()
    session: str | None = None
    """The session name under which the policy binds the request; None if the policy does not bind sessions to
    instances.
    """
    holds: tuple[Hold, ...] = ()
    """The request's uses of session names. They last until the request ends."""
    decision_id: str = ""
    decided_at: float = 0.0
    """Time of the request's present decision (Unix seconds)."""
    is_elsewhere: bool = False
    """Whether another router made the request's decision and therefore records the request."""
    is_offered: bool = False
    """Whether the request is already counted in the load of the requests that arrive for the pool."""
    keeps: KeptFor | None = None
    """The reason why the decision is certain to be kept. None: the end of the request determines whether the decision
    is kept.
    """
    moved: bool = False
    """Whether the request was moved to another instance, or its session was bound to another instance together with the
    request.
    """
    attempts: tuple[Attempt, ...] = ()
    """The failed attempts, each with its instance and the kind of failure."""
    continuations: tuple[Continuation, ...] = ()
    """The continuations of the request's answer on other instances."""
    carried_tokens: int = 0
    """Number of tokens of the broken-off answer that a new instance must compute, after the prompt, to continue the
    answer.
    """
    resuming_since: float | None = None
    """Time at which the answer broke off, if it will continue at `instance`; None if no continuation is pending."""
    reason: DecisionReason = DecisionReason.FALLBACK
    compared: tuple[CandidateScore, ...] = ()
    """The candidates that the decision compared; empty unless the request asks for them (`scored`)."""
    learn: Callable[[str, float], None] | None = None
    """The policy's callback for the first token; see `Decision.learn`."""
    hit_tokens: int = 0
    miss_tokens: int = 0
    slow_tokens: TierCounts = NOTHING_SLOW
    """The cached prompt tokens that the request's instance must load, for each tier outside the GPU."""
    loading_seconds: float = 0.0
    """Predicted seconds to load the tokens in `slow_tokens`."""
    prefill_microseconds: int = 0
    """Predicted time of loading and prefill on the request's instance, without waiting."""
    answer_microseconds: int = 0
    """Expected work of the answer, in microseconds of an instance's time; 0 unless tenants take turns."""
    continues: bool = False
    """Whether the request continues a task in progress; always False unless the pool sends turns of tasks in progress
    first.
    """
    kept_as: str | None = None
    """The name of the session whose context the request extends; None unless the policy counts the eviction of cached
    contexts as a cost (`knowledge.kept_contexts`).
    """
    late: bool = False
    """Whether the request is queued and would miss its TTFT target even if sent at once."""
    decode: str | None = None
    """The instance on which the request will decode, if `instance` only prefills; None otherwise."""
    expected: tuple[Source, str] | None = None
    """The instance that is assumed to hold the request's blocks once they are computed, and the id of this assumption;
    see `scheduling.expecting`.
    """
    transfer_from: str | None = None
    transfer_tokens: int = 0
    """Hit tokens that `instance` will fetch from `transfer_from`."""
    asked_of: str | None = None
    """The instance that was asked to transfer its KV blocks of the prompt to the request's instance."""
    transfer: CacheTransfer | None = None
    """The result of the attempt to transfer KV blocks for the request."""
    waiting_since: float = 0.0
    held_seconds: float = 0.0
    """Seconds during which no instance accepted the request."""
    dispatched_at: float | None = None
    queued_seconds: float | None = None
    """Seconds from arrival until the request was first sent. Time lost at engines that failed is not included."""
    by_proxy: bool = False
    """Whether a proxy forwarded the request to its present instance at an unknown time. `dispatched_at` is then the
    time at which the request was sent to the previous instance.
    """
    prefilled_at: float | None = None
    """Time at which the prefill instance had computed the prompt, if another instance decodes; None if one instance
    does both.
    """
    first_token_at: float | None = None
    decode_began: DecodeMark | None = None
    """The totals of the instance's decodes and prefills when this request began to decode, or when its running answer
    was last measured. None unless the request is used for measuring decode steps.
    """
    tokens_before: int = 1
    """Output tokens that had arrived when `decode_began` was set."""
    answer_began: DecodeMark | None = None
    """The totals of the instance's decodes and prefills when the request was sent; None if its first token can be
    observed.
    """
    generated_tokens: int = 0
    """Number of output tokens that are known to have arrived."""
    tried: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()
    """Instances, chosen for the prefill or the decode, that could not be reached; a retry does not choose them again.
    """
    suspicions: tuple[Suspicion, ...] = ()
    """Failures of the request on instances to which it was sent. `scheduling.circuits` decides whether the instance or
    the request was at fault.
    """
    is_at_fault: bool = False
    """Whether the request failed in the same way on two instances against which no other failure counts."""
    move: PendingMove | None = None
    """The move of the request's session that takes effect when the request is sent; None if there is no such move."""
    left: str = ""
    """The instance that the request had to leave, until another instance is chosen; "" if the request had to leave
    none.
    """
    migrations: list[str] = field(default_factory=list)
    """Ids of the session migrations that this request carries out. The request's outcome is also recorded as the
    outcome of these migrations.
    """
    reroutes: list[str] = field(default_factory=list)
    """Ids of the request's re-routes."""

    @property
    def decodes_on(self) -> str:
        """The instance on which the request decodes: `decode` or, if `decode` is None, the instance that prefills the
        request.
        """
        return self.instance if self.decode is None else self.decode

    def took_its_prefill(self, now: float) -> bool:
        """Return whether the prefill took at least half of its predicted time. A shorter prefill means that the prompt
        was found in a cache.
        """
        return self.dispatched_at is not None and now - self.dispatched_at >= self.prefill_microseconds / 2e6

    @property
    def is_hopeless(self) -> bool:
        """Whether the request is expected to fail on other instances too. The loss of an engine is not sufficient
        evidence, because the engine may have been lost for another reason, such as its node.
        """
        return self.is_at_fault and self.suspicions[-1].fault is not Fault.LOST

    @property
    def fails_everywhere(self) -> bool:
        """Whether the request would fail again if its client sent it again: the request is hopeless, and no instance
        that failed it is in doubt (`Suspicion.is_in_doubt`). While all instances fail all requests, all are in doubt,
        so the result is False.
        """
        return self.is_hopeless and not any(one.is_in_doubt for one in self.suspicions)

    @property
    def input_tokens(self) -> int:
        """Number of tokens that the instance must compute before it can generate a token: the prompt, and the answer so
        far.
        """
        return self.request.prompt_tokens + self.carried_tokens

    @property
    def work_microseconds(self) -> int:
        """Work of the request that is counted against its tenant's fair share, in microseconds."""
        return self.prefill_microseconds + self.answer_microseconds


def no_time(prompt_tokens: int, hit_tokens: int) -> float:
    """Return 0 seconds as the estimate of a prefill. For callers that count only requests and tokens."""
    return 0.0


class Accounting:
    """The counters of all instances of a pool, and the requests from which they are computed.

    `prefill_seconds` estimates the seconds of a prefill from (prompt tokens, hit tokens).
    """

    def __init__(self, prefill_seconds: Callable[[int, int], float] = no_time) -> None:
        self.loads: dict[str, InstanceLoad] = {}
        self.requests: dict[str, TrackedRequest] = {}
        self.changed: set[str] = set()
        """Instances whose counters changed. The view, which caches the counters, reads them again and then empties this
        set.
        """
        self.prefill_seconds = prefill_seconds
        self.pending_microseconds = 0
        """Predicted microseconds of pending prefills, summed over all instances."""
        self.late_microseconds = 0

    @property
    def wait_seconds(self) -> float:
        """Predicted seconds of all pending prefills of the pool, except the prefills of late requests."""
        return (self.pending_microseconds - self.late_microseconds) / 1e6

    def admit(self, tracked: TrackedRequest) -> None:
        """Accept a request, which is not counted at any instance yet. Raises ValueError when its id is already in
        flight.
        """
        if tracked.request.id in self.requests:
            raise ValueError(f"request {tracked.request.id!r} is already in flight")
        self.requests[tracked.request.id] = tracked

    def enqueue(self, tracked: TrackedRequest, instance: str, hit_tokens: int, now: float, decode: str | None = None) -> None:
        """HELD → QUEUED at `instance`: count the request's uncached tokens there, and count it as incoming at `decode`
        if that is another instance.
        """
        assert tracked.stage is HELD
        load = self.loads[instance]
        tracked.stage = QUEUED
        tracked.instance = instance
        self._estimate(tracked, hit_tokens)
        load.waiting += 1
        self._add_pending(load, tracked.miss_tokens, tracked.prefill_microseconds, now)
        if decode is not None:
            self._expect(tracked, decode)

    def dispatch(self, tracked: TrackedRequest, hit_tokens: int, now: float) -> None:
        """QUEUED → PREFILLING at the request's instance. The request's cache hit is estimated again."""
        assert tracked.stage is QUEUED
        load = self.loads[tracked.instance]
        self.estimate_again(tracked, hit_tokens, now)
        tracked.stage = PREFILLING
        if not tracked.by_proxy or tracked.dispatched_at is None:
            tracked.dispatched_at = now
        if tracked.queued_seconds is None:
            tracked.queued_seconds = now - tracked.submitted_at
        self.changed.add(tracked.instance)
        load.waiting -= 1
        load.prefilling += 1
        load.dispatched_prefill_tokens += tracked.miss_tokens
        load.in_flight[tracked.request.id] = (tracked.dispatched_at, tracked.prefill_microseconds)
        if tracked.transfer_from is not None:
            self.loads[tracked.transfer_from].transfers_out += 1

    def estimate_again(self, tracked: TrackedRequest, hit_tokens: int, now: float) -> None:
        """Predict the prefill of a queued request again, using the request's present cache hit. Also decide again
        whether the request can meet its TTFT target.
        """
        assert tracked.stage is QUEUED
        if tracked.late:
            self.forget_late(tracked)
        tokens, microseconds = tracked.miss_tokens, tracked.prefill_microseconds
        self._estimate(tracked, hit_tokens)
        if tracked.miss_tokens != tokens or tracked.prefill_microseconds != microseconds:
            load = self.loads[tracked.instance]
            self._add_pending(load, tracked.miss_tokens - tokens, tracked.prefill_microseconds - microseconds, now)

    def predict_again(self, tracked: TrackedRequest, now: float) -> None:
        """Predict a prefill in progress again, using the present speed."""
        assert tracked.stage is PREFILLING
        microseconds = tracked.prefill_microseconds
        self._estimate(tracked, tracked.hit_tokens)
        load = self.loads[tracked.instance]
        load.in_flight[tracked.request.id] = (load.in_flight[tracked.request.id][0], tracked.prefill_microseconds)
        self._add_pending(load, 0, tracked.prefill_microseconds - microseconds, now)

    def find_late(self, tracked: TrackedRequest) -> None:
        """Mark a queued request as late: it can no longer meet its TTFT target."""
        assert tracked.stage is QUEUED
        if not tracked.late:
            tracked.late = True
            self._count_late(tracked, tracked.prefill_microseconds)

    def forget_late(self, tracked: TrackedRequest) -> None:
        """Remove the mark of a request as late. Whether the request can meet its TTFT target is then decided again."""
        if tracked.late:
            tracked.late = False
            self._count_late(tracked, -tracked.prefill_microseconds)

    def redirect(self, tracked: TrackedRequest, decode: str | None) -> None:
        """Record that a request will decode on another instance than planned. Call this only before the request's
        prompt is computed.
        """
        self._unexpect(tracked)
        self._expect(tracked, decode)

    def transferred(self, tracked: TrackedRequest) -> None:
        """Record that a request no longer fetches KV blocks, because they have arrived or because the transfer was
        given up.
        """
        source = tracked.transfer_from
        if source is not None and tracked.stage is PREFILLING:
            self.loads[source].transfers_out -= 1
        tracked.transfer_from = None

    def not_fetched(self, tracked: TrackedRequest, hit_tokens: int, now: float) -> None:
        """Record that the KV blocks for a prefill in progress did not arrive, so that its instance computes the whole
        prompt except `hit_tokens` tokens.
        """
        assert tracked.stage is PREFILLING
        load, tokens, microseconds = self.loads[tracked.instance], tracked.miss_tokens, tracked.prefill_microseconds
        tracked.transfer_tokens = 0
        self._estimate(tracked, hit_tokens)
        load.in_flight[tracked.request.id] = (load.in_flight[tracked.request.id][0], tracked.prefill_microseconds)
        load.dispatched_prefill_tokens += tracked.miss_tokens - tokens
        self._add_pending(load, tracked.miss_tokens - tokens, tracked.prefill_microseconds - microseconds, now)

    def prefilled(self, tracked: TrackedRequest, now: float) -> None:
        """PREFILLING → DECODING: the prompt is computed, and the request continues on its decode instance."""
        assert tracked.stage is PREFILLING
        load = self.loads[tracked.instance]
        self._leave_prefill(load, tracked)
        if tracked.prefill_microseconds > load.longest_prefilled_microseconds and tracked.took_its_prefill(now):
            load.longest_prefilled_microseconds = tracked.prefill_microseconds
        load.last_first_token_at = now
        decode = tracked.decode
        if decode is not None:
            self._unexpect(tracked)
            tracked.decode = decode
        tracked.stage = DECODING
        decodes_on = tracked.instance if decode is None else decode
        decoding = self.loads[decodes_on]
        decoding.decoding += 1
        decoding.decode_tokens += tracked.request.prompt_tokens
        self.changed.add(decodes_on)

    def unplace(self, tracked: TrackedRequest) -> None:
        """Any stage → HELD: remove the request from every counter, but keep tracking it."""
        if tracked.stage is HELD:
            return
        if tracked.stage is DECODING:
            decodes_on = tracked.decodes_on
            decoding = self.loads[decodes_on]
            decoding.decoding -= 1
            decoding.decode_tokens -= tracked.request.prompt_tokens
            self.changed.add(decodes_on)
            tracked.decode = None
        else:
            load = self.loads[tracked.instance]
            if tracked.stage is QUEUED:
                load.waiting -= 1
                self.forget_late(tracked)
                self._remove_pending(load, tracked)
            else:
                self._leave_prefill(load, tracked)
            self._unexpect(tracked)
        tracked.stage = HELD
        tracked.instance = ""

    def end(self, tracked: TrackedRequest) -> None:
        """Remove a request that ended from every counter, and forget it."""
        self.unplace(tracked)
        del self.requests[tracked.request.id]

    def in_flight(self, instance: str) -> int:
        """Return the number of requests that are queued for, dispatched to or incoming at the instance."""
        load = self.loads[instance]
        return load.waiting + load.prefilling + load.decoding + load.incoming

    def _estimate(self, tracked: TrackedRequest, hit_tokens: int) -> None:
        tokens = tracked.request.prompt_tokens + tracked.carried_tokens
        missing = tokens - hit_tokens
        tracked.hit_tokens = hit_tokens
        tracked.miss_tokens = missing if missing > 1 else 1
        tracked.prefill_microseconds = int(1e6 * (self.prefill_seconds(tokens, hit_tokens) + tracked.loading_seconds))

    def _count_late(self, tracked: TrackedRequest, microseconds: int) -> None:
        self.loads[tracked.instance].late_prefill_microseconds += microseconds
        self.late_microseconds += microseconds
        self.changed.add(tracked.instance)

    def _add_pending(self, load: InstanceLoad, tokens: int, microseconds: int, now: float) -> None:
        load.pending_prefill_tokens += tokens
        load.pending_prefill_microseconds += microseconds
        self.pending_microseconds += microseconds
        if load.prefilling_since is None:
            load.prefilling_since = now
        self.changed.add(load.entry.id)

    def _remove_pending(self, load: InstanceLoad, tracked: TrackedRequest) -> None:
        load.pending_prefill_tokens -= tracked.miss_tokens
        load.pending_prefill_microseconds -= tracked.prefill_microseconds
        self.pending_microseconds -= tracked.prefill_microseconds
        if not load.pending_prefill_tokens:
            load.prefilling_since = None
        self.changed.add(load.entry.id)

    def _leave_prefill(self, load: InstanceLoad, tracked: TrackedRequest) -> None:
        load.prefilling -= 1
        del load.in_flight[tracked.request.id]
        load.dispatched_prefill_tokens -= tracked.miss_tokens
        self._remove_pending(load, tracked)
        if tracked.transfer_from is not None:
            self.transferred(tracked)

    def _expect(self, tracked: TrackedRequest, decode: str | None) -> None:
        tracked.decode = None if decode == tracked.instance else decode
        if tracked.decode is not None:
            load = self.loads[tracked.decode]
            load.incoming += 1
            load.incoming_tokens += tracked.request.prompt_tokens

    def _unexpect(self, tracked: TrackedRequest) -> None:
        if tracked.decode is not None:
            load = self.loads[tracked.decode]
            load.incoming -= 1
            load.incoming_tokens -= tracked.request.prompt_tokens
            tracked.decode = None


def discrepancies(accounting: Accounting) -> tuple[str, ...]:
    """Compare each instance's counters with a new count of the tracked requests. Return the differences in words; empty
    if all counters are right.
    """
    found: list[str] = []
    for instance, load in sorted(accounting.loads.items()):
        requests = accounting.requests.values()
        queued = [tracked for tracked in requests if tracked.instance == instance and tracked.stage is QUEUED]
        prefilling = [tracked for tracked in requests if tracked.instance == instance and tracked.stage is PREFILLING]
        decoding = [tracked for tracked in requests if tracked.stage is DECODING and tracked.decodes_on == instance]
        incoming = [tracked for tracked in requests if tracked.stage is not DECODING and tracked.decode == instance]
        dispatched = sum(tracked.miss_tokens for tracked in prefilling)
        counted = {
            "pending_prefill_tokens": dispatched + sum(tracked.miss_tokens for tracked in queued),
            "pending_prefill_microseconds": sum(tracked.prefill_microseconds for tracked in (*queued, *prefilling)),
            "late_prefill_microseconds": sum(tracked.prefill_microseconds for tracked in queued if tracked.late),
            "dispatched_prefill_tokens": dispatched,
            "in_flight": {tracked.request.id: (tracked.dispatched_at, tracked.prefill_microseconds) for tracked in prefilling},
            "waiting": len(queued),
            "prefilling": len(prefilling),
            "decoding": len(decoding),
            "decode_tokens": sum(tracked.request.prompt_tokens for tracked in decoding),
            "incoming": len(incoming),
            "incoming_tokens": sum(tracked.request.prompt_tokens for tracked in incoming),
            "transfers_out": sum(tracked.stage is PREFILLING and tracked.transfer_from == instance for tracked in requests),
        }
        wrong = [f"{name} is {getattr(load, name)}, not {value}" for name, value in counted.items() if getattr(load, name) != value]
        if (load.prefilling_since is None) != (load.pending_prefill_tokens == 0):
            wrong.append(f"prefilling_since is {load.prefilling_since} with {load.pending_prefill_tokens} tokens pending")
        if wrong:
            found.append(f"{instance}: {'; '.join(wrong)}")
    return tuple(found)

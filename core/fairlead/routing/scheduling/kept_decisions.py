"""Kept decisions: which decisions are recorded, and with which weight (tail-based sampling, as in tracing systems).

Whether a decision is kept is determined at the end of its request: always if the request was late, refused, moved,
failed or retried, and otherwise for a random share of requests. The candidates that a policy compared can be noted only
while it decides, and noting them costs as much as deciding. So candidates are noted only for decisions in the random
share, for decisions that are certain or likely to be kept, and for a limited number of other decisions per second. In a
pool with little traffic, this limit covers all decisions. A decision that is kept without its candidates says so.

Each recorded decision's weight (1 / `sample_rate`) is the number of requests that it represents. It is computed per
reason for keeping decisions: the number of requests that ended since the last call of `take`, divided by the number of
recorded decisions. So the weights add up to the number of requests, even if more requests are late than may be
recorded.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from fairlead.gateway_keys import RateLimit
from fairlead.reports.decisions import DecisionReason, DecisionRecord, KeptFor, RequestOutcome, ShadowChoice, Weighing
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.decisions import Decision
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.traces import TracedRequest
from fairlead.routing.contracts.weighing import NOBODY, NOT_WEIGHED
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.tables import PoolKey, RoutingTable
from fairlead.targets import instance_of, rank_of, target_of

# Under plain names: Python 3.11 takes long to look up a member of an enum.
_REFUSED: Final = RequestOutcome.REFUSED
_FAILED: Final = RequestOutcome.FAILED
_SAMPLE: Final = KeptFor.SAMPLE
_SERVED: Final = RequestOutcome.SERVED

KEPT_PER_MINUTE = 600.0
"""Maximum number of decisions per pool and minute that a router keeps because of how their requests ended."""
ASKED_PER_MINUTE = 600.0
"""Maximum number of decisions per minute that a router keeps because a client or a person requested it."""
WEIGHED_PER_MINUTE = 600.0
"""Maximum number of decisions per minute whose candidates are recorded although the decisions are unlikely to be kept.
"""
AT_RISK_PER_MINUTE = 1800.0
"""Maximum number of decisions per minute whose candidates are recorded because the request may be late, or arrives soon
after a late or failed request.
"""
TROUBLED_SECONDS = 10.0
"""Seconds after a late or failed request during which decisions of all other requests count as likely to be kept."""
MOST_NOTED = 10_000
"""Maximum number of requests in flight whose decisions' candidates are recorded at the same time."""


class End(NamedTuple):
    """The end of a request, with its known latencies. `outcome` is None if only another router knows the outcome."""

    outcome: RequestOutcome | None = None
    rejection: RejectionReason | None = None
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None


class Noted(NamedTuple):
    """A decision with its candidates, before it is certain whether the decision is kept. Most noted decisions are not
    kept; the full record is built only for kept decisions.
    """

    request: RoutingRequest
    session: str | None
    at: float
    table: RoutingTable
    chosen: str
    others: tuple[str | None, ...]
    """Instances, other than the candidates, to which the request might have been sent."""
    reason: DecisionReason
    weighing: Weighing
    shadows: tuple[ShadowChoice, ...] = ()

    @property
    def runner_up(self) -> str | None:
        """The first instance, other than the chosen one, among the compared candidates and then the fallbacks; None if
        there is no such instance.
        """
        compared = (*(one.instance for one in self.weighing.candidates), *self.others)
        return next((one for one in compared if one is not None and one != self.chosen), None)


class KeptDecisions:
    """The decisions of one pool that this router keeps. At most `limit` kept decisions wait for a call of `take`. If
    `wanted` is False, no decision is kept.
    """

    def __init__(self, pool: PoolKey, sample_rate: float, limit: int, *, wanted: bool = True) -> None:
        self._pool = pool
        self._sample_below = f"{int(sample_rate * 0x1_0000_0000):09x}"
        self._limit = limit
        self._wanted = wanted
        self._noted: dict[str, Noted] = {}
        self._kept: list[DecisionRecord] = []
        self._traced: list[TracedRequest] = []
        self._ended: Counter[KeptFor] = Counter()
        """For each reason to keep decisions, the number of requests that ended since `take` last returned a decision
        kept for this reason.
        """
        self._always = RateLimit(KEPT_PER_MINUTE, 0.0)
        self._asked = RateLimit(ASKED_PER_MINUTE, 0.0)
        self._weighed = RateLimit(WEIGHED_PER_MINUTE, 0.0)
        self._weighs_again_at = 0.0
        """Time until which the limit `WEIGHED_PER_MINUTE` is used up. Until this time the limit is not queried, because
        the query would cost time for nearly every request of a busy pool.
        """
        self._at_risk = RateLimit(AT_RISK_PER_MINUTE, 0.0)
        self._troubled_until = 0.0
        self.sessions: Mapping[str, float] = {}
        """The sessions whose decisions are all kept, each with the time until which this applies (Unix seconds)."""
        self._unkept = 0

    def is_sampled(self, decision_id: str) -> bool:
        """Return whether the decision with this id belongs to the random sample. The result depends only on the id."""
        return "0" + decision_id[:8] < self._sample_below

    def is_certain(self, tracked: TrackedRequest) -> bool:
        """Return whether it is already certain that the decision will be kept."""
        return self._wanted and (tracked.keeps is not None or self.is_sampled(tracked.decision_id))

    def reserve(self, tracked: TrackedRequest, session: str | None, now: float) -> None:
        """Mark the decision as certain to be kept if its client requested this, or if a person requested all decisions
        of its session.
        """
        request = tracked.request
        explain = request.explain or (request.trace is not None and request.trace.asks)
        if not (explain or self.sessions) or tracked.keeps is not None or not self._wanted:
            return
        if (explain or self.sessions.get(session or "", 0.0) > now) and not self._asked.take_if_any(1, now):
            tracked.keeps = KeptFor.ASKED if explain else KeptFor.SESSION

    def notes(self, tracked: TrackedRequest, now: float, *, moves: bool, at_risk: bool) -> bool:
        """Return whether to note the candidates that the policy compares for this request."""
        if not self._wanted or len(self._noted) >= MOST_NOTED:
            return False
        if moves or tracked.keeps is not None or self.is_sampled(tracked.decision_id):
            return True
        if now >= self._weighs_again_at:
            seconds = self._weighed.take_if_any(1, now)
            if not seconds:
                return True
            self._weighs_again_at = now + seconds
        return (at_risk or now < self._troubled_until) and not self._at_risk.take_if_any(1, now)

    def note(
        self,
        tracked: TrackedRequest,
        decision: Decision,
        weighing: Weighing,
        table: RoutingTable,
        now: float,
        shadows: tuple[ShadowChoice, ...] = (),
    ) -> None:
        """Record the candidates that were compared for the decision of `tracked`, whose id, instance and reason are
        set.
        """
        chosen = tracked.instance or decision.instance
        others = (decision.alternate, *decision.fallbacks)
        self._noted[tracked.request.id] = _noted(tracked, table, now, chosen, weighing, others, shadows)

    def forget(self, request_id: str) -> None:
        """Forget the noted decision of this request, because the request gets another decision or another router
        decides.
        """
        self._noted.pop(request_id, None)

    def end(self, tracked: TrackedRequest, end: End, table: RoutingTable, now: float) -> None:
        """Keep or drop the decision of a request that has ended."""
        noted = self._noted.pop(tracked.request.id, None)
        if not self._wanted or tracked.is_elsewhere or not tracked.decision_id or tracked.request.warms:
            return
        why = _why_kept(tracked, end, table)
        self._ended[why] += 1
        if why is _SAMPLE:
            if not self.is_sampled(tracked.decision_id):
                return
        elif why is not tracked.keeps:
            self._troubled_until = now + TROUBLED_SECONDS
            if not (noted and noted.shadows) and self._always.take_if_any(1, now):  # shadows' answers are a sample of all
                self._unkept += 1
                return
        if len(self._kept) >= self._limit:
            self._unkept += 1
            return
        if noted is None:
            chosen = next(iter(tracked.tried), tracked.instance)
            weighing = Weighing(rule=NOT_WEIGHED if chosen else NOBODY, candidates=(), considered=0)
            noted = _noted(tracked, table, tracked.decided_at, chosen, weighing)
        self._kept.append(self._record(noted, tracked, end, table, why))
        if tracked.request.trace is not None:
            self._traced.append(_traced(tracked, now))

    def take(self) -> tuple[DecisionRecord, ...]:
        """Return the decisions that were kept since the last call, with their weights."""
        taken, self._kept = self._kept, []
        counted = Counter(record.kept for record in taken)
        rates = {why: kept / self._ended.pop(why) for why, kept in counted.items()}
        return tuple(replace(record, sample_rate=rates[record.kept]) for record in taken)

    def take_traced(self) -> tuple[TracedRequest, ...]:
        """Return the traced requests whose decisions were kept after the last call."""
        traced, self._traced = self._traced, []
        return tuple(traced)

    def take_unkept(self) -> int:
        """Return the number of decisions since the last call that were not kept because a limit was reached, although
        the outcomes of their requests were reasons to keep them.
        """
        unkept, self._unkept = self._unkept, 0
        return unkept

    def _record(self, noted: Noted, tracked: TrackedRequest, end: End, table: RoutingTable, why: KeptFor) -> DecisionRecord:
        request, chosen, runner_up = noted.request, noted.chosen, noted.runner_up
        served = tracked.instance if end.ttft_seconds is not None or end.outcome is _SERVED else ""
        given = next((one for one in tracked.continuations if one.carried_tokens), None)
        if given is not None:  # the first token came from the instance where the answer first broke off
            served = target_of(given.source, given.source_rank)
        return DecisionRecord(
            id=tracked.decision_id,
            pool=self._pool,
            request=request.id,
            client_request=request.client_id or None,
            session=tracked.session or noted.session,
            at=noted.at,
            policy=noted.table.routing.policy,
            table_version=noted.table.version,
            chosen=instance_of(chosen),
            chosen_rank=rank_of(chosen),
            runner_up=None if runner_up is None else instance_of(runner_up),
            runner_up_rank=None if runner_up is None else rank_of(runner_up),
            reason=noted.reason if chosen else DecisionReason.NONE_CHOSEN,
            prompt_tokens=request.prompt_tokens,
            weighing=noted.weighing,
            priority_class=request.priority_class,
            named=request.named,
            held_seconds=tracked.held_seconds,
            queued_seconds=tracked.queued_seconds,
            ttft_seconds=end.ttft_seconds,
            tpot_seconds=end.tpot_seconds,
            ttft_target_seconds=table.slo.ttft_seconds,
            tpot_target_seconds=table.slo.tpot_seconds,
            served_by=instance_of(served) if served else None,
            served_by_rank=rank_of(served) if served else None,
            decode=None if tracked.decode is None else instance_of(tracked.decode),
            decode_rank=None if tracked.decode is None else rank_of(tracked.decode),
            kept=why,
            outcome=end.outcome,
            rejection=end.rejection,
            attempts=tracked.attempts,
            continuations=tracked.continuations,
            trace=None if request.trace is None else request.trace.trace_id,
            shadows=noted.shadows,
        )


def _noted(
    tracked: TrackedRequest,
    table: RoutingTable,
    at: float,
    chosen: str,
    weighing: Weighing,
    others: tuple[str | None, ...] = (),
    shadows: tuple[ShadowChoice, ...] = (),
) -> Noted:
    session = tracked.session or tracked.request.session
    return Noted(tracked.request, session, at, table, chosen, others, tracked.reason, weighing, shadows)


def _traced(tracked: TrackedRequest, now: float) -> TracedRequest:
    return TracedRequest(
        decision=tracked.decision_id,
        request=tracked.request,
        ended_at=now,
        output_tokens=tracked.generated_tokens,
        first_token_at=tracked.first_token_at,
        prefilled_at=tracked.prefilled_at,
    )


def _why_kept(tracked: TrackedRequest, end: End, table: RoutingTable) -> KeptFor:
    if tracked.keeps is not None:
        return tracked.keeps
    if end.outcome is _REFUSED:
        return KeptFor.REFUSED
    if end.outcome is _FAILED:
        return KeptFor.FAILED
    if tracked.attempts:
        return KeptFor.RETRIED
    if (end.ttft_seconds or 0.0) >= table.slo.ttft_seconds or (end.tpot_seconds or 0.0) >= table.slo.tpot_seconds:
        return KeptFor.LATE
    return KeptFor.MOVED if tracked.moved or tracked.continuations else _SAMPLE

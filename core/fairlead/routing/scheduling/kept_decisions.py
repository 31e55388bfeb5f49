"""Kept decisions: which are recorded, and with which weight (tail-based sampling, as tracing systems do it).

Whether a decision is kept shows when its request ends: one that was late, refused, moved, failed or retried is always
kept, of the others a share. What a policy compared can only be noted while it decides, and noting it costs as much as
deciding. So it is noted for the sample, for what is sure to be kept, for what looks as if it might be, and beside these
for some decisions a second, which are all of a pool with little traffic. A decision that is kept without says so.

Each row's weight (1 / `sample_rate`) is the number of requests for which it stands: of those that ended since the last
take and are kept for the same reason, by how many rows were kept. So the weights add up to the number of requests, also
where more are late than may be written.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from fairlead.gateway_keys import RateLimit
from fairlead.reports.decisions import DecisionReason, DecisionRecord, KeptFor, RequestOutcome, Weighing
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.decisions import Decision
from fairlead.routing.contracts.weighing import NOBODY, NOT_WEIGHED
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.tables import PoolKey, RoutingTable
from fairlead.targets import instance_of, rank_of, target_of

KEPT_PER_MINUTE = 600.0
"""Most decisions of one pool that a router keeps because of how their requests ended."""
ASKED_PER_MINUTE = 600.0
"""Most that it keeps because they were asked for."""
WEIGHED_PER_MINUTE = 600.0
"""Decisions whose candidates are noted though nothing speaks for keeping them."""
AT_RISK_PER_MINUTE = 1800.0
"""Those beyond whose request may be late, or that come soon after one that was, or that failed."""
TROUBLED_SECONDS = 10.0
"""For so long after a request that is always kept, others are taken to be at risk too."""
MOST_NOTED = 10_000
"""Decisions of requests in flight whose candidates are noted at a time."""


class End(NamedTuple):
    """How a request ended; the latencies as far as they are known. `outcome` None: another router has its end."""

    outcome: RequestOutcome | None = None
    rejection: RejectionReason | None = None
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None


class KeptDecisions:
    """Decisions of one pool in one router. `limit` bounds those waiting to be taken. If not `wanted`, none is kept."""

    def __init__(self, pool: PoolKey, sample_rate: float, limit: int, *, wanted: bool = True) -> None:
        self._pool = pool
        self._sample_below = f"{int(sample_rate * 0x1_0000_0000):09x}"
        self._limit = limit
        self._wanted = wanted
        self._noted: dict[str, DecisionRecord] = {}
        self._kept: list[DecisionRecord] = []
        self._ended: Counter[KeptFor] = Counter()
        """Requests since the last row of their reason was taken."""
        self._always = RateLimit(KEPT_PER_MINUTE, 0.0)
        self._asked = RateLimit(ASKED_PER_MINUTE, 0.0)
        self._weighed = RateLimit(WEIGHED_PER_MINUTE, 0.0)
        self._at_risk = RateLimit(AT_RISK_PER_MINUTE, 0.0)
        self._troubled_until = 0.0
        self.sessions: Mapping[str, float] = {}
        """Sessions all of whose decisions are kept, and until when (Unix seconds)."""
        self._unkept = 0

    def is_sampled(self, decision_id: str) -> bool:
        """Whether the decision of this id belongs to the sample; the same on every look."""
        return "0" + decision_id[:8] < self._sample_below

    def reserve(self, tracked: TrackedRequest, session: str | None, now: float) -> None:
        """Settle whether the decision is kept because its client asks for that, or for its session."""
        explain = tracked.request.explain
        if tracked.keeps is not None or not self._wanted or not (explain or self.sessions):
            return
        if (explain or self.sessions.get(session or "", 0.0) > now) and not self._asked.take_if_any(1, now):
            tracked.keeps = KeptFor.ASKED if explain else KeptFor.SESSION

    def notes(self, tracked: TrackedRequest, now: float, *, moves: bool, at_risk: bool) -> bool:
        """Whether to note what the policy compares for this request."""
        if not self._wanted or len(self._noted) >= MOST_NOTED:
            return False
        if moves or tracked.keeps is not None or self.is_sampled(tracked.decision_id) or not self._weighed.take_if_any(1, now):
            return True
        return (at_risk or now < self._troubled_until) and not self._at_risk.take_if_any(1, now)

    def note(self, tracked: TrackedRequest, decision: Decision, weighing: Weighing, table: RoutingTable, now: float) -> None:
        """What was compared for the decision that `tracked` has got (its id, instance and reason are set)."""
        chosen = tracked.instance or decision.instance
        others = (*(one.instance for one in weighing.candidates), decision.alternate, *decision.fallbacks)
        runner_up = next((one for one in others if one is not None and one != chosen), None)
        self._noted[tracked.request.id] = replace(
            self._plain(tracked, table, now, chosen),
            runner_up=None if runner_up is None else instance_of(runner_up),
            runner_up_rank=None if runner_up is None else rank_of(runner_up),
            weighing=weighing,
        )

    def forget(self, request_id: str) -> None:
        """The request gets another decision, or another router decides."""
        self._noted.pop(request_id, None)

    def end(self, tracked: TrackedRequest, end: End, table: RoutingTable, now: float) -> None:
        """The request has ended: keep its decision or not."""
        noted = self._noted.pop(tracked.request.id, None)
        if not self._wanted or tracked.is_elsewhere or not tracked.decision_id:
            return
        why = _why_kept(tracked, end, table)
        self._ended[why] += 1
        if why is KeptFor.SAMPLE:
            if not self.is_sampled(tracked.decision_id):
                return
        elif why is not tracked.keeps:
            self._troubled_until = now + TROUBLED_SECONDS
            if self._always.take_if_any(1, now):
                self._unkept += 1
                return
        if len(self._kept) >= self._limit:
            self._unkept += 1
            return
        if noted is None:
            noted = self._plain(tracked, table, tracked.decided_at, next(iter(tracked.tried), tracked.instance))
        self._kept.append(_ended(noted, tracked, end, table, why))

    def take(self) -> tuple[DecisionRecord, ...]:
        """Decisions kept since the last take, with their weights."""
        taken, self._kept = self._kept, []
        counted = Counter(record.kept for record in taken)
        rates = {why: kept / self._ended.pop(why) for why, kept in counted.items()}
        return tuple(replace(record, sample_rate=rates[record.kept]) for record in taken)

    def take_unkept(self) -> int:
        """Decisions not kept since the last take though their requests ended in a way for which they are."""
        unkept, self._unkept = self._unkept, 0
        return unkept

    def _plain(self, tracked: TrackedRequest, table: RoutingTable, at: float, chosen: str) -> DecisionRecord:
        request = tracked.request
        return DecisionRecord(
            id=tracked.decision_id,
            pool=self._pool,
            request=request.id,
            client_request=request.client_id or None,
            session=tracked.session or request.session,
            at=at,
            policy=table.routing.policy,
            table_version=table.version,
            chosen=instance_of(chosen),
            chosen_rank=rank_of(chosen),
            runner_up=None,
            reason=tracked.reason if chosen else DecisionReason.NONE_CHOSEN,
            prompt_tokens=request.prompt_tokens,
            weighing=Weighing(rule=NOT_WEIGHED if chosen else NOBODY, candidates=(), considered=0),
            priority_class=request.priority_class,
            named=request.named,
        )


def _why_kept(tracked: TrackedRequest, end: End, table: RoutingTable) -> KeptFor:
    if tracked.keeps is not None:
        return tracked.keeps
    if end.outcome is RequestOutcome.REFUSED:
        return KeptFor.REFUSED
    if end.outcome is RequestOutcome.FAILED:
        return KeptFor.FAILED
    if tracked.attempts:
        return KeptFor.RETRIED
    if (end.ttft_seconds or 0.0) >= table.slo.ttft_seconds or (end.tpot_seconds or 0.0) >= table.slo.tpot_seconds:
        return KeptFor.LATE
    return KeptFor.MOVED if tracked.moved or tracked.continuations else KeptFor.SAMPLE


def _ended(noted: DecisionRecord, tracked: TrackedRequest, end: End, table: RoutingTable, why: KeptFor) -> DecisionRecord:
    served = tracked.instance if end.ttft_seconds is not None or end.outcome is RequestOutcome.SERVED else ""
    given = next((one for one in tracked.continuations if one.carried_tokens), None)
    if given is not None:  # its first token came from where its answer broke off first
        served = target_of(given.source, given.source_rank)
    return replace(
        noted,
        session=tracked.session or noted.session,
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
    )

"""Placing: a request is given an instance, waits there or goes at once, and may be moved while it waits.

The part of the scheduler that changes where requests are. It applies a policy's decisions to accounting, queues and bindings in one step, so that a
burst sees each of its own members, and writes down every move with the predictions it was made by.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from heapq import heappush
from math import inf
from typing import TypedDict

from fairlead.instances import Role
from fairlead.reports import BindingReason, MigrationRecord, ReRouteRecord, Weighing
from fairlead.routing.admission.gates import build_gate, no_room_to_decode
from fairlead.routing.admission.refusals import queue_full
from fairlead.routing.choosing.binding_reasons import reason_to_leave
from fairlead.routing.choosing.decoding import select_decoding
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.contracts.policies import PolicyInForce
from fairlead.routing.contracts.predictors import Predictor, features_of
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.contracts.weighing import QUEUE_FULL, QUEUE_LIMIT
from fairlead.routing.knowledge.bindings import SessionBindings
from fairlead.routing.knowledge.circuit import Circuit, CircuitSettings
from fairlead.routing.knowledge.estimators import DecodeTimes, PrefillTimes
from fairlead.routing.knowledge.prefixes import PrefixIndex
from fairlead.routing.knowledge.views import LiveView
from fairlead.routing.queues.accounting import Accounting, Stage, TrackedRequest
from fairlead.routing.queues.building import Queue, QueuesInOrder, build_queue
from fairlead.routing.queues.deadline import DeadlineQueue, LateRules
from fairlead.routing.queues.late_requests import LateRequests
from fairlead.routing.scheduling.prefill_decode import decodes_on, hit_or_fetched_tokens
from fairlead.routing.scheduling.recording import Recorder
from fairlead.tables import PoolKey, RoutingTable


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """What does not belong to a pool's spec but to the process that runs a scheduler.

    `speculative_insert` believes a prompt cached from its dispatch on instead of from its first token. Requests are held for
    `no_instances_ttl_seconds` when nobody accepts, `held_limit` of them at most. `attempts` counts dispatches of one request. Who has no use for
    load samples need not pay for them.
    """

    no_instances_ttl_seconds: float = 5.0
    held_limit: int = 4096
    attempts: int = 3
    sweep_seconds: float = 0.25
    bindings_limit: int = 200_000
    records_limit: int = 50_000
    load_samples: bool = True
    speculative_insert: bool = False
    circuit: CircuitSettings = field(default_factory=CircuitSettings)


class Placing:
    """State of one pool's scheduler and the moves on it. `held` are accepted requests without any instance to go to."""

    def __init__(
        self,
        table: RoutingTable,
        policy: PolicyInForce,
        parameters: QueueParameters,
        recorder: Recorder,
        settings: SchedulerSettings,
        predictor: Predictor | None = None,
    ) -> None:
        self.table = table
        self.policy = policy
        self.parameters = parameters
        self.recorder = recorder
        self.settings = settings
        self.predictor = predictor
        self.prefill_times = PrefillTimes(table.engine, parameters.prefill_estimate, parameters.estimate_min_samples)
        self.decode_times = DecodeTimes(table.engine)
        self.gate = build_gate(table.early_rejection.mode)
        self.accounting = Accounting(self._prefill_seconds)
        self.queues: dict[str, Queue] = {}
        self.late = LateRequests(self.accounting)
        self.circuits: dict[str, Circuit] = {}
        self.held: dict[str, TrackedRequest] = {}
        self.waiting: dict[str, TrackedRequest] = {}
        """Every queued or held request in order of submission."""
        self.touched: set[str] = set()
        """Instances whose queue got something since the last look."""
        self.departed: set[str] = set()
        """Instances no longer in the table, kept until their last request ends."""
        self.unseen_prefills: list[tuple[float, str, str]] = []
        """Heap of (when the prefill should be over, request, decision) of dispatched requests whose first token the caller cannot see."""
        self.prefixes = PrefixIndex(table.engine.kv_cache_tokens // table.engine.block_tokens)
        self.bindings = SessionBindings(table.pool, table.session.ttl_seconds, self.accounting.loads, settings.bindings_limit)
        self.view = LiveView(
            table, self.accounting.loads, self.prefixes, self.bindings, self.accounting.changed, self.prefill_times, self.decode_times
        )

    def place(self, tracked: TrackedRequest, now: float, *, admitted: bool = False) -> Refusal | None:
        """Choose an instance for a held request and queue it there; without candidates it stays held.

        A request not `admitted` before may be refused for predicted TTFT; any may be refused for full queues. The caller ends what is refused.
        """
        if not self.view.candidates():
            self.hold(tracked, now)
            return None
        request = tracked.request
        decision = self.policy.policy.choose(request, self.view, now)
        if not admitted and self.table.early_rejection.mode != "Disabled":
            refusal = self._admission_refusal(request, decision, now)
            if refusal is not None:
                return refusal
        instance = self._with_room(decision)
        if instance is None:
            drain = self.accounting.loads[decision.instance].pending_prefill_tokens / self.table.engine.prefill_tokens_per_second
            return queue_full(request, self.table.pool, self.parameters.queue_limit, drain)
        self.held.pop(request.id, None)
        if self.predictor is not None:
            hit = self.view.hit_tokens(request, instance)
            tracked.features = features_of(self.accounting.loads[instance], hit, request, self.table.engine.kv_cache_tokens)
        tracked.decision_id = self.recorder.new_id()
        session = decision.session or request.session
        moves = self._leaves_home(session, instance)
        weighing = self._weighing(decision, instance) if moves or self.recorder.is_sampled(tracked.decision_id) else None
        tracked.reason = decision.reason if instance == decision.instance else DecisionReason.FALLBACK
        tracked.fallbacks = decision.fallbacks
        tracked.alternate = decision.alternate if instance != decision.alternate else decision.instance
        tracked.transfer_from = decision.transfer_from if instance == decision.instance else None
        tracked.waiting_since = now
        moved = self.bind(tracked, session, instance, decision.bind or BindingReason.SLO, now)
        if tracked.left:
            if not moved and tracked.left != instance:
                self.record_reroute(tracked, tracked.left, instance, self.reason_to_leave(tracked.left), now)
            tracked.left = ""
        self.enqueue(tracked, instance, now, decision.decode)
        if weighing is not None:
            self.recorder.decided(tracked, decision, weighing, self.table, now, keep=moves)
        if decision.overloaded:
            self.rebalance(decision.overloaded, now)
        return None

    def enqueue(self, tracked: TrackedRequest, instance: str, now: float, decode: str | None = None) -> None:
        """Held → queued at `instance`, to decode at `decode` if that is needed and can be."""
        self.count_in(tracked, instance, now, decode)
        queue = self.queues.get(instance)
        if queue is None:
            queue = self.queues[instance] = self.new_queue(instance)
        queue.add(tracked)
        self.touched.add(instance)
        self.waiting[tracked.request.id] = tracked

    def count_in(
        self, tracked: TrackedRequest, instance: str, now: float, decode: str | None = None, excluded: Collection[str] = ()
    ) -> None:
        """Held → queued in the counters alone, for what is dispatched at once; decodes nowhere in `excluded`."""
        tracked.instance = instance
        decode = decodes_on(tracked, decode, self.accounting.loads, self.view, excluded)
        hit = hit_or_fetched_tokens(tracked, instance, self.accounting.loads, self.view)
        self.accounting.enqueue(tracked, instance, hit, now, decode)
        self._expect_first_token(tracked, self.accounting.loads[instance].pending_prefill_tokens, now)

    def new_queue(self, instance: str) -> Queue:
        """An empty queue of the discipline in force."""
        rules = LateRules(
            share=self.parameters.late_share, may_go=self._late_may_go, found=self._found_late, sent_in_time=self.late.sent_in_time
        )
        return build_queue(self.parameters, self.table, self.accounting.loads[instance], rules)

    def hold(self, tracked: TrackedRequest, now: float) -> None:
        """Keep an accepted request until some instance accepts."""
        if tracked.request.id not in self.held:
            tracked.waiting_since = now
            self.held[tracked.request.id] = tracked
            self.waiting[tracked.request.id] = tracked

    def unqueue(self, tracked: TrackedRequest) -> None:
        """Out of whatever queue and counter it is in; held by nobody's list either."""
        queue = self.queues.get(tracked.instance)
        if queue is not None:
            queue.remove(tracked.request.id)
            if not queue:
                del self.queues[tracked.instance]
        self.held.pop(tracked.request.id, None)
        self.waiting.pop(tracked.request.id, None)
        self.accounting.unplace(tracked)

    def dispatch_ready(self, instance: str, now: float) -> list[Dispatch]:
        """Send what the instance's window and circuit allow, in the order of its queue."""
        queue = self.queues.get(instance)
        if queue is None:
            return []
        load = self.accounting.loads[instance]
        window = self.table.routing.prefills_in_flight
        small = self.parameters.in_flight_seconds * self.table.engine.prefill_tokens_per_second
        sent: list[Dispatch] = []
        if isinstance(queue, DeadlineQueue):
            queue.find_late(now)
        while load.broken_until <= now:
            beside = 0 < window <= load.prefilling
            if beside and load.dispatched_prefill_tokens >= small:
                break
            if load.entry.role is Role.PREFILL and not self.view.decode_candidates():
                break
            tracked = queue.take_in_time(now) if beside and isinstance(queue, DeadlineQueue) else queue.take(now)
            if tracked is None:
                break
            sent.append(self.dispatch(tracked, now))
        if not queue:
            del self.queues[instance]
        return sent

    def dispatch(self, tracked: TrackedRequest, now: float) -> Dispatch:
        """Queued (and already taken from its queue) → prefilling, hits estimated afresh."""
        instance = tracked.instance
        request = tracked.request
        load = self.accounting.loads[instance]
        self.waiting.pop(request.id, None)
        if load.entry.role is Role.PREFILL:
            self.accounting.redirect(tracked, decodes_on(tracked, tracked.decode, self.accounting.loads, self.view))
        self.accounting.dispatch(tracked, hit_or_fetched_tokens(tracked, instance, self.accounting.loads, self.view), now)
        self._expect_first_token(tracked, load.dispatched_prefill_tokens, now)
        tracked.tried = (*tracked.tried, instance)
        circuit = self.circuits.get(instance)
        if circuit is not None and circuit.is_open:
            circuit.dispatched(request.id, now)
            self.sync_circuit(load, circuit)
        if self.settings.speculative_insert:
            self.prefixes.insert(instance, request.blocks)
        if not request.streamed:
            expected = now + load.dispatched_prefill_tokens / self.table.engine.prefill_tokens_per_second
            heappush(self.unseen_prefills, (expected, request.id, tracked.decision_id))
        self.recorder.loads.dispatched(load, now)
        return Dispatch(
            request=request,
            instance=instance,
            address=load.entry.address,
            fallbacks=tracked.fallbacks,
            decision_id=tracked.decision_id,
            reason=tracked.reason,
            hit_tokens=tracked.hit_tokens,
            miss_tokens=tracked.miss_tokens,
            decode=tracked.decode,
            decode_address=None if tracked.decode is None else self.accounting.loads[tracked.decode].entry.address,
            transfer_from=tracked.transfer_from,
            transfer_tokens=tracked.transfer_tokens,
        )

    def bind(self, tracked: TrackedRequest, session: str | None, instance: str, reason: BindingReason, now: float) -> bool:
        """Make `instance` the home of the request's session if the policy keeps homes; True when an earlier home was left for it."""
        if session is None or not self.policy.keeps_homes:
            return False
        tracked.session = session
        previous = self.bindings.get(session)
        if previous is not None and previous.instance == instance:
            self.touch_session(session, now)
            return False
        reason = BindingReason.COLD if previous is None else reason
        change = self.recorder.new_change_id()
        self.recorder.bound(self.bindings.bind(session, instance, reason, now, tracked.request.prompt_tokens, change))
        if previous is None or previous.instance is None:
            return False
        self._record_migration(change, tracked, session, previous.instance, instance, reason, now)
        return True

    def _leaves_home(self, session: str | None, instance: str) -> bool:
        """Whether binding the session to `instance` would move its home."""
        if session is None or not self.policy.keeps_homes:
            return False
        home = self.bindings.get(session)
        return home is not None and home.instance is not None and home.instance != instance

    def _weighing(self, decision: Decision, instance: str) -> Weighing:
        """What the policy weighed; when its choice had no room, what that means for `instance`, which takes the request instead."""
        weighed = decision.weigh()
        if instance == decision.instance:
            return weighed
        return replace(
            weighed,
            rule=QUEUE_FULL,
            candidates=tuple(sorted(weighed.candidates, key=lambda one: one.instance != instance)),
            passed_over=decision.instance,
            limits={**weighed.limits, QUEUE_LIMIT.name: self.parameters.queue_limit},
        )

    def touch_session(self, session: str, now: float) -> None:
        """The session was used where it is; reported now and then."""
        refresh = self.bindings.touch(session, now)
        if refresh is not None:
            self.recorder.bound(refresh)

    def move(
        self, tracked: TrackedRequest, target: str, reason: BindingReason, now: float, ttfts: tuple[float, float] | None = None
    ) -> None:
        """Move a queued request to `target`'s queue. Its session's home goes with it when that was the source: then it is a session migration,
        else a re-route."""
        source = tracked.instance
        session = tracked.session
        home = None if session is None else self.bindings.get(session)
        if session is not None and home is not None and home.instance == source:
            change = self.recorder.new_change_id()
            self._record_migration(change, tracked, session, source, target, reason, now, ttfts)
            self.recorder.bound(self.bindings.bind(session, target, reason, now, tracked.request.prompt_tokens, change))
        else:
            self.record_reroute(tracked, source, target, reason, now, ttfts)
        self._leave_queue(tracked)
        tracked.transfer_from = None
        tracked.alternate = source
        tracked.reason = DecisionReason.HOTSPOT_MIGRATED
        self.enqueue(tracked, target, now)

    def rebalance(self, overloaded: Iterable[str], now: float) -> None:
        """Ask the policy which queued requests of these instances to move, and move them."""
        rebalances = self.policy.rebalances
        if rebalances is None:
            return
        queues = QueuesInOrder({instance: self.queues[instance] for instance in overloaded if instance in self.queues}, now)
        if not queues:
            return
        for move in rebalances.rebalance(tuple(queues), queues, self.view, now):
            tracked = self.waiting.get(move.request)
            target = self.accounting.loads.get(move.target)
            if tracked is None or tracked.instance != move.source or target is None or not target.is_candidate(now):
                continue
            self.move(tracked, move.target, BindingReason.HOTSPOT, now, (move.source_ttft_seconds, move.target_ttft_seconds))

    def replace_queued(self, tracked: TrackedRequest, now: float) -> Refusal | None:
        """Choose again for a request whose instance may no longer take it; a move if it lands elsewhere, held if nobody accepts."""
        tracked.left = tracked.instance
        self._leave_queue(tracked)
        waiting_since = tracked.waiting_since
        refusal = self.place(tracked, now, admitted=True)
        if refusal is None and tracked.stage is Stage.QUEUED:
            tracked.waiting_since = waiting_since
        return refusal

    def reason_to_leave(self, instance: str) -> BindingReason:
        """Why a session or request cannot stay on an instance: it drains, it is lost or broken, or the ring moved on."""
        return reason_to_leave(self.accounting.loads.get(instance), self.view.now)

    def sync_circuit(self, load: InstanceLoad, circuit: Circuit) -> None:
        """Let candidates follow a circuit that changed."""
        if load.broken_until != circuit.broken_until:
            load.broken_until = circuit.broken_until
            self.view.invalidate()

    def _admission_refusal(self, request: RoutingRequest, decision: Decision, now: float) -> Refusal | None:
        view = self.view
        ttft = view.predicted_ttft_seconds(request, decision.instance) if decision.ttft_seconds is None else decision.ttft_seconds
        refusal = self.gate.at_arrival(request, ttft, view, now)
        if refusal is None and self.accounting.loads[decision.instance].entry.role is Role.PREFILL:
            choice = select_decoding(request, view)
            if choice is None or choice.tpot_seconds == inf:
                return no_room_to_decode(request, view)
        return refusal

    def _expect_first_token(self, tracked: TrackedRequest, tokens_before: int, now: float) -> None:
        if self.gate.forecast is not None:
            seconds = tokens_before / self.table.engine.prefill_tokens_per_second
            self.gate.forecast.expect(tracked.request.id, now + seconds, tracked.request.prompt_tokens)

    def _prefill_seconds(self, prompt_tokens: int, hit_tokens: int) -> float:
        return self.prefill_times.seconds(prompt_tokens, hit_tokens)

    def _late_may_go(self) -> bool:
        return self.late.may_go(self.parameters, self.table, len(self.view.candidates()))

    def _found_late(self, tracked: TrackedRequest) -> None:
        self.late.found(tracked, self.view.now, refuse=self.table.early_rejection.mode != "Disabled")

    def _leave_queue(self, tracked: TrackedRequest) -> None:
        queue = self.queues[tracked.instance]
        queue.remove(tracked.request.id)
        if not queue:
            del self.queues[tracked.instance]
        self.accounting.unplace(tracked)

    def _with_room(self, decision: Decision) -> str | None:
        limit = self.parameters.queue_limit
        if self.accounting.loads[decision.instance].waiting < limit:
            return decision.instance
        others = decision.fallbacks if decision.alternate is None else (decision.alternate,)
        for instance in others:
            load = self.accounting.loads.get(instance)
            if load is not None and load.is_candidate(self.view.now) and load.waiting < limit:
                return instance
        return None

    def _record_migration(
        self,
        change: str,
        tracked: TrackedRequest,
        session: str,
        source: str,
        target: str,
        reason: BindingReason,
        now: float,
        ttfts: tuple[float, float] | None = None,
    ) -> None:
        facts = self._move_facts(change, tracked, source, target, reason, now, ttfts)
        self.recorder.migrated(MigrationRecord(session=session, **facts), tracked)

    def record_reroute(
        self,
        tracked: TrackedRequest,
        source: str,
        target: str,
        reason: BindingReason,
        now: float,
        ttfts: tuple[float, float] | None = None,
    ) -> None:
        """Write down that a request left `source` for `target` and no session's home went with it."""
        facts = self._move_facts(self.recorder.new_id(), tracked, source, target, reason, now, ttfts)
        self.recorder.rerouted(ReRouteRecord(session=tracked.session or tracked.request.session, **facts), tracked)

    def _move_facts(
        self,
        move_id: str,
        tracked: TrackedRequest,
        source: str,
        target: str,
        reason: BindingReason,
        now: float,
        ttfts: tuple[float, float] | None,
    ) -> "MoveFacts":
        request = tracked.request
        if ttfts is None:
            known = source in self.accounting.loads
            source_ttft = self.view.predicted_ttft_seconds(request, source) if known else None
            target_ttft = self.view.predicted_ttft_seconds(request, target)
        else:
            source_ttft, target_ttft = ttfts
        lacking = max(0, self.view.hit_tokens(request, source) - self.view.hit_tokens(request, target))
        fetched = tracked.transfer_from == source
        return MoveFacts(
            id=move_id,
            pool=self.table.pool,
            request=request.id,
            source=source,
            target=target,
            trigger=reason,
            at=now,
            predicted_source_ttft_seconds=source_ttft,
            predicted_target_ttft_seconds=target_ttft,
            benefit_seconds=None if source_ttft is None else source_ttft - target_ttft,
            tokens_moved=lacking if fetched else 0,
            tokens_recomputed=0 if fetched else lacking,
        )


class MoveFacts(TypedDict):
    """What both sorts of move are told with; see `fairlead.reports.Move`."""

    id: str
    pool: PoolKey
    request: str
    source: str
    target: str
    trigger: BindingReason
    at: float
    predicted_source_ttft_seconds: float | None
    predicted_target_ttft_seconds: float
    benefit_seconds: float | None
    tokens_moved: int
    tokens_recomputed: int

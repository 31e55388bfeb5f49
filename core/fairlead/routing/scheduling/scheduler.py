"""The scheduler of one pool: from a parsed request to the wire and back, on the caller's clock.

    submit --> [admission] --> policy --> queue --> Dispatch --> first_token --> complete
                  |                         |           |
               Refusal            moves, timeouts     retry / fail / cancel / decline

Every accepted request leaves through exactly one of refusal, `complete`, `fail`, `cancel` or `decline`; a second exit, or one of an unknown id, does nothing.
"""

from collections.abc import Collection, Iterable, Sequence
from heapq import heappop

from fairlead.instances import REACHABLE
from fairlead.reports import Binding, BindingChange, BindingReason, MoveOutcome
from fairlead.routing.admission.refusals import nobody_serves, shutting_down, too_late, upstream_failed, waited_too_long
from fairlead.routing.choosing.candidates import least_pending
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.policies import PolicyInForce
from fairlead.routing.contracts.predictors import Predictor
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal, SchedulerRecords
from fairlead.routing.knowledge.circuit import Circuit
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.queues.accounting import Stage, TrackedRequest
from fairlead.routing.scheduling.learning import learn_decode, learn_prefill, learn_ttft, note_decode_begin
from fairlead.routing.scheduling.placing import Placing, SchedulerSettings
from fairlead.routing.scheduling.readings import SchedulerReadings
from fairlead.routing.scheduling.recording import Recorder
from fairlead.routing.scheduling.table_changes import forget_departed, take_table
from fairlead.tables import RoutingTable

Outcome = Dispatch | Refusal


class PoolScheduler(SchedulerReadings):
    """A `Scheduler` for the pool of `table`; a `predictor` is told the TTFT of every request.

    `router_id` and `seed` make record ids unique (give every start of a process another seed) and policies deterministic; `sample_rate` (0-1) is the
    share of decisions recorded. Raises UnknownName or InvalidInput when the table's policy or parameters cannot be used.
    """

    def __init__(
        self,
        table: RoutingTable,
        router_id: str,
        seed: int,
        *,
        sample_rate: float = 0.05,
        settings: SchedulerSettings | None = None,
        predictor: Predictor | None = None,
        policies: PolicyCatalogue = BUILT_IN,
    ) -> None:
        settings = settings or SchedulerSettings()
        self._seed = seed
        self._recorder = Recorder(table.pool, router_id, seed, sample_rate, settings.records_limit, load_samples=settings.load_samples)
        self._policies = policies
        parameters = policies.check_parameters(table.routing.policy, table.routing.parameters)
        policy = PolicyInForce.of(policies.build(table.routing, seed))
        super().__init__(Placing(table, policy, parameters, self._recorder, settings, predictor))
        self._settings = settings
        self._loads = self._placing.accounting.loads
        self._requests = self._placing.accounting.requests
        self._outbox: list[Refusal] = []
        self._next_sweep = 0.0
        take_table(self._placing, table, policies, seed)

    def submit(self, request: RoutingRequest, now: float) -> tuple[Outcome, ...]:
        """Admit, choose, queue; see the protocol. Raises ValueError when a request of this id is already in flight."""
        placing = self._placing
        placing.view.now = now
        tracked = TrackedRequest(request=request, submitted_at=now)
        placing.accounting.admit(tracked)
        if not placing.view.candidates() and len(placing.held) >= self._settings.held_limit:
            refusal: Refusal | None = self._nobody(request, 0.0, now)
        else:
            refusal = placing.place(tracked, now)
        if refusal is not None:
            self._refuse(tracked, refusal, now)
        return self._answer((), now)

    def tick(self, now: float) -> tuple[Outcome, ...]:
        """Everything time brings: unseen prefills end, held requests are placed or refused, queues are swept, sent from and bounded."""
        placing = self._placing
        placing.view.now = now
        placing.bindings.expire(now)
        self._finish_unseen_prefills(now)
        self._place_held(now)
        self._expire_waiting(now)
        if placing.queues and now >= self._next_sweep:
            self._next_sweep = now + self._settings.sweep_seconds
            placing.rebalance(sorted(placing.queues), now)
        forget_departed(placing)
        return self._answer(tuple(placing.queues), now)

    def first_token(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        """The prompt is computed: its blocks are cached there, its tokens no longer pending."""
        tracked = self._requests.get(request_id)
        if tracked is None or tracked.first_token_at is not None or tracked.stage not in (Stage.PREFILLING, Stage.DECODING):
            return ()
        self._placing.view.now = now
        if tracked.stage is Stage.PREFILLING:
            refusal = self._placing.gate.after_prefill(tracked.request, self._loads[tracked.decodes_on], self._placing.view, now)
            if refusal is not None:
                instance = tracked.instance
                self.instance_worked(instance, now)
                self._refuse(tracked, refusal, now)
                return self._answer((instance,), now)
            learn_prefill(self._placing, tracked, now)
        tracked.first_token_at = now
        instance = tracked.instance if tracked.instance in self._loads else tracked.decodes_on
        self.instance_worked(instance, now)
        if tracked.stage is Stage.PREFILLING:
            self._prefilled(tracked, now)
        ttft = now - tracked.request.arrived_at
        learn_ttft(self._placing, tracked, ttft)
        note_decode_begin(self._placing, tracked, now)
        self._recorder.loads.first_token(self._loads[instance], now, ttft, self._placing.table.slo.ttft_seconds)
        self._recorder.settle_decision(request_id, tracked.queued_seconds, ttft, tracked.instance)
        self._recorder.settle_moves(tracked, MoveOutcome.COMPLETED, ttft)
        return self._answer((instance,), now)

    def complete(self, request_id: str, now: float, output_tokens: int, cached_tokens: int | None) -> tuple[Outcome, ...]:
        """Finished well; the engine's own cached count, when told, replaces the estimate in the load samples."""
        tracked = self._requests.get(request_id)
        if tracked is None or tracked.stage not in (Stage.PREFILLING, Stage.DECODING):
            return ()
        self._placing.view.now = now
        instance = tracked.instance
        self.instance_worked(instance, now)
        if tracked.stage is Stage.PREFILLING:
            self._prefilled(tracked, now)
        if tracked.session is not None:
            self._placing.touch_session(tracked.session, now)
            self._placing.bindings.set_context(tracked.session, tracked.request.prompt_tokens + output_tokens)
        decoded_on = self._loads[tracked.decodes_on]
        tpot = None
        if tracked.first_token_at is not None and output_tokens > 1:
            tpot = (now - tracked.first_token_at) / (output_tokens - 1)
        self._end(tracked, MoveOutcome.COMPLETED, now)
        learn_decode(self._placing, tracked, decoded_on, now, output_tokens)
        self._recorder.loads.completed(
            self._loads.get(instance, decoded_on),
            decoded_on,
            now,
            prompt_tokens=tracked.request.prompt_tokens,
            hit_tokens=tracked.hit_tokens if cached_tokens is None else cached_tokens,
            output_tokens=output_tokens,
            tpot_seconds=tpot,
        )
        return self._answer((instance,), now)

    def retry(self, request_id: str, now: float, failed_instance: str) -> Outcome:
        """Before the first byte only: the next fallback, else the least loaded candidate not tried; it does not queue again."""
        tracked = self._requests.get(request_id)
        placing = self._placing
        if tracked is None or tracked.stage in (Stage.HELD, Stage.QUEUED) or tracked.first_token_at is not None:
            unknown = RoutingRequest(id=request_id, arrived_at=now, prompt_tokens=0, blocks=(), first_bytes_hash=0)
            return upstream_failed(unknown, placing.table.pool, ())
        placing.view.now = now
        self._end_probe(tracked, now)
        decode_failed = failed_instance == tracked.decode
        failed = self._loads.get(tracked.decodes_on if decode_failed else tracked.instance)
        stays = tracked.instance if decode_failed and tracked.instance in self._loads else None
        source = tracked.instance
        placing.accounting.unplace(tracked)
        if failed is not None:
            self._recorder.loads.failed(failed, now)
        target = self._retry_target(tracked, failed_instance, stays)
        if target is None:
            refusal = upstream_failed(tracked.request, placing.table.pool, tracked.tried)
            self._close_refused(tracked, refusal, now)
            return refusal
        reason = placing.reason_to_leave(failed_instance)
        if reason is BindingReason.RING_CHANGE:
            reason = BindingReason.INSTANCE_LOST
        tracked.reason = DecisionReason.FALLBACK
        moved = placing.bind(tracked, tracked.session, target, reason, now)
        tracked.transfer_from = None
        if not moved and target != source:
            placing.record_reroute(tracked, source, target, reason, now)
        placing.count_in(tracked, target, now, excluded=(failed_instance,))
        return placing.dispatch(tracked, now)

    def fail(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        """Lost after the first byte, or given up."""
        return self._abandon(request_id, MoveOutcome.FAILED, now)

    def cancel(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        """The client went away."""
        return self._abandon(request_id, MoveOutcome.CANCELLED, now)

    def decline(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        """The engine refused it as its client made it: no failure, no cancelling, and nothing was computed."""
        return self._abandon(request_id, MoveOutcome.REFUSED, now)

    def instance_failed(self, instance: str, now: float) -> None:
        """A connection error or 5xx. When the circuit opens, what waits for the instance is placed elsewhere; the next `tick` tells the outcome."""
        placing = self._placing
        load = self._loads.get(instance)
        if load is None:
            return
        placing.view.now = now
        circuit = placing.circuits.setdefault(instance, Circuit(self._settings.circuit))
        circuit.failed(now)
        placing.sync_circuit(load, circuit)
        if load.broken_until > now and instance in placing.queues:
            self._replace(tuple(placing.queues[instance].in_order(now)), now)

    def instance_worked(self, instance: str, now: float) -> None:
        """It answered: its circuit closes."""
        circuit = self._placing.circuits.pop(instance, None)
        load = self._loads.get(instance)
        if circuit is not None and load is not None:
            circuit.worked()
            self._placing.sync_circuit(load, circuit)

    def observe_engine(self, instance: str, kv_usage: float | None, now: float) -> None:
        """A fresh reading of the engine's own metrics; `kv_usage` 0-1, None when it could not be read."""
        load = self._loads.get(instance)
        if load is not None:
            load.kv_usage = kv_usage
            self._placing.accounting.changed.add(instance)

    def update_table(self, table: RoutingTable, now: float) -> tuple[Outcome, ...]:
        """Take a newer table live. Raises UnknownName or InvalidInput, with nothing changed, when its policy or parameters cannot be used."""
        placing = self._placing
        current = placing.table
        if table.uid == current.uid and table.version <= current.version:
            return ()
        placing.view.now = now
        take_table(placing, table, self._policies, self._seed)
        misplaced: list[TrackedRequest] = []
        restricts = placing.policy.restricts_placement
        placing.view.candidates()  # so that each load knows whether it is one
        for instance in sorted(placing.queues):
            accepting = self._loads[instance].is_candidate(now)
            for tracked in placing.queues[instance].in_order(now):
                allowed = () if restricts is None else restricts.placements(tracked.request)
                if not accepting or (allowed and instance not in allowed):
                    misplaced.append(tracked)
                elif allowed:
                    tracked.alternate = next((other for other in allowed if other != instance), None)
        self._replace(misplaced, now)
        self._place_held(now)
        return self._answer(tuple(placing.queues), now)

    def apply_bindings(self, bindings: Sequence[Binding], now: float, lost: Collection[str] = ()) -> int:
        """The API's word on sessions of this pool: other routers' bindings, drains, lost races; how many own moves lost."""
        return sum(self._placing.bindings.apply(binding, now, lost) for binding in bindings)

    def recall_changes(self, changes: Sequence[BindingChange], now: float) -> None:
        """Take back what this router did before it was restarted."""
        for change in changes:
            self._placing.bindings.recall(change, now)

    def transferred(self, request_id: str, now: float) -> None:
        """The KV blocks the request fetches from another instance have arrived: that one's link is free again. Unknown ids are ignored."""
        tracked = self._requests.get(request_id)
        if tracked is not None:
            self._placing.accounting.transferred(tracked)

    def shut_down(self, now: float) -> tuple[Refusal, ...]:
        """Refuse everything that still waits here; dispatched requests go on. For a router that stops."""
        for tracked in tuple(self._placing.waiting.values()):
            self._refuse(tracked, shutting_down(tracked.request, self._placing.table.pool), now)
        refusals, self._outbox = tuple(self._outbox), []
        return refusals

    def take_records(self, now: float, *, final: bool = False) -> SchedulerRecords:
        """Hand over what happened since the last take; see the protocol."""
        recorder = self._recorder
        migrations, migration_outcomes = recorder.take_migrations()
        reroutes, reroute_outcomes = recorder.take_reroutes()
        return SchedulerRecords(
            bindings=recorder.take_bindings(),
            migrations=migrations,
            migration_outcomes=migration_outcomes,
            reroutes=reroutes,
            reroute_outcomes=reroute_outcomes,
            decisions=recorder.take_decisions(),
            rejections=recorder.take_rejections(now, final=final),
            loads=recorder.loads.take(self._loads, now, final=final),
            dropped=recorder.take_dropped(),
        )

    def _answer(self, instances: Iterable[str], now: float) -> tuple[Outcome, ...]:
        placing = self._placing
        answer: list[Outcome] = []
        queues = placing.queues
        if placing.touched:
            touched = sorted(placing.touched)
            placing.touched.clear()
            for instance in touched:
                answer += placing.dispatch_ready(instance, now)
        for instance in instances:
            if instance in queues:
                answer += placing.dispatch_ready(instance, now)
        while placing.late.to_refuse:
            tracked = placing.late.to_refuse.pop()
            if tracked.late:
                self._refuse(tracked, too_late(tracked.request, placing.table, self._loads[tracked.instance], now), now)
        if self._outbox:
            answer += self._outbox
            self._outbox = []
        return tuple(answer)

    def _nobody(self, request: RoutingRequest, waited_seconds: float, now: float) -> Refusal:
        closing = [load.broken_until for load in self._loads.values() if load.entry.accepting and load.broken_until > now]
        wait = min(closing) - now if closing else self._settings.no_instances_ttl_seconds
        return nobody_serves(request, self._placing.table.pool, waited_seconds, wait)

    def _refuse(self, tracked: TrackedRequest, refusal: Refusal, now: float) -> None:
        self._close_refused(tracked, refusal, now)
        self._outbox.append(refusal)

    def _close_refused(self, tracked: TrackedRequest, refusal: Refusal, now: float) -> None:
        self._recorder.refused(refusal, now)
        self._end(tracked, MoveOutcome.REFUSED, now)

    def _end(self, tracked: TrackedRequest, outcome: MoveOutcome, now: float) -> None:
        request_id = tracked.request.id
        self._end_probe(tracked, now)
        self._recorder.settle_decision(request_id, tracked.queued_seconds)
        self._recorder.settle_moves(tracked, outcome)
        if self._placing.gate.forecast is not None:
            self._placing.gate.forecast.end(request_id, now, finished=outcome is MoveOutcome.COMPLETED)
        self._placing.unqueue(tracked)
        self._placing.accounting.end(tracked)

    def _end_probe(self, tracked: TrackedRequest, now: float) -> None:
        circuit = self._placing.circuits.get(tracked.instance)
        if circuit is not None:
            circuit.ended(tracked.request.id, now)
            self._placing.sync_circuit(self._loads[tracked.instance], circuit)

    def _abandon(self, request_id: str, outcome: MoveOutcome, now: float) -> tuple[Outcome, ...]:
        tracked = self._requests.get(request_id)
        if tracked is None:
            self._outbox = [refusal for refusal in self._outbox if refusal.request.id != request_id]
            return ()
        self._placing.view.now = now
        instance = tracked.instance
        self._end(tracked, outcome, now)
        load = self._loads.get(instance)
        if load is not None:
            if outcome is MoveOutcome.FAILED:
                self._recorder.loads.failed(load, now)
            elif outcome is MoveOutcome.CANCELLED:
                self._recorder.loads.cancelled(load, now)
        return self._answer((instance,), now)

    def _prefilled(self, tracked: TrackedRequest, now: float) -> None:
        self._placing.accounting.prefilled(tracked, now)
        if self._placing.gate.forecast is not None:
            self._placing.gate.forecast.begin(tracked.request.id, now, tracked.request.prompt_tokens)
        if self._loads[tracked.instance].entry.state in REACHABLE:
            self._placing.prefixes.insert(tracked.instance, tracked.request.blocks)

    def _finish_unseen_prefills(self, now: float) -> None:
        unseen = self._placing.unseen_prefills
        while unseen and unseen[0][0] <= now:
            _, request_id, decision_id = heappop(unseen)
            tracked = self._requests.get(request_id)
            if tracked is not None and tracked.decision_id == decision_id and tracked.stage is Stage.PREFILLING:
                self._prefilled(tracked, now)

    def _place_held(self, now: float) -> None:
        placing = self._placing
        if placing.held and placing.view.candidates():
            for tracked in tuple(placing.held.values()):
                refusal = placing.place(tracked, now, admitted=bool(tracked.decision_id))
                if refusal is not None:
                    self._refuse(tracked, refusal, now)
        for tracked in tuple(placing.held.values()):
            waited = now - tracked.waiting_since
            if waited < self._settings.no_instances_ttl_seconds:
                break
            self._refuse(tracked, self._nobody(tracked.request, waited, now), now)

    def _replace(self, queued: Iterable[TrackedRequest], now: float) -> None:
        for tracked in queued:
            refusal = self._placing.replace_queued(tracked, now)
            if refusal is not None:
                self._refuse(tracked, refusal, now)

    def _expire_waiting(self, now: float) -> None:
        placing = self._placing
        limit = placing.parameters.queue_timeout_seconds
        while placing.waiting:
            tracked = next(iter(placing.waiting.values()))
            waited = now - tracked.submitted_at
            if waited < limit:
                return
            if tracked.stage is Stage.HELD:
                refusal = self._nobody(tracked.request, waited, now)
            else:
                drain = self._loads[tracked.instance].pending_prefill_tokens / placing.table.engine.prefill_tokens_per_second
                refusal = waited_too_long(tracked.request, placing.table.pool, waited, drain)
            self._refuse(tracked, refusal, now)

    def _retry_target(self, tracked: TrackedRequest, failed_instance: str, stays: str | None) -> str | None:
        """Where to send it next; `stays` is where it was computed, when only its decode instance failed."""
        if len(tracked.tried) >= self._settings.attempts:
            return None
        view = self._placing.view
        candidates = view.candidates()
        if stays is not None and self._loads[stays].is_candidate(view.now):
            return stays
        excluded = (*tracked.tried, failed_instance)
        for instance in tracked.fallbacks:
            load = self._loads.get(instance)
            if load is not None and instance not in excluded and load.is_candidate(view.now):
                return instance
        return next(iter(least_pending(candidates, excluded, 1)), None)

"""The state of one pool's scheduler, and the steps that put a request into a queue and remove it again.

Instances in this module are targets (`fairlead.targets`): an instance with several data-parallel ranks has one target
for each rank. Circuits, suspicions and tried instances are the exceptions: they concern the whole instance.

Every part of the scheduler works on one object of this module and keeps no copy of it. A request is *held* (no instance
accepts requests), *queued* for an instance, or dispatched. `waiting` has the held and the queued requests.
"""

from collections import deque
from collections.abc import Collection, Sequence

from fairlead.kv_events.engine_caches import EngineCaches
from fairlead.kv_events.sources import Tier
from fairlead.priority_classes import PriorityClasses
from fairlead.reports.bindings import BindingReason
from fairlead.routing.admission.gates import build_gate
from fairlead.routing.choosing.binding_reasons import reason_to_leave
from fairlead.routing.contracts.handovers import Handovers
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.contracts.policies import PolicyInForce
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.sharing import Front
from fairlead.routing.contracts.vectors import Overtaking
from fairlead.routing.knowledge.answer_lengths import AnswerLengths
from fairlead.routing.knowledge.bindings import SessionBindings
from fairlead.routing.knowledge.circuit import Circuit
from fairlead.routing.knowledge.estimators import DecodeTimes, PrefillTimes
from fairlead.routing.knowledge.kept_contexts import KeptContexts
from fairlead.routing.knowledge.load_times import LoadTimes
from fairlead.routing.knowledge.pool_load import FULL
from fairlead.routing.knowledge.prefixes import PrefixIndex
from fairlead.routing.knowledge.shared_names import SharedNames
from fairlead.routing.knowledge.transfer_times import TransferTimes
from fairlead.routing.knowledge.views import LiveView
from fairlead.routing.queues.accounting import Accounting, TrackedRequest
from fairlead.routing.queues.building import build_queue
from fairlead.routing.queues.deadline import DeadlineQueue, DeadlineRules
from fairlead.routing.queues.disciplines import InstanceQueue
from fairlead.routing.queues.late_requests import LateRequests
from fairlead.routing.queues.overtaking import OvertakenInQueues
from fairlead.routing.queues.queueing import Queue
from fairlead.routing.queues.turns import CREDIT_TARGETS, Tenants
from fairlead.routing.scheduling.canaries import canary_of
from fairlead.routing.scheduling.expecting import Expecting
from fairlead.routing.scheduling.held_requests import HeldRequests
from fairlead.routing.scheduling.policy_failures import PolicyFailures
from fairlead.routing.scheduling.prefill_decode import decodes_on, hit_or_fetched_tokens
from fairlead.routing.scheduling.recording import Recorder
from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead.routing.scheduling.shadows import Shadows
from fairlead.tables import FAIR_TENANTS, EngineFacts, RoutingTable
from fairlead.targets import instance_of

MOST_STORED_BLOCKS = 1_000_000
"""Maximum size, in routing blocks, of a router's memory of the store that all engines share. This memory takes about
100 MB.
"""
_REUSABLE = (DeadlineQueue, InstanceQueue)
MOST_PLACED = 512
"""Maximum number of placed prompts that are kept to be reported to other routers with the next share; the newest are
kept.
"""


def staying(table: RoutingTable) -> tuple[str, ...]:
    """Return the accepting instances that will not be drained soon. If no accepting instance will be drained soon, the
    result is empty, because all are equal then.
    """
    accepting = [entry for entry in table.instances if entry.accepting]
    found = tuple(entry.id for entry in accepting if entry.stays)
    return found if len(found) < len(accepting) else ()


class SchedulerState:
    """The state of one pool's scheduler. Instances and requests are named by their ids."""

    def __init__(
        self, table: RoutingTable, policy: PolicyInForce, parameters: QueueParameters, recorder: Recorder, settings: SchedulerSettings
    ) -> None:
        self.table = table
        self.staying = staying(table)
        """The accepting instances that will not be drained soon. Empty if this is true of none or of all accepting
        instances.
        """
        self.canary = canary_of(table)
        """The canary of a rollout in progress; None if there is no canary."""
        self.policy = policy
        self.shadows: Shadows | None = None
        """The policies that only advise; None if the pool has no such policies."""
        self.failures = PolicyFailures()
        self.recorder = recorder
        self.settings = settings
        self.gate = build_gate(table.early_rejection.mode)
        self.prefill_times = PrefillTimes(table.engine, parameters.prefill_estimate, parameters.estimate_min_samples)
        self.accounting = Accounting(self.prefill_times.seconds)
        self.loads = self.accounting.loads
        self.requests = self.accounting.requests
        self.queues: dict[str, Queue] = {}
        self.emptied: dict[str, DeadlineQueue | InstanceQueue] = {}
        """Empty queues of the present discipline, kept for reuse, because most requests arrive when no other request
        waits for their instance.
        """
        self.held = HeldRequests(settings)
        self.waiting: dict[str, TrackedRequest] = {}
        """The waiting requests (held or queued), in order of submission."""
        self.guests: dict[str, Front] = {}
        """Requests of other routers for which this router decides, by request id, each with the router that sent it."""
        self.is_front = False
        """Whether another router decides for this router. The other router then records decisions and the work of
        instances, and this router only counts requests.
        """
        self.tells_prompts = False
        """Whether other routers need reports of where prompts are placed; `placed` has the prompts that were not
        reported yet.
        """
        self.placed: deque[tuple[str, Sequence[int]]] = deque(maxlen=MOST_PLACED)
        self.touched: set[str] = set()
        """Instances whose queue got requests since the last dispatch from it."""
        self.late = LateRequests(self.accounting)
        self.ranked: dict[str, tuple[str, ...]] = {}
        """The targets of each instance of the table that has several targets."""
        self.circuits: dict[str, Circuit] = {}
        """Circuits by instance: an instance's ranks share a server and fail together."""
        self.suspected: set[str] = set()
        """Targets of instances that failed their last request, whatever the cause was. Retries try other targets first.
        """
        self.departed: set[str] = set()
        """Instances that are no longer in the table, kept until their last request ends."""
        self.drained: set[str] = set()
        """Instances that left the table after a drain. They are kept as long as a session's last binding names them."""
        self.decode_times = DecodeTimes(table.engine)
        self.transfers = TransferTimes()
        self.load_times = LoadTimes()
        self.handovers = Handovers()
        self.answers = AnswerLengths()
        """The mean answer length of each tenant; updated only while tenants take turns."""
        self.prefixes = PrefixIndex(table.engine.kv_cache_tokens // table.engine.block_tokens)
        self.caches = EngineCaches()
        self.expecting = Expecting(self.caches, parameters.expected_seconds)
        self.names = SharedNames(table.session.ttl_seconds)
        self.bindings = SessionBindings(table.pool, table.session.ttl_seconds, self.loads, settings.bindings_limit, self.accounting.changed)
        self.view = LiveView(
            table,
            self.loads,
            self.prefixes,
            self.caches,
            self.bindings,
            self.accounting.changed,
            self.prefill_times,
            self.decode_times,
            self.transfers,
            self.load_times,
            self.drained,
        )
        self.take_parameters(parameters)
        self.take_order(table)
        self.take_store(table.engine)

    def take_store(self, engine: EngineFacts) -> None:
        """Use the shared store of all engines, if the table declares such a store."""
        store, view = engine.shared_store, self.view
        tokens = 0 if store is None or store.store_tokens is None else store.store_tokens
        blocks = min(MOST_STORED_BLOCKS, tokens // engine.block_tokens)
        if store is None:
            view.stored = None
        elif view.stored is None:
            view.stored = PrefixIndex(blocks)
        else:
            view.stored.set_capacity(blocks)
        self.caches.share(tokens, None if store is None else store.store_medium)
        self.load_times.declare(Tier.REMOTE, None if store is None else store.tokens_per_second)

    def take_parameters(self, parameters: QueueParameters) -> None:
        """Use these parameters; the queues must be rebuilt afterwards."""
        self.parameters = parameters
        self.sends_unfinished_first = parameters.sends_unfinished_first
        self.counts_early = parameters.early_prefixes
        if not parameters.keeps_contexts:
            self.view.kept = None
        elif self.view.kept is None:
            self.view.kept = KeptContexts()
        self.expecting.seconds = parameters.expected_seconds
        self._rules = DeadlineRules(
            late_share=parameters.late_share,
            new_task_share=parameters.beginning_share,
            late_may_go=self._late_may_go,
            found_late=self._found_late,
            has_time=self._has_time,
            decode_share=self._decode_share,
            speed=self._speed,
        )

    def take_order(self, table: RoutingTable) -> None:
        """Use the table's priority classes and fairness; the queues must be rebuilt afterwards."""
        self.classes = PriorityClasses(table.priority_classes)
        self.tenants = Tenants(CREDIT_TARGETS * table.slo.ttft_seconds) if table.routing.fairness == FAIR_TENANTS else None
        self.view.overtaking = self.overtaking if self.classes.are_declared or self.tenants is not None else None

    def overtaking(self, request: RoutingRequest) -> Overtaking | None:
        """Return an object that finds the waiting requests at an instance that would be sent after this request. None
        if every waiting request would be sent before it.
        """
        if self.classes.are_declared or (self.tenants is not None and self.tenants.are_others(request.tenant)):
            declared = self.classes.are_declared
            rank = self.classes.rank(request.priority_class) if declared else 0
            return OvertakenInQueues(request, self.queues, self.tenants, rank, lower=declared)
        return None

    def share(self, request: RoutingRequest) -> float:
        """Return the part (0-1] of each admission limit that the request's priority class may use."""
        if not self.classes.are_declared:
            return 1.0
        return self.classes[request.priority_class].share

    def enqueue(self, tracked: TrackedRequest, instance: str, now: float, decode: str | None = None) -> None:
        """Change the request's stage from held to queued at `instance`. If `instance` only prefills, the request will
        decode on `decode`, if that is possible.
        """
        self.count_in(tracked, instance, now, decode)
        queue = self.queues.get(instance)
        if queue is None:
            queue = self.emptied.pop(instance, None)
            if queue is None:
                queue = self.new_queue(instance)
            else:
                queue.begin_again()
            self.queues[instance] = queue
        if self.tenants is not None:
            tracked.answer_microseconds = self._answer_microseconds(tracked.request)
        queue.add(tracked)
        self.touched.add(instance)
        self.waiting[tracked.request.id] = tracked

    def count_in(
        self, tracked: TrackedRequest, instance: str, now: float, decode: str | None = None, excluded: Collection[str] = ()
    ) -> None:
        """Change the request's stage from held to queued in the counters only, because the request is dispatched at
        once. No instance in `excluded` is chosen for the decode.
        """
        tracked.instance = instance
        decode = decodes_on(tracked, decode, self.loads, self.view, excluded)
        hit = hit_or_fetched_tokens(tracked, instance, self.loads, self.view)
        self.accounting.enqueue(tracked, instance, hit, now, decode)
        if self.gate.forecast is not None:
            self.expect_first_token(tracked, self.loads[instance].pending_prefill_tokens, now)

    def hold(self, tracked: TrackedRequest, now: float) -> None:
        """Hold an accepted request until some instance accepts requests."""
        self.held.add(tracked, now)
        self.waiting[tracked.request.id] = tracked

    def leave_queue(self, tracked: TrackedRequest) -> None:
        """Change the request's stage from queued to held, because it will be put into another queue."""
        queue = self.queues[tracked.instance]
        queue.remove(tracked.request.id)
        if not queue:
            self.put_away(tracked.instance)
        self.accounting.unplace(tracked)

    def end(self, tracked: TrackedRequest) -> None:
        """Remove the request from every list, queue and counter, and forget it."""
        queue = self.queues.get(tracked.instance)
        if queue is not None:
            queue.remove(tracked.request.id)
            if not queue:
                self.put_away(tracked.instance)
        self.held.remove(tracked, self.view.now)
        self.waiting.pop(tracked.request.id, None)
        if tracked.holds:
            self.names.let_go(tracked.holds)
            tracked.holds = ()
        self.accounting.end(tracked)

    def put_away(self, instance: str) -> None:
        """Keep the instance's empty queue for reuse."""
        queue = self.queues.pop(instance)
        if isinstance(queue, _REUSABLE) and queue.can_begin_again:
            self.emptied[instance] = queue

    def new_queue(self, instance: str) -> Queue:
        """Return an empty queue of the current discipline for the instance."""
        return build_queue(self.parameters, self.table, self.loads[instance], self._rules, self.classes, self.tenants)

    def drain_seconds(self, instance: str) -> float:
        """Return the predicted seconds to compute all pending prefills of an instance."""
        return self.loads[instance].pending_prefill_tokens / self.prefill_times.speed

    def reason_to_leave(self, instance: str) -> BindingReason:
        """Return the reason why a session or request cannot stay on an instance: the instance drains, is lost or fails,
        or the ring changed.
        """
        return reason_to_leave(instance, self.view, self.view.now)

    def targets_of(self, instance: str) -> tuple[str, ...]:
        """Return all targets of the instance to which this target belongs, including the target itself. Some of them
        may have no load.
        """
        name = instance_of(instance)
        return tuple(dict.fromkeys((name, instance, *self.ranked.get(name, ()))))

    def loads_of(self, instance: str) -> list[InstanceLoad]:
        """Return the loads of all targets of the instance to which this target belongs."""
        return [load for name in self.targets_of(instance) if (load := self.loads.get(name)) is not None]

    def present_loads(self, instance: str) -> list[InstanceLoad]:
        """Return the loads of the instance's targets in the present table. Former targets that still have requests are
        left out.
        """
        return [load for name in self.ranked.get(instance, (instance,)) if (load := self.loads.get(name)) is not None]

    def circuit(self, instance: str) -> Circuit | None:
        """Return the circuit of the instance to which this target belongs; None if the instance has not failed since it
        last served a request.
        """
        return self.circuits.get(instance_of(instance))

    def sync_circuit(self, instance: str, circuit: Circuit) -> None:
        """Update the loads and the candidates after the instance's circuit changed."""
        for load in self.loads_of(instance):
            if load.broken_until != circuit.broken_until:
                load.broken_until = circuit.broken_until
                self.view.invalidate()

    def expect_first_token(self, tracked: TrackedRequest, tokens_before: int, now: float) -> None:
        """Tell the decode forecast the time at which the request will begin to decode: the time when `tokens_before`
        prompt tokens, the request's own included, are computed.
        """
        if self.gate.forecast is not None:
            seconds = tokens_before / self.prefill_times.speed
            self.gate.forecast.expect(tracked.request.id, now + seconds, tracked.request.prompt_tokens)

    def present_loads_of(self, target: str) -> list[InstanceLoad]:
        """Return the load of this target. If this router does not know the target, return the loads of its instance."""
        load = self.loads.get(target)
        return [load] if load is not None else self.present_loads(instance_of(target))

    @property
    def learns_decoding(self) -> bool:
        """Whether the gate or the queues need measured decode step times."""
        return self.gate.weighs_decode or self.parameters.queue_discipline == "deadline"

    def _answer_microseconds(self, request: RoutingRequest) -> int:
        """Return the predicted time, in microseconds, that the request's answer adds to the decode steps of its
        instance, summed over the answer. 0 while step times are unknown.
        """
        tokens = self.answers.expected(request.tenant)
        if request.max_output_tokens:
            tokens = min(tokens, request.max_output_tokens)
        if not tokens or not self.decode_times.known:
            return 0
        step = self.decode_times.seconds(request.prompt_tokens + tokens / 2, 1) - self.decode_times.seconds(0, 0)
        return max(0, int(1e6 * step * tokens))

    def _speed(self) -> float:
        return self.prefill_times.speed

    def _has_time(self) -> bool:
        return self.view.pool_load() < FULL and not self.late.spare_answers

    def _decode_share(self, load: InstanceLoad) -> float:
        """Return the share of an instance's time that this router's prefills must leave free for decodes. 0 in a pool
        without queues, because then no prefill waits for decodes.
        """
        return self.view.share_left_alone(load) if self.table.routing.prefills_in_flight else 0.0

    def _late_may_go(self) -> bool:
        return self.late.may_go(self.parameters, self.table, len(self.view.candidates()), self.view.pool_load(), self.view.routers)

    def _found_late(self, tracked: TrackedRequest) -> None:
        # What was held on purpose is late for that, and is not refused for it; nor is anything by an unseen speed.
        observed = self.prefill_times.observed_speed is not None
        refuse = observed and self.table.early_rejection.mode != "Disabled" and not tracked.held_seconds
        self.late.found(tracked, refuse=refuse and not tracked.continues)

"""Applies a routing table: updates loads, circuits, prefix views and the policy. Requests stay where they are; the
scheduler moves them afterwards.
"""

from dataclasses import replace

from fairlead.instances import InstanceState, Role
from fairlead.routing.admission.gates import build_gate
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.contracts.policies import PolicyInForce
from fairlead.routing.knowledge.estimators import DecodeTimes, PrefillTimes
from fairlead.routing.queues.accounting import Stage, TrackedRequest
from fairlead.routing.scheduling.canaries import canary_of
from fairlead.routing.scheduling.shadows import shadows_of
from fairlead.routing.scheduling.state import SchedulerState, staying
from fairlead.tables import MIGRATIONS_PAUSED, InstanceEntry, RoutingTable
from fairlead.targets import instance_of, rank_of


def take_table(state: SchedulerState, table: RoutingTable, policies: PolicyCatalogue, seed: int) -> None:
    """Use `table` from now on.

    Raises UnknownName or InvalidInput, before anything is changed, if the table's policy or parameters cannot be used,
    and ValueError for another pool's table. If the policy raises an exception when it gets the table, raises this
    exception.
    """
    before = state.table
    if table.pool != before.pool:
        raise ValueError(f"a table of pool {table.pool} was given to the scheduler of {before.pool}")
    parameters = policies.check_parameters(table.routing.policy, table.routing.parameters)
    rehashed = table.engine.block_bytes != before.engine.block_bytes
    rebuilt = rehashed or (table.routing.policy, table.routing.parameters) != (before.routing.policy, before.routing.parameters)
    policy = PolicyInForce.of(policies.build(table.routing, seed)) if rebuilt else state.policy
    if policy.follows_table is not None:
        policy.follows_table.table_changed(table)  # it may be somebody's own and fail
    state.policy = policy
    if state.shadows is None or rehashed or table.routing.shadows != before.routing.shadows:
        state.shadows = shadows_of(table.routing, policies, seed)
    if state.shadows is not None:
        state.shadows.take_table(table)
    if rehashed or table.uid != before.uid:
        for instance in state.prefixes.instances():
            state.prefixes.drop(instance)
            if state.view.kept is not None:
                state.view.kept.lost(instance)
        state.view.told.clear()
        state.view.stored = None
    if table.uid != before.uid:
        state.bindings.clear()
    state.table = state.view.table = table
    state.staying = staying(table)
    state.canary = canary_of(table)
    state.bindings.ttl_seconds = state.names.keep_seconds = table.session.ttl_seconds
    if table.early_rejection.mode != before.early_rejection.mode:
        state.gate = build_gate(table.early_rejection.mode)
        _begin_forecast(state)
    _take_times(state, before, table, parameters)
    state.prefixes.set_capacity(table.engine.kv_cache_tokens // table.engine.block_tokens)
    state.view.told.set_capacity(state.prefixes.capacity_blocks)
    state.take_store(table.engine)
    if parameters != state.parameters or _order(table) != _order(before):
        state.take_order(table)
        state.take_parameters(parameters)
        _rebuild_queues(state)
    state.emptied.clear()
    _take_instances(state, table.instances)
    state.bindings.follow_ranks(state.ranked)
    state.view.invalidate()


def _order(table: RoutingTable) -> tuple[object, ...]:
    """Return the facts of the table that determine the order of queues, apart from the policy's parameters."""
    return table.slo, table.early_rejection.mode, table.priority_classes, table.routing.fairness


def misplaced(state: SchedulerState, now: float) -> list[TrackedRequest]:
    """Return the queued requests that must be placed again: their instance no longer accepts requests, the policy no
    longer allows them to be queued there, or the policy fails. A request that was placed on a decode instance is placed
    again if the instance has become a candidate. The `alternate` of all other queued requests is updated.
    """
    found: list[TrackedRequest] = []
    restricts = None if state.table.routing.migrations == MIGRATIONS_PAUSED else state.policy.restricts_placement
    state.view.candidates()  # so that each load knows whether it is one
    for instance in sorted(state.queues):
        accepting = state.loads[instance].is_candidate(now)
        for tracked in state.queues[instance].in_order(now):
            try:
                allowed = () if restricts is None else restricts.placements(tracked.request)
            except Exception:  # noqa: BLE001  # a policy may be somebody's own; placing the request again tells what it raises
                found.append(tracked)
                continue
            needless = tracked.reason is DecisionReason.DECODE_ONLY and accepting  # the policy chooses here again
            if not accepting or needless or (allowed and instance not in allowed):
                found.append(tracked)
            elif allowed:
                tracked.alternate = next((other for other in allowed if other != instance), None)
    return found


def _take_times(state: SchedulerState, before: RoutingTable, table: RoutingTable, parameters: QueueParameters) -> None:
    """Use the times that the table declares. Measured speeds are kept unless the table belongs to a new pool with the
    same name. Fits restart if their starting values changed. Estimates for requests in flight are kept.
    """
    asked = (parameters.prefill_estimate, parameters.estimate_min_samples)
    is_other = table.uid != before.uid
    told_alike = replace(before.engine, prefill_tokens_per_second=table.engine.prefill_tokens_per_second) == table.engine
    if is_other or not told_alike or asked != (state.parameters.prefill_estimate, state.parameters.estimate_min_samples):
        times = _tokens_per_byte(table) / _tokens_per_byte(before)
        measured = () if is_other else (state.prefill_times.speeds.recounted(times), state.prefill_times.whole.recounted(times))
        state.prefill_times = state.view.prefill_times = PrefillTimes(table.engine, *asked, *measured)
        state.accounting.prefill_seconds = state.prefill_times.seconds
    state.prefill_times.declare(table.engine)
    if is_other or not told_alike:
        state.decode_times = state.view.decode_times = DecodeTimes(table.engine)


def _tokens_per_byte(table: RoutingTable) -> float:
    return table.engine.block_tokens / table.engine.block_bytes


def _begin_forecast(state: SchedulerState) -> None:
    """Add the requests already in flight to the forecast of a new gate."""
    forecast = state.gate.forecast
    if forecast is None:
        return
    for name, tracked in state.accounting.requests.items():
        if tracked.stage is Stage.DECODING:
            began = state.view.now if tracked.first_token_at is None else tracked.first_token_at
            forecast.begin(name, began, tracked.request.prompt_tokens)
        elif tracked.stage is not Stage.HELD:
            forecast.expect(name, state.view.now, tracked.request.prompt_tokens)


def _take_instances(state: SchedulerState, entries: tuple[InstanceEntry, ...]) -> None:
    loads = state.loads
    known: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        if rank_of(entry.id) is not None:
            known[instance_of(entry.id)] = (*known.get(instance_of(entry.id), ()), entry.id)
    state.ranked = known
    for entry in entries:
        load = loads.get(entry.id)
        state.departed.discard(entry.id)
        if load is None:
            load = loads[entry.id] = InstanceLoad(entry=entry, sessions=state.bindings.count(entry.id))
            circuit = state.circuit(entry.id)
            load.broken_until = 0.0 if circuit is None else circuit.broken_until
            continue
        if load.entry.role is Role.PREFILL and entry.role is not Role.PREFILL:
            _decode_in_place(state, entry.id)
        restarted = load.entry.address != entry.address or (load.entry.state is not entry.state and entry.state is InstanceState.LOST)
        load.entry = entry
        if restarted:
            _forget_engine(state, load)
    present = {entry.id for entry in entries}
    serving = {instance_of(instance) for instance in present}
    state.drained -= present
    for instance, load in loads.items():
        if instance not in present and instance not in state.departed:
            if load.entry.state is InstanceState.DRAINING:
                state.drained.add(instance)
            load.entry = replace(load.entry, state=InstanceState.GONE, anchors=0)
            if instance_of(instance) in serving:  # only its ranks are others
                _forget_target(state, load)
            else:
                _forget_engine(state, load)
            state.departed.add(instance)


def count_unlisted(state: SchedulerState, instance: str, address: str = "", role: Role = Role.BOTH) -> None:
    """Make it possible to count requests at an instance that only another router's table (older or newer) contains.

    Until this router's table contains the instance, it is treated like a removed instance: nothing is placed there, and
    it is forgotten when its last request ends.
    """
    if instance not in state.loads:
        entry = InstanceEntry(id=instance, address=address, role=role, state=InstanceState.GONE, anchors=0)
        state.loads[instance] = InstanceLoad(entry=entry, sessions=state.bindings.count(instance))
        state.departed.add(instance)
        state.view.invalidate()


def forget_departed(state: SchedulerState) -> None:
    """Forget instances that left the table. An instance is forgotten after its last request has ended. If it was
    drained, its name is remembered until no session's last binding names it.
    """
    for instance in tuple(state.departed):
        if not state.accounting.in_flight(instance) and not state.loads[instance].transfers_out:
            state.departed.discard(instance)
            state.suspected.discard(instance)
            if all(load.entry.state is InstanceState.GONE for load in state.loads_of(instance)):
                state.circuits.pop(instance_of(instance), None)  # its last requests may have failed after it left
            state.prefill_times.forget(instance)  # or have been answered
            state.decode_times.forget(instance)
            if state.tenants is not None:
                state.tenants.forget(instance)
            del state.loads[instance]
    for instance in tuple(state.drained):
        if instance not in state.departed and not state.bindings.count(instance):
            state.drained.discard(instance)


def _decode_in_place(state: SchedulerState, instance: str) -> None:
    """Let the queued requests of an instance decode on this instance. It was a prefill instance and no longer is."""
    queue = state.queues.get(instance)
    for tracked in () if queue is None else queue.in_order(state.view.now):
        state.accounting.redirect(tracked, None)


def _forget_engine(state: SchedulerState, load: InstanceLoad) -> None:
    _forget_target(state, load)
    state.circuits.pop(instance_of(load.entry.id), None)
    state.transfers.forget(instance_of(load.entry.id))
    state.handovers.forget(instance_of(load.entry.id))
    state.suspected.discard(load.entry.id)
    load.broken_until = 0.0


def _forget_target(state: SchedulerState, load: InstanceLoad) -> None:
    state.prefixes.drop(load.entry.id)
    if state.view.kept is not None:
        state.view.kept.lost(load.entry.id)
    state.view.told.drop(load.entry.id)
    state.prefill_times.forget(load.entry.id)
    state.decode_times.forget(load.entry.id)
    state.caches.ignore(load.entry.id)
    load.is_stalled = False
    load.kv_usage = None
    load.last_first_token_at = None
    load.forget_pace()


def _rebuild_queues(state: SchedulerState) -> None:
    for instance, queue in tuple(state.queues.items()):
        rebuilt = state.new_queue(instance)
        for tracked in queue.in_order(state.view.now):
            state.accounting.forget_late(tracked)
            rebuilt.add(tracked)
        state.queues[instance] = rebuilt

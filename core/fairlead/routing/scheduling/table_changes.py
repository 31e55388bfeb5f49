"""Taking a routing table live: loads, circuits, prefix views and the policy follow it; requests stay where they are (the scheduler moves them)."""

from dataclasses import replace

from fairlead.instances import InstanceState, Role
from fairlead.routing.admission.gates import build_gate
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.contracts.policies import PolicyInForce
from fairlead.routing.knowledge.estimators import DecodeTimes, PrefillTimes
from fairlead.routing.queues.accounting import Stage
from fairlead.routing.scheduling.placing import Placing
from fairlead.tables import InstanceEntry, RoutingTable


def take_table(placing: Placing, table: RoutingTable, policies: PolicyCatalogue, seed: int) -> None:
    """Make `table` the one in force.

    Raises UnknownName or InvalidInput before anything is changed when its policy or parameters cannot be used, ValueError for another pool's table.
    """
    before = placing.table
    if table.pool != before.pool:
        raise ValueError(f"a table of pool {table.pool} was given to the scheduler of {before.pool}")
    parameters = policies.check_parameters(table.routing.policy, table.routing.parameters)
    rehashed = (table.engine.block_tokens, table.engine.bytes_per_token) != (before.engine.block_tokens, before.engine.bytes_per_token)
    rebuilt = rehashed or (table.routing.policy, table.routing.parameters) != (before.routing.policy, before.routing.parameters)
    if rebuilt:
        placing.policy = PolicyInForce.of(policies.build(table.routing, seed))
    if rehashed or table.uid != before.uid:
        for instance in placing.prefixes.instances():
            placing.prefixes.drop(instance)
    if table.uid != before.uid:
        placing.bindings.clear()
    placing.table = placing.view.table = table
    placing.bindings.ttl_seconds = table.session.ttl_seconds
    if table.early_rejection.mode != before.early_rejection.mode:
        placing.gate = build_gate(table.early_rejection.mode)
        _begin_forecast(placing)
    _take_times(placing, before, table, parameters)
    placing.prefixes.set_capacity(table.engine.kv_cache_tokens // table.engine.block_tokens)
    if parameters != placing.parameters or table.slo != before.slo or table.early_rejection.mode != before.early_rejection.mode:
        placing.parameters = parameters
        _rebuild_queues(placing)
    _take_instances(placing, table.instances)
    placing.view.invalidate()
    if placing.policy.follows_table is not None:
        placing.policy.follows_table.table_changed(table)


def _take_times(placing: Placing, before: RoutingTable, table: RoutingTable, parameters: QueueParameters) -> None:
    """Fits start anew when what they start from changed; estimates of requests in flight stay as they were counted."""
    asked = (parameters.prefill_estimate, parameters.estimate_min_samples)
    if table.engine != before.engine or asked != (placing.parameters.prefill_estimate, placing.parameters.estimate_min_samples):
        placing.prefill_times = placing.view.prefill_times = PrefillTimes(table.engine, *asked)
        placing.decode_times = placing.view.decode_times = DecodeTimes(table.engine)


def _begin_forecast(placing: Placing) -> None:
    """Tell a new gate's forecast of the requests already in flight."""
    forecast = placing.gate.forecast
    if forecast is None:
        return
    for name, tracked in placing.accounting.requests.items():
        if tracked.stage is Stage.DECODING:
            began = placing.view.now if tracked.first_token_at is None else tracked.first_token_at
            forecast.begin(name, began, tracked.request.prompt_tokens)
        elif tracked.stage is not Stage.HELD:
            forecast.expect(name, placing.view.now, tracked.request.prompt_tokens)


def _take_instances(placing: Placing, entries: tuple[InstanceEntry, ...]) -> None:
    loads = placing.accounting.loads
    for entry in entries:
        load = loads.get(entry.id)
        placing.departed.discard(entry.id)
        if load is None:
            loads[entry.id] = InstanceLoad(entry=entry, sessions=placing.bindings.count(entry.id))
            continue
        if load.entry.role is Role.PREFILL and entry.role is not Role.PREFILL:
            _decode_in_place(placing, entry.id)
        restarted = load.entry.address != entry.address or (load.entry.state is not entry.state and entry.state is InstanceState.LOST)
        load.entry = entry
        if restarted:
            _forget_engine(placing, load)
    present = {entry.id for entry in entries}
    for instance, load in loads.items():
        if instance not in present and instance not in placing.departed:
            load.entry = replace(load.entry, state=InstanceState.GONE, anchors=0)
            _forget_engine(placing, load)
            placing.departed.add(instance)


def forget_departed(placing: Placing) -> None:
    """Let go of instances that left the table, once their last request has ended."""
    for instance in tuple(placing.departed):
        if not placing.accounting.in_flight(instance) and not placing.accounting.loads[instance].transfers_out:
            placing.departed.discard(instance)
            placing.circuits.pop(instance, None)  # its last requests may have failed after it left
            del placing.accounting.loads[instance]


def _decode_in_place(placing: Placing, instance: str) -> None:
    """What is queued for an instance that no longer only prefills goes nowhere else to decode."""
    queue = placing.queues.get(instance)
    for tracked in () if queue is None else queue.in_order(placing.view.now):
        placing.accounting.redirect(tracked, None)


def _forget_engine(placing: Placing, load: InstanceLoad) -> None:
    placing.prefixes.drop(load.entry.id)
    placing.circuits.pop(load.entry.id, None)
    load.broken_until = 0.0
    load.kv_usage = None
    load.last_first_token_at = None
    load.prefill_pace = 1.0


def _rebuild_queues(placing: Placing) -> None:
    for instance, queue in tuple(placing.queues.items()):
        rebuilt = placing.new_queue(instance)
        for tracked in queue.in_order(placing.view.now):
            placing.accounting.forget_late(tracked)
            rebuilt.add(tracked)
        placing.queues[instance] = rebuilt

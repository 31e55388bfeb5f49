"""Taking a routing table live: loads, circuits, prefix views and the policy follow it; requests stay where they are (the scheduler moves them)."""

from dataclasses import replace

from fairlead.instances import InstanceState
from fairlead.routing.placing import Placing
from fairlead.routing.protocols import InstanceLoad
from fairlead.routing.registry import build_policy, check_parameters
from fairlead.tables import InstanceEntry, RoutingTable


def take_table(placing: Placing, table: RoutingTable, seed: int) -> None:
    """Make `table` the one in force.

    Raises UnknownName or InvalidInput before anything is changed when its policy or parameters cannot be used, ValueError for another pool's table.
    """
    before = placing.table
    if table.pool != before.pool:
        raise ValueError(f"a table of pool {table.pool} was given to the scheduler of {before.pool}")
    parameters = check_parameters(table.routing.policy, table.routing.parameters)
    rehashed = (table.engine.block_tokens, table.engine.bytes_per_token) != (before.engine.block_tokens, before.engine.bytes_per_token)
    rebuilt = rehashed or (table.routing.policy, table.routing.parameters) != (before.routing.policy, before.routing.parameters)
    if rebuilt:
        placing.policy = build_policy(table.routing, seed)
    if rehashed or table.uid != before.uid:
        for instance in placing.prefixes.instances():
            placing.prefixes.drop(instance)
    if table.uid != before.uid:
        placing.bindings.clear()
    placing.table = placing.view.table = table
    placing.bindings.ttl_seconds = table.session.ttl_seconds
    placing.prefixes.set_capacity(table.engine.kv_cache_tokens // table.engine.block_tokens)
    if parameters != placing.parameters:
        placing.parameters = parameters
        _rebuild_queues(placing)
    _take_instances(placing, table.instances)
    placing.view.invalidate()
    placing.policy.table_changed(table)


def _take_instances(placing: Placing, entries: tuple[InstanceEntry, ...]) -> None:
    loads = placing.accounting.loads
    for entry in entries:
        load = loads.get(entry.id)
        placing.departed.discard(entry.id)
        if load is None:
            loads[entry.id] = InstanceLoad(entry=entry, sessions=placing.bindings.count(entry.id))
            continue
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


def _forget_engine(placing: Placing, load: InstanceLoad) -> None:
    placing.prefixes.drop(load.entry.id)
    placing.circuits.pop(load.entry.id, None)
    load.broken_until = 0.0
    load.kv_usage = None
    load.last_first_token_at = None


def _rebuild_queues(placing: Placing) -> None:
    for instance, queue in tuple(placing.queues.items()):
        rebuilt = placing.new_queue()
        for tracked in queue.in_order(placing.view.now):
            rebuilt.add(tracked)
        placing.queues[instance] = rebuilt

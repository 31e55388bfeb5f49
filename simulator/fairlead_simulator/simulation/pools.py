"""The specification of a simulated pool, and the successive versions of its routing table, as the control API makes
them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fairlead.instances import InstanceState, Role
from fairlead.tables import (
    EarlyRejectionFacts,
    EngineFacts,
    InstanceEntry,
    ModelledFacts,
    Outlook,
    PoolKey,
    PriorityClass,
    RoutingFacts,
    RoutingTable,
    SessionFacts,
    SloFacts,
)
from fairlead_simulator.engine_model.kv_memory import PREFIX_BLOCK_TOKENS
from fairlead_simulator.engine_model.presets import EnginePreset

Clients = Literal["in-turn", "random", "session", "prefix"]
"""The distribution of requests over several routers: in turn; at random; by session, like a load balancer that hashes a
cookie; or by the prompt's beginning, like a load balancer that hashes prompts.
"""

POOL = PoolKey(namespace="simulation", name="pool")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPool:
    """The specification of a simulated pool. `instances` is the number of instances that prefill and decode; it is 0 in
    a pool of separate prefill and decode instances.
    """

    preset: EnginePreset
    instances: int
    prefill_instances: int = 0
    decode_instances: int = 0
    policy: str = "dualmap"
    parameters: dict[str, Any] = field(default_factory=dict)
    early_rejection: str = "Disabled"
    headroom: float = 1.0
    prefills_in_flight: int = 1
    fairness: str = "None"
    priority_classes: tuple[PriorityClass, ...] = ()
    anchors: int = 160
    slo_ttft_seconds: float = 5.0
    slo_tpot_seconds: float = 0.1
    speeds: tuple[float, ...] = ()
    """Speeds of the instances as multiples of the preset's speed, in order of the instances' numbers. If there are more
    instances than speeds, the list is repeated. Empty = all instances have the preset's speed.
    """
    weights: tuple[float, ...] = ()
    """Weights of the initial instances on the hash ring; the list is repeated like `speeds`. Empty = all weights are 1.
    Instances that are added later have the weight 1.
    """
    prefill_tokens_per_second: float
    """The prefill speed, in tokens per second, that the router assumes for every instance."""
    fetching: bool = False
    """Whether engines can fetch cached prefix blocks from each other. Engines of a real pool cannot. Independently of
    this, the KV blocks of a prefilled prompt can always be sent to a decode instance.
    """
    copying: bool = False
    """Whether a prefix that many sessions share is copied to more instances ahead of requests; needs `fetching`."""
    knows_decode_times: bool = False
    """Whether the router knows the duration of decode steps from the beginning. The router of a real pool has to fit
    these durations to finished answers.
    """
    session_ttl_seconds: float = 1800.0
    routers: int = 1
    clients: Clients = "in-turn"
    asking_seconds: float | None = None
    """Seconds that a message between routers takes. If given, one router decides for all routers; None = each router
    decides alone.
    """
    told_seconds: float | None = None
    """Seconds from a router's load report, which is sent once a second, until the other routers have it. Load reports
    are used only if each router decides alone. None = routers send no load reports, as when the control API is
    unreachable.
    """
    seed: int = 0

    def preset_of(self, instance: str) -> EnginePreset:
        """Return the engine preset of the instance with this id."""
        return self.preset.at_speed(self.speed_of(instance))

    def speed_of(self, instance: str) -> float:
        """Return the speed of the instance with this id, as a multiple of the preset's speed."""
        number = int(instance[1:].partition("-")[0])
        return self.speeds[number % len(self.speeds)] if self.speeds else 1.0

    def capacity(self, role: Role) -> float:
        """Return the sum of the speeds of the role's initial instances, as multiples of the preset's speed."""
        return sum(self.speed_of(entry.id) for entry in self.first_table().instances if entry.role is role)

    def first_table(self) -> RoutingTable:
        """Return version 1 of the routing table, in which all instances are Serving. The ids of instances contain the
        seed, so that their places on the hash ring differ from seed to seed.
        """
        preset = self.preset
        roles = [Role.BOTH] * self.instances + [Role.PREFILL] * self.prefill_instances + [Role.DECODE] * self.decode_instances
        return RoutingTable(
            pool=POOL,
            uid=f"simulation-{self.seed}",
            version=1,
            generation=1,
            model=preset.name,
            engine=EngineFacts(
                type="simulated",
                port=8000,
                block_tokens=PREFIX_BLOCK_TOKENS,
                prefill_tokens_per_second=self.prefill_tokens_per_second,
                kv_cache_tokens=preset.cache_tokens,
                modelled=self._modelled(),
            ),
            routing=RoutingFacts(
                policy=self.policy,
                parameters=dict(self.parameters),
                prefills_in_flight=self.prefills_in_flight,
                fairness=self.fairness,
            ),
            session=SessionFacts(ttl_seconds=self.session_ttl_seconds),
            slo=SloFacts(ttft_seconds=self.slo_ttft_seconds, tpot_seconds=self.slo_tpot_seconds),
            early_rejection=EarlyRejectionFacts(mode=self.early_rejection, headroom=self.headroom),
            priority_classes=self.priority_classes,
            instances=tuple(self.entry(number, role) for number, role in enumerate(roles)),
        )

    def _modelled(self) -> ModelledFacts:
        decode, transfer = self.preset.decode, self.preset.transfer
        facts = ModelledFacts()
        if self.knows_decode_times:
            facts = replace(
                facts,
                decode_base_seconds=decode.fixed,
                decode_seconds_per_context_token=decode.per_context_token,
                decode_seconds_per_request=decode.per_sequence,
            )
        if self.fetching:
            facts = replace(
                facts,
                kv_bytes_per_token=transfer.bytes_per_token,
                kv_transfer_bytes_per_second=transfer.bytes_per_second,
                kv_transfer_latency_seconds=transfer.latency_seconds,
                copies_prefixes=self.copying,
            )
        return facts

    def entry(self, number: int, role: Role, generation: int = 0) -> InstanceEntry:
        """Return the table entry of the instance with this number. `generation` is part of the instance's address."""
        name = f"{role.value[0]}{number:03d}-{self.seed}"
        return InstanceEntry(
            id=name,
            address=f"{name}.{generation}:8000",
            role=role,
            state=InstanceState.SERVING,
            weight=self.weights[number % len(self.weights)] if self.weights else 1.0,
            anchors=0 if role is Role.DECODE else self.anchors,
        )


def next_table(table: RoutingTable, instances: Iterable[InstanceEntry] | None = None, **changes: Any) -> RoutingTable:
    """Return the next version of the routing table. It has these instances (None = the same instances as before) and
    the new values of the fields in `changes`.
    """
    entries = table.instances if instances is None else tuple(instances)
    return replace(table, version=table.version + 1, instances=entries, outlook=_outlook(entries), **changes)


def _outlook(entries: Iterable[InstanceEntry]) -> Outlook:
    """Return the table's prediction for the case that no instance accepts requests. It is COMING if every instance that
    decodes and does not drain is starting. It is also COMING in a pool without instances, because scaling starts an
    instance when a request arrives. Otherwise it is UNKNOWN.
    """
    taking = [entry for entry in entries if entry.state is not InstanceState.DRAINING and entry.role is not Role.PREFILL]
    return Outlook.COMING if all(entry.state is InstanceState.STARTING for entry in taking) else Outlook.UNKNOWN


def with_state(entry: InstanceEntry, state: InstanceState) -> InstanceEntry:
    """Return the instance's entry with another state. In a state in which the instance does not accept requests, it has
    no anchors on the hash ring.
    """
    changed = replace(entry, state=state)
    return changed if changed.accepting else replace(changed, anchors=0)

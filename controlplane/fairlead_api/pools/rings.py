"""A pool's hash ring for display: shares, imbalance, and the effect of a change of instances. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fairlead.errors import InvalidInput
from fairlead.instances import MAX_REPLICAS, InstanceState, Role
from fairlead.routing.contracts.catalogues import PolicyCatalogue, RingUse
from fairlead.routing.knowledge.ring_changes import expected_sessions, imbalance, moved_shares
from fairlead.routing.knowledge.rings import anchor_count, key_shares
from fairlead.tables import InstanceEntry, RoutingTable
from fairlead_client.resources.rings import KeyMove, Ring, RingChange, RingInstance

MOST_ADDED = 256
MOST_ANCHORS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class RingQuestion:
    """A hypothetical change whose effect on the hash ring is requested: added instances, removed instances, or another
    number of anchors per instance.
    """

    add: int = 0
    remove: tuple[str, ...] = ()
    anchors: int | None = None

    @property
    def asks(self) -> bool:
        return self != RingQuestion()


def ring_of(
    table: RoutingTable, anchors_per_instance: int, bound: Mapping[str, int], policies: PolicyCatalogue, question: RingQuestion
) -> Ring:
    """Return the hash ring of a routing table, with the effect of the hypothetical change in `question`.

    `bound` is the number of bound sessions by instance. Raises InvalidInput if `question` names an instance that is not
    on the ring.
    """
    shares = key_shares(table.instances)
    use = _use(policies, table.routing.policy)
    after = _after(table.instances, anchors_per_instance, question) if question.asks else None
    total = sum(anchor_count(entry) for entry in table.instances)
    then = key_shares(after) if after is not None else {}
    shown = [*table.instances, *(entry for entry in after or () if entry.id not in {one.id for one in table.instances})]
    return Ring(
        pool=str(table.pool),
        policy=table.routing.policy,
        ring_use=use,
        table_version=table.version,
        anchors_per_instance=anchors_per_instance,
        anchors=total,
        imbalance=imbalance(shares, table.instances),
        instances=[
            RingInstance(
                id=entry.id,
                role=entry.role,
                state=entry.state,
                weight=entry.weight,
                anchors=anchor_count(entry) if entry.id in shares else 0,
                key_share=shares.get(entry.id, 0.0),
                fair_share=anchor_count(entry) / total if entry.id in shares else 0.0,
                bound_sessions=bound.get(entry.id, 0),
                share_after=None if after is None else then.get(entry.id, 0.0),
            )
            for entry in shown
        ],
        change=None if after is None else _change(table.instances, after, bound, use),
    )


def _after(instances: Sequence[InstanceEntry], anchors: int, question: RingQuestion) -> list[InstanceEntry]:
    on_ring = {entry.id for entry in instances if anchor_count(entry)}
    for name in question.remove:
        if name not in on_ring:
            raise InvalidInput("remove", name, f"name an instance on the ring: {', '.join(sorted(on_ring)) or 'it is empty'}")
    if not 0 <= question.add <= min(MOST_ADDED, MAX_REPLICAS):
        raise InvalidInput("add", question.add, f"write 0 to {MOST_ADDED}")
    if question.anchors is not None and not 1 <= question.anchors <= MOST_ANCHORS:
        raise InvalidInput("anchors", question.anchors, f"write 1 to {MOST_ANCHORS}")
    wanted = question.anchors or anchors
    role = next((entry.role for entry in instances if entry.role is not Role.DECODE), Role.BOTH)
    new = [
        InstanceEntry(id=f"new-{number}", address="", role=role, state=InstanceState.SERVING, anchors=wanted)
        for number in range(1, question.add + 1)
    ]
    stay = [entry for entry in instances if entry.id not in question.remove]
    return [*(replace(entry, anchors=wanted if entry.anchors else 0) for entry in stay), *new]


def _change(before: Sequence[InstanceEntry], after: Sequence[InstanceEntry], bound: Mapping[str, int], use: RingUse) -> RingChange:
    moves = moved_shares(before, after)
    stay = {entry.id for entry in after}
    leaving = sum(amount for name, amount in bound.items() if name not in stay and name in {entry.id for entry in before})
    staying = {name: amount for name, amount in bound.items() if name in stay}
    following = expected_sessions(moves, key_shares(before), staying) if use is RingUse.EVERY_REQUEST else 0.0
    ordered = sorted(moves.items(), key=lambda item: -item[1])
    return RingChange(
        moved_share=sum(moves.values()),
        sessions_moved=leaving + round(following),
        sessions_leaving=leaving,
        imbalance=imbalance(key_shares(after), after),
        moves=[KeyMove(source=source, target=target, share=share) for (source, target), share in ordered],
    )


def _use(policies: PolicyCatalogue, name: str) -> RingUse:
    """Return the kind of use that the policy with this name makes of the hash ring. An unknown policy counts as not
    using the ring, like the default policy.
    """
    return policies.entry(name).ring if name in policies.names else RingUse.NONE

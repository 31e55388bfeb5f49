"""Sticky: a session stays on the instance that its hash selected first, as long as this instance serves."""

from collections.abc import Sequence
from itertools import islice

from xxhash import xxh3_64_intdigest

from fairlead.reports.bindings import Binding
from fairlead.reports.decisions import Weighing
from fairlead.reports.moves import MoveCause
from fairlead.routing.choosing.binding_reasons import reason_to_leave
from fairlead.routing.choosing.candidates import FALLBACKS, least_pending, less_loaded, nothing, weighed
from fairlead.routing.choosing.terms import HOST_STAYS, NAME_SHARED
from fairlead.routing.contracts.catalogues import PolicyEntry, RingUse
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.weighing import DecisionRule, PolicyTerms
from fairlead.routing.knowledge.rings import HashRing
from fairlead.routing.policies.ear import prefix_session, session_of
from fairlead.tables import RoutingTable


class Sticky:
    """The policy `sticky`. Requests without a session are bound by the hash of their first two blocks, as long as only
    one conversation begins with those blocks.
    """

    name = "sticky"
    binds = True

    def __init__(self) -> None:
        self._ring = HashRing(())

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        session = session_of(request)
        home = None if session is None else view.binding(session)
        host = None if home is None or home.instance is None else view.load(home.instance)
        candidates = view.candidates()
        if host is not None and host.is_candidate(now):
            instance, reason, rule = host.entry.id, DecisionReason.SESSION_BOUND, "host-stays"
            fallbacks = least_pending(candidates, (instance,))
        else:
            nearest = _least_loaded(candidates) if session is None else self._nearest(session, candidates)
            instance, fallbacks = nearest[0], nearest[1:]
            if home is not None:
                reason, rule = DecisionReason.SESSION_HOST_GONE, "host-gone"
            elif request.named is not None:
                reason, rule = DecisionReason.SESSION_NAME_SHARED, "no-session" if session is None else "name-shared"
            else:
                reason, rule = DecisionReason.SESSION_COLD, "first-placement"
        return Decision(
            instance=instance,
            reason=reason if len(candidates) > 1 else DecisionReason.ONLY_INSTANCE,
            fallbacks=fallbacks,
            weigh=weighed(request, view, rule, (instance, *fallbacks), nothing),
            session=session,
        )

    def prefix_session(self, request: RoutingRequest) -> str:
        """See `BindsBeginnings.prefix_session`."""
        return prefix_session(request)

    def cause_to_leave(self, request: RoutingRequest, home: Binding, weighed: Weighing, view: PoolView, now: float) -> MoveCause:
        """See `KeepsHomes.cause_to_leave`. Under this policy the method is never called with a home that takes
        requests, because a session does not leave such a home.
        """
        assert home.instance is not None
        return MoveCause(trigger=reason_to_leave(home.instance, view, now))

    def table_changed(self, table: RoutingTable) -> None:
        """Rebuild the hash ring, which places the first request of a session."""
        self._ring = HashRing.of(table.instances)

    def _nearest(self, session: str, candidates: Sequence[InstanceLoad]) -> tuple[str, ...]:
        """Return the candidates clockwise from the session's position on the ring."""
        able = {load.entry.id for load in candidates}
        walk = self._ring.walk((0, xxh3_64_intdigest(session.encode())))
        nearest = tuple(islice((instance for instance in walk if instance in able), FALLBACKS + 1))
        return nearest or tuple(load.entry.id for load in candidates[: FALLBACKS + 1])


def _least_loaded(candidates: Sequence[InstanceLoad]) -> tuple[str, ...]:
    return tuple(load.entry.id for load in sorted(candidates, key=less_loaded)[: FALLBACKS + 1])


ENTRY = PolicyEntry(
    name=Sticky.name,
    intent="Sessions stay on the instance they were first hashed to.",
    build=lambda parameters, seed: Sticky(),
    ring=RingUse.NEW_SESSIONS,
    terms=PolicyTerms(
        rules=(
            DecisionRule(code="host-stays", because=HOST_STAYS),
            DecisionRule(
                code="first-placement", because="the session is new, and it is the nearest clockwise from the session's place on the ring"
            ),
            DecisionRule(
                code="name-shared",
                because=f"{NAME_SHARED}, and it is the nearest clockwise from the conversation's own place on the ring",
            ),
            DecisionRule(
                code="no-session",
                because=f"{NAME_SHARED}, nothing else identifies its conversation, and it had the fewest tokens waiting",
                order=("pending_tokens",),
            ),
            DecisionRule(
                code="host-gone",
                because="the session's host was gone, and it is the nearest clockwise from the session's place on the ring",
            ),
        )
    ),
)

"""Sticky: a session stays on the instance it was first hashed to, for as long as that serves."""

from collections.abc import Sequence
from itertools import islice

from xxhash import xxh3_64_intdigest

from fairlead.reports.bindings import BindingReason
from fairlead.routing.choosing.binding_reasons import binding_reason
from fairlead.routing.choosing.candidates import FALLBACKS, least_pending, nothing, weighed
from fairlead.routing.choosing.terms import HOST_STAYS
from fairlead.routing.contracts.catalogues import PolicyEntry, RingUse
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.weighing import DecisionRule, PolicyTerms
from fairlead.routing.knowledge.rings import HashRing
from fairlead.routing.policies.ear import prefix_session
from fairlead.tables import RoutingTable


class Sticky:
    """The policy `sticky`. Requests without a session are bound by the hash of their first two blocks."""

    name = "sticky"
    binds = True

    def __init__(self) -> None:
        self._ring = HashRing(())

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        session = request.session or prefix_session(request)
        home = view.binding(session)
        host = None if home is None or home.instance is None else view.load(home.instance)
        candidates = view.candidates()
        if host is not None and host.is_candidate(now):
            instance, reason, rule = host.entry.id, DecisionReason.SESSION_BOUND, "host-stays"
            fallbacks = least_pending(candidates, (instance,))
        else:
            nearest = self._nearest(session, candidates)
            instance, fallbacks = nearest[0], nearest[1:]
            reason, rule = (
                (DecisionReason.SESSION_COLD, "first-placement") if home is None else (DecisionReason.SESSION_HOST_GONE, "host-gone")
            )
        return Decision(
            instance=instance,
            reason=reason if len(candidates) > 1 else DecisionReason.ONLY_INSTANCE,
            fallbacks=fallbacks,
            weigh=weighed(request, view, rule, (instance, *fallbacks), nothing),
            bind=binding_reason(home, instance, BindingReason.INSTANCE_LOST, view, now),
            session=session,
        )

    def table_changed(self, table: RoutingTable) -> None:
        """Rebuild the ring that first assignments go by."""
        self._ring = HashRing.of(table.instances)

    def _nearest(self, session: str, candidates: Sequence[InstanceLoad]) -> tuple[str, ...]:
        """Candidates clockwise from the session's place on the ring."""
        able = {load.entry.id for load in candidates}
        walk = self._ring.walk((0, xxh3_64_intdigest(session.encode())))
        nearest = tuple(islice((instance for instance in walk if instance in able), FALLBACKS + 1))
        return nearest or tuple(load.entry.id for load in candidates[: FALLBACKS + 1])


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
                code="host-gone",
                because="the session's host was gone, and it is the nearest clockwise from the session's place on the ring",
            ),
        )
    ),
)

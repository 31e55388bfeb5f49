"""Shadows: policies that only advise. For a part of the sampled decisions, limited per minute, each shadow also chooses
an instance for the request, and its choice is recorded with the decision.

A shadow is called right after the deciding policy, before the request is counted anywhere, so both see the same state.
Shadows therefore run on the router's own thread, and `ASKED_PER_MINUTE` limits their cost. (A copy of all that a policy
may read would cost more than the choice.) A shadow must not change what the deciding policy sees next. Therefore a
shadow is a separate object with its own dice. It gets the same view, which policies only read. Any exception that it
raises becomes a failed choice.
"""

from dataclasses import replace

from fairlead.errors import InvalidInput, UnknownName
from fairlead.gateway_keys import RateLimit
from fairlead.reports.decisions import ShadowChoice
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.routing.contracts.policies import PolicyInForce
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.knowledge.views import LiveView
from fairlead.tables import RoutingFacts, RoutingTable

ASKED_PER_MINUTE = 30.0
"""Maximum number of decisions per pool, router and minute for which shadows are called."""


class Shadows:
    """The advising policies of one pool. None in place of a policy means that this router cannot call it."""

    def __init__(self, policies: dict[str, PolicyInForce | None]) -> None:
        self._policies = policies
        self._limit = RateLimit(ASKED_PER_MINUTE, 0.0)

    def take_table(self, table: RoutingTable) -> None:
        """Pass a new routing table to the shadows. If a shadow raises an exception, it is not called again until it is
        rebuilt.
        """
        for name, policy in self._policies.items():
            if policy is not None and policy.follows_table is not None:
                try:
                    policy.follows_table.table_changed(table)
                except Exception:  # noqa: BLE001  # it may be somebody's own, and must not keep the table from taking effect
                    self._policies[name] = None

    def ask(self, request: RoutingRequest, chosen: str, view: LiveView, now: float) -> tuple[ShadowChoice, ...]:
        """Return the choice of each shadow for a request sent to `chosen`; empty if the limit per minute is used up."""
        if self._limit.take_if_any(1, now):
            return ()
        return tuple(_choice(name, policy, request, chosen, view, now) for name, policy in self._policies.items())


def _choice(name: str, policy: PolicyInForce | None, request: RoutingRequest, chosen: str, view: LiveView, now: float) -> ShadowChoice:
    if policy is None:
        return ShadowChoice(policy=name, target=None)
    try:
        target = policy.choose(request, view, now).instance
        return ShadowChoice(
            policy=name,
            target=target,
            alike=target == chosen,
            predicted_ttft_seconds=view.predicted_ttft_seconds(request, target),
            hit_tokens=view.hit_tokens(request, target),
            chosen_ttft_seconds=view.predicted_ttft_seconds(request, chosen),
            chosen_hit_tokens=view.hit_tokens(request, chosen),
        )
    except Exception:  # noqa: BLE001  # it may be somebody's own, and must not fail the request
        return ShadowChoice(policy=name, target=None)


def shadows_of(facts: RoutingFacts, policies: PolicyCatalogue, seed: int) -> Shadows | None:
    """Return the advising policies that the table names; None if it names no such policy."""
    built = {one.policy: _built(replace(facts, policy=one.policy, parameters=one.parameters), policies, seed) for one in facts.shadows}
    return Shadows(built) if built else None


def _built(facts: RoutingFacts, policies: PolicyCatalogue, seed: int) -> PolicyInForce | None:
    """Return the policy that the table names. None if this router does not know the policy or cannot build it, or if
    the policy learns online.
    """
    try:
        policy = PolicyInForce.of(policies.build(facts, seed))
    except (UnknownName, InvalidInput):
        return None
    return None if policy.learns_online is not None else policy

"""GatewayReady: the condition that summarizes what gateways report about a pool."""

import pytest

from fairlead.conditions.facts import (
    ActionFailureReason,
    GatewayFacts,
    GatewayJudgement,
    GatewayParent,
    GatewayProblem,
    GatewayProblemReason,
)
from fairlead.conditions.pool_conditions import gateway_ready


def said(kind: str, status: str, reason: str, message: str = "") -> GatewayJudgement:
    return GatewayJudgement(type=kind, status=status, reason=reason, message=message)


TAKEN = said("Accepted", "True", "Accepted")
FOUND = said("ResolvedRefs", "True", "ResolvedRefs")
REFUSED = said("Accepted", "False", "HTTPRouteNotAccepted", "no such listener")
LOST = said("ResolvedRefs", "False", "InvalidExtensionRef", "Service chat-picker not found")
WAITING = said("Accepted", "Unknown", "Pending", "Waiting for controller")


def parents(**judgements: tuple[GatewayJudgement, ...]) -> GatewayFacts:
    return GatewayFacts(parents=tuple(GatewayParent(name=f"Gateway infra/{name}", judgements=said) for name, said in judgements.items()))


@pytest.mark.parametrize(
    ("facts", "status", "reason", "words"),
    [
        (GatewayFacts(), "Unknown", "NoGateway", "name it as a backend of an HTTPRoute"),
        (parents(a=(TAKEN, FOUND)), "True", "Accepted", "Accepted by Gateway infra/a"),
        (parents(a=(TAKEN,), b=(TAKEN, FOUND)), "True", "Accepted", "Accepted by Gateway infra/a, Gateway infra/b"),
        (parents(a=(TAKEN, FOUND), b=(REFUSED, LOST)), "False", "NotAccepted", "Gateway infra/b: HTTPRouteNotAccepted (no such listener)"),
        (parents(a=(TAKEN, LOST)), "False", "RefsNotResolved", "Gateway infra/a: InvalidExtensionRef (Service chat-picker not found)"),
        (parents(a=(TAKEN, FOUND), b=(WAITING,)), "Unknown", "NotJudgedYet", "Gateway infra/b has not reported yet"),
        (parents(a=()), "Unknown", "NotJudgedYet", "Gateway infra/a"),
    ],
)
def test_the_gateways_words_decide_and_are_told(facts: GatewayFacts, status: str, reason: str, words: str) -> None:
    condition = gateway_ready(facts)
    assert (condition.status, condition.reason) == (status, reason)
    assert words in condition.message


@pytest.mark.parametrize("reason", [*GatewayProblemReason, *ActionFailureReason])
def test_what_keeps_the_operator_from_showing_the_pool_goes_before_what_gateways_said(
    reason: GatewayProblemReason | ActionFailureReason,
) -> None:
    facts = GatewayFacts(problem=GatewayProblem(reason=reason, message="do this"), parents=parents(a=(TAKEN, FOUND)).parents)
    condition = gateway_ready(facts)
    assert (condition.status, condition.reason, condition.message) == ("False", reason, "do this")

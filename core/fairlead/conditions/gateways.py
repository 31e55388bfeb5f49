"""GatewayReady: can a gateway send to this pool, and what do those say that are to?

Gateways say it in the status of the GAIE InferencePool, each in an entry of its own: `Accepted`, whether it takes the
pool as a backend, and `ResolvedRefs`, whether it finds the endpoint picker.
"""

from fairlead.conditions.facts import Condition, ConditionType, GatewayFacts, GatewayJudgement, GatewayParent

_ACCEPTED = "Accepted"
_RESOLVED = "ResolvedRefs"


def gateway_ready(facts: GatewayFacts) -> Condition:
    """True when every gateway that routes to the pool takes it and finds its picker."""
    kind = ConditionType.GATEWAY_READY
    if facts.problem is not None:
        return Condition(type=kind, status="False", reason=facts.problem.reason, message=facts.problem.message)
    if not facts.parents:
        message = "No gateway routes to the pool yet: name it as a backend of an HTTPRoute (group inference.networking.k8s.io, kind InferencePool)"
        return Condition(type=kind, status="Unknown", reason="NoGateway", message=message)
    refused = _found(facts, _ACCEPTED, "False")
    if refused:
        return Condition(type=kind, status="False", reason="NotAccepted", message=_told(refused))
    unresolved = _found(facts, _RESOLVED, "False")
    if unresolved:
        return Condition(type=kind, status="False", reason="RefsNotResolved", message=_told(unresolved))
    silent = [parent.name for parent in facts.parents if _judgement(parent, _ACCEPTED) is None]
    if silent:
        message = f"{', '.join(silent)}: no word yet on whether the pool is accepted"
        return Condition(type=kind, status="Unknown", reason="NotJudgedYet", message=message)
    names = ", ".join(parent.name for parent in facts.parents)
    return Condition(type=kind, status="True", reason="Accepted", message=f"Accepted by {names}")


def _judgement(parent: GatewayParent, kind: str) -> GatewayJudgement | None:
    """What a gateway says; None while it says nothing, or that it does not know."""
    return next((one for one in parent.judgements if one.type == kind and one.status in {"True", "False"}), None)


def _found(facts: GatewayFacts, kind: str, status: str) -> list[tuple[str, GatewayJudgement]]:
    told = ((parent.name, _judgement(parent, kind)) for parent in facts.parents)
    return [(name, one) for name, one in told if one is not None and one.status == status]


def _told(found: list[tuple[str, GatewayJudgement]]) -> str:
    """The gateways' own reasons and messages."""
    return "; ".join(f"{name}: {one.reason}{f' ({one.message})' if one.message else ''}" for name, one in found)

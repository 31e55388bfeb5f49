"""Reads what gateways say of a pool, in the status of its GAIE InferencePool. Pure."""

from collections.abc import Mapping
from typing import Any

from fairlead.conditions.facts import GatewayJudgement, GatewayParent

_NOBODY = ("Status", "default")
"""Kind and name of an entry that GAIE before 1.0 wrote while no gateway routed to the pool."""


def gateway_parents(document: Mapping[str, Any]) -> tuple[GatewayParent, ...]:
    """The gateways that route to the pool, in the order of their entries.

    What a gateway said of an earlier generation is left out: it has not looked at this one yet.
    """
    metadata = document["metadata"]
    found = []
    for entry in (document.get("status") or {}).get("parents") or ():
        parent = entry.get("parentRef") or {}
        kind, name = parent.get("kind") or "Gateway", str(parent.get("name") or "")
        if (kind, name) == _NOBODY:
            continue
        judgements = tuple(
            GatewayJudgement(
                type=str(one.get("type")),
                status=str(one.get("status")),
                reason=str(one.get("reason")),
                message=str(one.get("message") or ""),
            )
            for one in entry.get("conditions") or ()
            if int(one.get("observedGeneration") or metadata.get("generation") or 0) >= int(metadata.get("generation") or 0)
        )
        found.append(GatewayParent(name=f"{kind} {parent.get('namespace') or metadata['namespace']}/{name}", judgements=judgements))
    return tuple(found)

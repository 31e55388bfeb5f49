"""What became of an object since a plan was made for it: every change with who made it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fairlead_api.plans.objects import ClusterObject, Target
from fairlead_api.pools.diffs import diff
from fairlead_client.resources.problems import ChangeMeanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecChange:
    """A revision of a pool's spec, as the operator reported it."""

    generation: int
    at: datetime
    actor: str
    reason: str | None
    spec: Mapping[str, Any]


def seen_of(target: Target, part: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """What a plan keeps of the object that it is made for: all that plans may change of it; of an instance, whose other
    annotations are the operator's, what this plan changes.
    """
    return {name: value for name, value in part.items() if not target.kind.is_instance or name in change}


def changes_meanwhile(
    target: Target, before: Mapping[str, Any], found: ClusterObject, change: Mapping[str, Any], known: Sequence[SpecChange]
) -> list[ChangeMeanwhile]:
    """The changes that made of `before` what is there now, oldest first: those `known`, and what is beyond them."""
    path = "".join(f"/{name}" for name in target.kind.path)
    told: list[ChangeMeanwhile] = []
    present: Mapping[str, Any] = before
    for one in known:
        if one.generation <= found.generation and (steps := diff(present, one.spec, path)):
            told.append(ChangeMeanwhile(by=one.actor, at=one.at, reason=one.reason, diff=steps))
            present = one.spec
    if rest := diff(present, seen_of(target, found.part(target.kind), change), path):
        told.append(ChangeMeanwhile(by=found.changed_by, at=found.changed_at, diff=rest))
    return told

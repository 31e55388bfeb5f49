"""`status.scaling`, read and written: what scaling remembers, and its newest decisions. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fairlead.scaling.decisions import ScalingDecisionRecord
from fairlead.scaling.memory import ScalingMemory, is_plausible
from fairlead_operator.merge_patches import drop_nulls

TOLD_SECONDS = 86_400.0
"""A decision stays in the status for a day: long enough for the control API to receive it, and for people to see it."""


def read_memory(status: Mapping[str, Any]) -> ScalingMemory:
    """Scaling's memory from a pool's status; empty where it cannot be read, or cannot have been written by an
    operator.
    """
    try:
        memory = msgspec.convert((status.get("scaling") or {}).get("memory") or {}, ScalingMemory)
    except msgspec.ValidationError:
        return ScalingMemory()
    return memory if is_plausible(memory) else ScalingMemory()


def known_decisions(status: Mapping[str, Any], now: float) -> tuple[ScalingDecisionRecord, ...]:
    """The decisions of the last day in a pool's status; what cannot be read is left out."""
    found = []
    for document in (status.get("scaling") or {}).get("decisions") or ():
        try:
            decision = msgspec.convert(document, ScalingDecisionRecord)
        except msgspec.ValidationError:
            continue
        if now - decision.at < TOLD_SECONDS:
            found.append(decision)
    return tuple(found)


def scaling_status(memory: ScalingMemory, decisions: Sequence[ScalingDecisionRecord]) -> dict[str, Any]:
    """`status.scaling`, without nulls: a merge patch cannot store them."""
    document: dict[str, Any] = {}
    if memory != ScalingMemory():
        document["memory"] = drop_nulls(msgspec.to_builtins(memory))
    if decisions:
        document["decisions"] = drop_nulls(msgspec.to_builtins(decisions))
    return document

"""Pools of engines that run already: nobody here makes or ends an instance, so some changes cannot be made. Pure."""

from collections.abc import Mapping
from types import MappingProxyType

from fairlead_api.services.errors import Conflict
from fairlead_client.resources.plans import PlanKind

ENGINES_FILE = "fairlead.dev/engines-file"
"""The annotation of such a pool, and of each of its instances, that names the file with the engines' addresses."""

_IMPOSSIBLE: Mapping[PlanKind, str] = MappingProxyType(
    {
        PlanKind.SCALE: "the number of instances is the number of engines there; add an engine to the file, or remove one",
        PlanKind.SCHEDULE: "no window can make or end an engine; write slo and earlyRejection in the file",
        PlanKind.SCALING: "no load can make or end an engine; add an engine to the file, or remove one",
        PlanKind.RATIO: "every engine there prefills and decodes",
        PlanKind.ROLLOUT: "it has no template to roll out; restart the engines themselves",
        PlanKind.ROLLBACK: "it has no template to go back to; restart the engines themselves",
    }
)


def engines_file(annotations: Mapping[str, str]) -> str | None:
    """The file that names the pool's engines; None for a pool whose instances are pods."""
    return annotations.get(ENGINES_FILE) or None


def check_possible(kind: PlanKind, annotations: Mapping[str, str]) -> None:
    """Raises Conflict (`engines-are-fixed`) for a kind of plan that needs instances to be made or ended."""
    file, why = engines_file(annotations), _IMPOSSIBLE.get(kind)
    if file is not None and why is not None:
        raise Conflict("engines-are-fixed", f"a plan of kind {kind} is not possible for the engines of {file}: {why}")

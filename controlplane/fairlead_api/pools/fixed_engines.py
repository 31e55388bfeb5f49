"""Pools of engines that run already: Fairlead makes or ends none of them, so some changes are impossible. Pure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fairlead.adoption_specs import ADOPTED_BY_ANNOTATION, ScaleTargetSpec
from fairlead.errors import InvalidInput
from fairlead.schemas.reading import read
from fairlead.selectors import SelectorSpec
from fairlead_api.infra.errors import Conflict
from fairlead_client.resources.plans import PlanKind

ENGINES_FILE = "fairlead.dev/engines-file"
"""The annotation of a pool of `fairlead serve`, and of each of its instances: the file with the engines' addresses."""

_OF_A_FILE: Mapping[PlanKind, str] = MappingProxyType(
    {
        PlanKind.SCALE: "the number of instances is the number of engines there; add an engine to the file, or remove one",
        PlanKind.SCHEDULE: "no window can make or end an engine; write slo and earlyRejection in the file",
        PlanKind.SCALING: "no load can make or end an engine; add an engine to the file, or remove one",
        PlanKind.RATIO: "every engine there prefills and decodes",
        PlanKind.ROLLOUT: "it has no template to roll out; restart the engines themselves",
        PlanKind.ROLLBACK: "it has no template to go back to; restart the engines themselves",
        PlanKind.DELETE: "it is there as long as `fairlead serve` runs; end that",
    }
)
_OF_A_WORKLOAD: Mapping[PlanKind, str] = MappingProxyType(
    {
        PlanKind.SCALE: "they are made and ended by their workload; scale that, or name it in roles[].scaleTargetRef",
        PlanKind.SCALING: "they are made and ended by their workload; scale that, or name it in roles[].scaleTargetRef",
        PlanKind.RATIO: "they are made and ended by their workloads; scale those",
        PlanKind.ROLLOUT: "their workload has the template, and replaces them by its own rules",
        PlanKind.ROLLBACK: "their workload has the template; go back there, as with kubectl rollout undo",
    }
)


_OF_NUMBERS = frozenset({PlanKind.SCALE, PlanKind.SCALING})
"""Kinds of plans that are possible for a workload which the pool scales."""


def engines_file(annotations: Mapping[str, str]) -> str | None:
    """The file that names the pool's engines; None for a pool whose instances are pods."""
    return annotations.get(ENGINES_FILE) or None


def selector_of(spec: Mapping[str, Any]) -> str | None:
    """The labels by which a spec selects running pods, such as `app=vllm`; None where it selects none."""
    found = []
    for role in spec.get("roles") or ():
        try:
            found.append(str(read(SelectorSpec, role["selector"], "selector")))
        except (InvalidInput, KeyError, TypeError):
            continue
    return "; ".join(dict.fromkeys(found)) or None


def scale_target_of(spec: Mapping[str, Any]) -> str | None:
    """The workloads that a spec scales, such as `Deployment vllm`; None where it scales none."""
    found = []
    for role in spec.get("roles") or ():
        try:
            target = read(ScaleTargetSpec, role["scaleTargetRef"], "scaleTargetRef")
        except (InvalidInput, KeyError, TypeError):
            continue
        found.append(f"{target.kind} {target.name}")
    return "; ".join(dict.fromkeys(found)) or None


def is_ended_elsewhere(annotations: Mapping[str, str]) -> bool:
    """Whether an instance with these annotations is a pod of a workload, which a pool adopted."""
    return ADOPTED_BY_ANNOTATION in annotations


def check_possible(kind: PlanKind, spec: Mapping[str, Any], annotations: Mapping[str, str]) -> None:
    """Raises Conflict for a kind of plan that needs instances to be made or ended (`engines-are-fixed`), and for one
    that lists engines where instances are pods (`engines-are-pods`).
    """
    file, selector = engines_file(annotations), selector_of(spec)
    if file is None and kind is PlanKind.ENGINES:
        raise Conflict("engines-are-pods", "the pool has no list of engines, its instances are pods; scale it, or its workload")
    if file is not None and kind in _OF_A_FILE:
        raise Conflict("engines-are-fixed", f"a plan of kind {kind} is not possible for the engines of {file}: {_OF_A_FILE[kind]}")
    if selector is not None and kind in _OF_A_WORKLOAD and not (kind in _OF_NUMBERS and scale_target_of(spec) is not None):
        raise Conflict("engines-are-fixed", f"a plan of kind {kind} is not possible for the pods with {selector}: {_OF_A_WORKLOAD[kind]}")

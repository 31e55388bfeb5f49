"""Pools whose engines already run outside Fairlead. Fairlead neither starts nor stops such engines, so some changes are
impossible. Pure.
"""

from collections.abc import Mapping
from typing import Any

from fairlead.adoption_specs import ADOPTED_BY_ANNOTATION, ScaleTargetSpec
from fairlead.errors import InvalidInput
from fairlead.schemas.reading import read
from fairlead.selectors import SelectorSpec
from fairlead_api.infra.errors import Conflict
from fairlead_client.resources.plan_kinds import PlanKind

ENGINES_FILE = "fairlead.dev/engines-file"
"""The annotation with the path of the file that lists the engines' addresses. It is on a pool of `fairlead serve` and
on each of its instances.
"""


def engines_file(annotations: Mapping[str, str]) -> str | None:
    """Return the path of the file that lists the pool's engines; None for a pool whose instances are pods."""
    return annotations.get(ENGINES_FILE) or None


def selector_of(spec: Mapping[str, Any]) -> str | None:
    """Return the label selector by which a spec selects running pods, such as `app=vllm`; None if the spec selects no
    pods.
    """
    found = []
    for role in spec.get("roles") or ():
        try:
            found.append(str(read(SelectorSpec, role["selector"], "selector")))
        except (InvalidInput, KeyError, TypeError):
            continue
    return "; ".join(dict.fromkeys(found)) or None


def scale_target_of(spec: Mapping[str, Any]) -> str | None:
    """Return the workload that a spec scales, such as `Deployment vllm`; None if the spec scales no workload."""
    found = []
    for role in spec.get("roles") or ():
        try:
            target = read(ScaleTargetSpec, role["scaleTargetRef"], "scaleTargetRef")
        except (InvalidInput, KeyError, TypeError):
            continue
        found.append(f"{target.kind} {target.name}")
    return "; ".join(dict.fromkeys(found)) or None


def is_ended_elsewhere(annotations: Mapping[str, str]) -> bool:
    """Return whether an instance with these annotations is an adopted pod, which is ended by its own workload and not
    by Fairlead.
    """
    return ADOPTED_BY_ANNOTATION in annotations


def check_possible(kind: PlanKind, spec: Mapping[str, Any], annotations: Mapping[str, str]) -> None:
    """Raises Conflict for a plan that would need to start or stop engines that Fairlead does not manage
    (`engines-are-fixed`), or that changes a list of engines although the pool's instances are pods
    (`engines-are-pods`).
    """
    facts, file, selector = kind.facts, engines_file(annotations), selector_of(spec)
    if file is None and facts.pods_refusal:
        raise Conflict("engines-are-pods", facts.pods_refusal)
    if file is not None and facts.file_refusal:
        raise Conflict("engines-are-fixed", f"a plan of kind {kind} is not possible for the engines of {file}: {facts.file_refusal}")
    if selector is not None and facts.workload_refusal and not (facts.for_scale_targets and scale_target_of(spec) is not None):
        raise Conflict("engines-are-fixed", f"a plan of kind {kind} is not possible for the pods with {selector}: {facts.workload_refusal}")

"""Plans whose apply ended between the write and its record, as by a killed process: what the object tells. Pure."""

from dataclasses import replace
from datetime import timedelta

from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.object_marks import CHANGE_REASON, CHANGED_BY, PLAN
from fairlead_api.plans.merge_patches import holds
from fairlead_api.plans.objects import ClusterObject
from fairlead_api.plans.stored_plans import StoredPlan
from fairlead_client.resources.plans import PlanKind

SETTLING = timedelta(seconds=30)
"""An apply that began longer ago and has no end is taken to be nobody's any more."""


def written_generation(stored: StoredPlan, found: ClusterObject | None) -> int | None:
    """The generation that the plan's write made, 0 for a deletion; None when the object shows no write of this plan."""
    is_of_existence = stored.plan.kind is PlanKind.DELETE
    if is_of_existence and not stored.change:
        return 0 if found is None or found.is_deleting or found.uid != stored.uid else None
    if found is None or found.annotations.get(PLAN) != stored.plan.id:
        return None
    if is_of_existence:
        return found.generation
    if found.uid != stored.uid:
        return None
    return found.generation if holds(found.part(stored.object.kind), stored.change) else stored.generation + 1


def draft_of(begun: AuditDraft, found: ClusterObject | None) -> AuditDraft:
    """The entry of the apply that began last, or of the person whose write the object shows, where that is another."""
    actor = None if found is None else found.annotations.get(CHANGED_BY)
    if found is None or actor in {None, begun.actor}:
        return begun
    return replace(begun, actor=str(actor), role="none", reason=found.annotations.get(CHANGE_REASON), request_id=None)

"""Cancels the drain of an instance."""

from fairlead.instance_marks import DRAIN_ANNOTATION
from fairlead_api.plans.changes import mark_kind
from fairlead_api.plans.kinds.drain import DrainQuestion
from fairlead_client.resources.plan_kinds import PlanKind

KIND = mark_kind(PlanKind.UNDRAIN, DRAIN_ANNOTATION, DrainQuestion, sets=False)

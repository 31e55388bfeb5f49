"""Uncordons an instance, which then serves again."""

from fairlead.instance_marks import CORDONED_ANNOTATION
from fairlead_api.plans.changes import mark_kind
from fairlead_api.plans.kinds.cordon import CordonQuestion
from fairlead_client.resources.plan_kinds import PlanKind

KIND = mark_kind(PlanKind.UNCORDON, CORDONED_ANNOTATION, CordonQuestion, sets=False)

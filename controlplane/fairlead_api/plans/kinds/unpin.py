"""Releases a session from its home instance: the policy decides where its next request is sent."""

from fairlead_api.plans.kinds.move import session_kind
from fairlead_client.resources.plan_kinds import PlanKind

KIND = session_kind(PlanKind.UNPIN)

"""Releases a session from its home: the policy places its next request."""

from fairlead_api.plans.kinds.move import session_kind
from fairlead_client.resources.plan_kinds import PlanKind

KIND = session_kind(PlanKind.UNPIN)

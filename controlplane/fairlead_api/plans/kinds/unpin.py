"""Releases a session from its instance: the policy then decides where the session's next request is sent."""

from fairlead_api.plans.kinds.move import session_kind
from fairlead_client.resources.plan_kinds import PlanKind

KIND = session_kind(PlanKind.UNPIN)

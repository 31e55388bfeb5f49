"""The marks that an applied plan leaves on a pool, by which the change is recognised when the operator reports it."""

FIELD_MANAGER = "fairlead-api"
"""The field manager of every change the API makes; the marks count only together with it."""
CHANGED_BY = "fairlead.dev/changed-by"
CHANGE_REASON = "fairlead.dev/change-reason"
PLAN = "fairlead.dev/plan"

"""The kinds of plans. Every other module of this package is a kind, has the kind's name, and describes the kind in
`KIND`.
"""

from functools import cache
from importlib import import_module

import fairlead_api.plans.kinds as kinds
from fairlead_api.plans.changes import Kind
from fairlead_client.resources.plan_kinds import PlanKind


@cache
def kind_of(name: PlanKind) -> Kind:
    """Return the kind of plan with this name, from the module of that name."""
    found: Kind = import_module(f"{kinds.__name__}.{name.value.replace('-', '_')}").KIND
    return found

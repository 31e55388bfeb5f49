"""The kinds of plans. Every other module of this package is a kind, named like the kind and described by its `KIND`."""

from functools import cache
from importlib import import_module

import fairlead_api.plans.kinds as kinds
from fairlead_api.plans.changes import Kind
from fairlead_client.resources.plan_kinds import PlanKind


@cache
def kind_of(name: PlanKind) -> Kind:
    """Return the kind with this name, from its module."""
    found: Kind = import_module(f"{kinds.__name__}.{name.value.replace('-', '_')}").KIND
    return found

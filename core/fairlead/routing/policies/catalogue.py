"""The catalogue of Fairlead's own policies: every other module of this package implements a policy, has the policy's
name, and describes the policy in `ENTRY`.
"""

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

import fairlead.routing.policies as policies
from fairlead.routing.contracts.catalogues import PolicyCatalogue


def _entry_of(module: str) -> Callable[[], object]:
    """Return a function that imports a module of this package when its policy is first used, and returns the policy's
    entry.
    """
    return lambda: import_module(f"{policies.__name__}.{module}").ENTRY


BUILT_IN = PolicyCatalogue(
    {one.name.replace("_", "-"): _entry_of(one.name) for one in iter_modules(policies.__path__) if one.name != "catalogue"}
)
"""Fairlead's own policies. Creating the catalogue does not import the policies' modules, so that reading a spec does
not import numpy for unused policies.
"""

"""Fairlead's own policies: every other module of this package is one, with the policy's name and an `ENTRY` that
describes it.
"""

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

import fairlead.routing.policies as policies
from fairlead.routing.contracts.catalogues import PolicyCatalogue


def _entry_of(module: str) -> Callable[[], object]:
    """Loads a module of this package when its policy is first used."""
    return lambda: import_module(f"{policies.__name__}.{module}").ENTRY


BUILT_IN = PolicyCatalogue(
    {one.name.replace("_", "-"): _entry_of(one.name) for one in iter_modules(policies.__path__) if one.name != "catalogue"}
)
"""Loads no policy: reading a spec must not load numpy for policies that are not used."""

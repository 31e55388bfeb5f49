"""The routing policies that this process knows: Fairlead's own policies and the policies of installed packages.

A package adds a policy with an entry point of the group `fairlead.policies` that has the policy's name and points to
its `PolicyEntry`. Reading the installed packages is I/O, so it happens here and not in the core. Routers, the operator
and the simulator need the package to use the policy, the control API needs it to explain the policy's decisions.
"""

from functools import cache
from importlib.metadata import entry_points

from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.routing.policies.catalogue import BUILT_IN

GROUP = "fairlead.policies"


@cache
def installed_policies() -> PolicyCatalogue:
    """Return the catalogue, built once per process; a policy's module is loaded when it is first used.

    Raises InvalidInput when two policies have the same name.
    """
    return BUILT_IN.extended({point.name: point.load for point in entry_points(group=GROUP)})

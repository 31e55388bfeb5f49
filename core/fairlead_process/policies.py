"""The routing policies of this process: Fairlead's own and those of installed packages.

A package brings one by an entry point of the group `fairlead.policies`, named as the policy and leading to its
`PolicyEntry`. Reading what is installed is I/O, so it happens here and not in the core. Routers, the operator and the
simulator need the package to use the policy, the control API to explain its decisions.
"""

from functools import cache
from importlib.metadata import entry_points

from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.routing.policies.catalogue import BUILT_IN

GROUP = "fairlead.policies"


@cache
def installed_policies() -> PolicyCatalogue:
    """Looked up once per process; a policy's module is loaded when it is first asked for.

    Raises InvalidInput when a name is taken.
    """
    return BUILT_IN.extended({point.name: point.load for point in entry_points(group=GROUP)})

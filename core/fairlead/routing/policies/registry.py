"""Building the policies of the catalogue. Whoever only reads specs imports `catalogue`, which loads none of them."""

from collections.abc import Callable, Mapping
from typing import Any

from fairlead.routing.contracts.policies import Policy
from fairlead.routing.policies.cache_affinity import CacheAffinity
from fairlead.routing.policies.cache_load_linear import CacheLoadLinear
from fairlead.routing.policies.catalogue import check_parameters
from fairlead.routing.policies.dualmap import DualMap
from fairlead.routing.policies.dynamo import Dynamo
from fairlead.routing.policies.ear import Ear
from fairlead.routing.policies.fairlead import Fairlead
from fairlead.routing.policies.heimdall import Heimdall
from fairlead.routing.policies.least_loaded import LeastLoaded
from fairlead.routing.policies.least_request import LeastRequest
from fairlead.routing.policies.lmetric import LMetric
from fairlead.routing.policies.min_ttft import MinTtft
from fairlead.routing.policies.mooncake import Mooncake
from fairlead.routing.policies.preble import Preble
from fairlead.routing.policies.prefix_cache_load import PrefixCacheLoad
from fairlead.routing.policies.prefix_cache_threshold import PrefixCacheThreshold
from fairlead.routing.policies.random import RandomChoice
from fairlead.routing.policies.round_robin import RoundRobin
from fairlead.routing.policies.static_pd import StaticPd
from fairlead.routing.policies.sticky import Sticky
from fairlead.tables import RoutingFacts

BUILDERS: Mapping[str, Callable[[Any, int], Policy]] = {
    "fairlead": lambda parameters, seed: Fairlead(parameters),
    "round-robin": lambda parameters, seed: RoundRobin(seed),
    "least-loaded": lambda parameters, seed: LeastLoaded(),
    "cache-affinity": lambda parameters, seed: CacheAffinity(parameters),
    "dualmap": lambda parameters, seed: DualMap(parameters),
    "ear": lambda parameters, seed: Ear(parameters),
    "random": lambda parameters, seed: RandomChoice(seed),
    "least-request": lambda parameters, seed: LeastRequest(seed),
    "min-ttft": lambda parameters, seed: MinTtft(),
    "sticky": lambda parameters, seed: Sticky(),
    "prefix-cache-load": PrefixCacheLoad,
    "prefix-cache-threshold": PrefixCacheThreshold,
    "lmetric": lambda parameters, seed: LMetric(),
    "dynamo": lambda parameters, seed: Dynamo(parameters),
    "cache-load-linear": lambda parameters, seed: CacheLoadLinear(parameters),
    "heimdall": Heimdall,
    "preble": lambda parameters, seed: Preble(parameters),
    "mooncake": lambda parameters, seed: Mooncake(parameters),
    "static-pd": lambda parameters, seed: StaticPd(parameters),
}
"""How each policy of the catalogue is built from its parameters and a seed."""


def build_policy(facts: RoutingFacts, seed: int) -> Policy:
    """The policy a table names, with its parameters; deterministic given `seed`. Raises as `check_parameters`. Call `table_changed` before use."""
    parameters = check_parameters(facts.policy, facts.parameters)
    return BUILDERS[facts.policy](parameters, seed)

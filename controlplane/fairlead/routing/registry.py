"""Policies by name: their parameter schemas, the check of a person's parameters, and building one for a pool."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.errors import UnknownName
from fairlead.routing.parameters import ParameterFacts, QueueParameters, parameter_facts, read_parameters
from fairlead.routing.policies.cache_affinity import CacheAffinity
from fairlead.routing.policies.dualmap import DualMap, DualMapParameters
from fairlead.routing.policies.ear import Ear, EarParameters
from fairlead.routing.policies.key_parameters import KeyParameters
from fairlead.routing.policies.least_loaded import LeastLoaded
from fairlead.routing.policies.round_robin import RoundRobin
from fairlead.routing.protocols import Policy
from fairlead.tables import RoutingFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    """A registered policy: one line of intent, its parameter dataclass, and how to build it from parameters and a seed."""

    name: str
    intent: str
    parameters: type[QueueParameters]
    build: Callable[[Any, int], Policy]


_POLICIES: dict[str, PolicyEntry] = {
    entry.name: entry
    for entry in (
        PolicyEntry(
            name="round-robin",
            intent="Every instance in turn, whatever it holds or has to do.",
            parameters=QueueParameters,
            build=lambda parameters, seed: RoundRobin(seed),
        ),
        PolicyEntry(
            name="least-loaded",
            intent="The instance with the fewest uncached prompt tokens pending.",
            parameters=QueueParameters,
            build=lambda parameters, seed: LeastLoaded(),
        ),
        PolicyEntry(
            name="cache-affinity",
            intent="Equal prefixes to one instance by consistent hashing, whatever its load.",
            parameters=KeyParameters,
            build=lambda parameters, seed: CacheAffinity(parameters),
        ),
        PolicyEntry(
            name="dualmap",
            intent="Two candidates per prefix; the cached one unless that endangers the SLO; queued requests migrate within their pair.",
            parameters=DualMapParameters,
            build=lambda parameters, seed: DualMap(parameters),
        ),
        PolicyEntry(
            name="ear",
            intent="Sessions stay on their host and migrate off it only when it is hot.",
            parameters=EarParameters,
            build=lambda parameters, seed: Ear(parameters),
        ),
    )
}


def policy_names() -> tuple[str, ...]:
    """Names that `spec.routing.policy` may have, in order of registration."""
    return tuple(_POLICIES)


def policy_entry(name: str) -> PolicyEntry:
    """The registered policy of that name. Raises UnknownName."""
    entry = _POLICIES.get(name)
    if entry is None:
        raise UnknownName("policy", name, policy_names())
    return entry


def policy_parameters(name: str) -> tuple[ParameterFacts, ...]:
    """The parameter schema of a policy. Raises UnknownName."""
    return parameter_facts(policy_entry(name).parameters)


def check_parameters(policy: str, parameters: Mapping[str, Any]) -> QueueParameters:
    """Typed parameters of `policy`, defaults applied.

    Raises UnknownName for the policy, InvalidInput (`spec.routing.parameters.<name>`) for an unknown parameter, a wrong type or a value out of bounds.
    """
    return read_parameters(policy_entry(policy).parameters, parameters, policy)


def build_policy(facts: RoutingFacts, seed: int) -> Policy:
    """The policy a table names, with its parameters; deterministic given `seed`. Raises as `check_parameters`. Call `table_changed` before use."""
    return policy_entry(facts.policy).build(check_parameters(facts.policy, facts.parameters), seed)

"""The policies by name, as data: what each is for, its parameters, the roles it needs. Building one is `registry`'s; nothing here loads numpy."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.errors import InvalidInput, UnknownName
from fairlead.instances import Role
from fairlead.routing.choosing.key_parameters import KeyParameters
from fairlead.routing.contracts.parameters import ParameterFacts, QueueParameters, parameter_facts, read_parameters
from fairlead.routing.policies.policy_parameters import (
    CacheLoadLinearParameters,
    DualMapParameters,
    DynamoParameters,
    EarParameters,
    FairleadParameters,
    HeimdallParameters,
    MooncakeParameters,
    PrebleParameters,
    PrefixCacheLoadParameters,
    PrefixCacheThresholdParameters,
    StaticPdParameters,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    """A policy: one line of intent and its parameter dataclass.

    `needs_roles` are those a pool must have for the policy to make sense; empty = any pool.
    """

    name: str
    intent: str
    parameters: type[QueueParameters]
    needs_roles: tuple[Role, ...] = ()


_POLICIES: dict[str, PolicyEntry] = {
    entry.name: entry
    for entry in (
        PolicyEntry(
            name="fairlead",
            intent="Prefix affinity that grows with load, and queues that keep what can be in time in time.",
            parameters=FairleadParameters,
        ),
        PolicyEntry(
            name="round-robin",
            intent="Every instance in turn, whatever it holds or has to do.",
            parameters=QueueParameters,
        ),
        PolicyEntry(
            name="least-loaded",
            intent="The instance with the fewest uncached prompt tokens pending.",
            parameters=QueueParameters,
        ),
        PolicyEntry(
            name="cache-affinity",
            intent="Equal prefixes to one instance by consistent hashing, whatever its load.",
            parameters=KeyParameters,
        ),
        PolicyEntry(
            name="dualmap",
            intent="Two candidates per prefix; the cached one unless that endangers the SLO; queued requests migrate within their pair.",
            parameters=DualMapParameters,
        ),
        PolicyEntry(
            name="ear",
            intent="Sessions stay on their host and migrate off it only when it is hot.",
            parameters=EarParameters,
        ),
        PolicyEntry(
            name="random",
            intent="Any instance, each as likely.",
            parameters=QueueParameters,
        ),
        PolicyEntry(
            name="least-request",
            intent="The instance with the fewest requests.",
            parameters=QueueParameters,
        ),
        PolicyEntry(
            name="min-ttft",
            intent="The instance predicted to give the first token soonest.",
            parameters=QueueParameters,
        ),
        PolicyEntry(
            name="sticky",
            intent="Sessions stay on the instance they were first hashed to.",
            parameters=QueueParameters,
        ),
        PolicyEntry(
            name="prefix-cache-load",
            intent="The longest match that is not crowded; the fewest requests when the pool is out of balance.",
            parameters=PrefixCacheLoadParameters,
        ),
        PolicyEntry(
            name="prefix-cache-threshold",
            intent="The longest match when it covers enough of the prompt, else the fewest requests.",
            parameters=PrefixCacheThresholdParameters,
        ),
        PolicyEntry(
            name="lmetric",
            intent="The smallest product of prefill tokens and batch size.",
            parameters=QueueParameters,
        ),
        PolicyEntry(
            name="dynamo",
            intent="The cached share of the prompt less the load, both normalised.",
            parameters=DynamoParameters,
        ),
        PolicyEntry(
            name="cache-load-linear",
            intent="A weighted sum of the cached share of the prompt and idleness.",
            parameters=CacheLoadLinearParameters,
        ),
        PolicyEntry(
            name="heimdall",
            intent="Weighted scorers for queue, KV cache and precise prefix; the highest sum wins.",
            parameters=HeimdallParameters,
        ),
        PolicyEntry(
            name="preble",
            intent="Follow a prefix that is most of the prompt; else the least recent work, eviction and prefill.",
            parameters=PrebleParameters,
        ),
        PolicyEntry(
            name="mooncake",
            intent="The shortest predicted TTFT, fetching a prefix that another instance holds much better.",
            parameters=MooncakeParameters,
        ),
        PolicyEntry(
            name="static-pd",
            intent="Prefill where the least is pending, decode where the least KV is held.",
            parameters=StaticPdParameters,
            needs_roles=(Role.PREFILL, Role.DECODE),
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


def check_roles(policy: str, roles: Collection[Role]) -> None:
    """Raises InvalidInput when a pool with instances of these roles cannot use the policy, UnknownName for the policy."""
    missing = [role for role in policy_entry(policy).needs_roles if role not in roles]
    if missing:
        words = " and ".join(role.value for role in missing)
        remedy = f"it needs instances of role {words}, and spec.roles accepts only both today; choose another policy"
        raise InvalidInput("spec.routing.policy", policy, remedy)

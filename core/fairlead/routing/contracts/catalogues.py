"""Catalogues: the policies that a pool may use, with their purposes, their parameters and their constructors.

The names of all policies are known from the start. An entry is loaded when it is first used, so that a process loads
only the policies of its pools. Policies from other packages are added by `PolicyCatalogue.extended`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from fairlead.errors import InvalidInput, UnknownName
from fairlead.instances import Role
from fairlead.routing.contracts.parameters import QueueParameters, parameter_shapes, read_parameters
from fairlead.routing.contracts.weighing import PolicyTerms
from fairlead.schemas.shapes import Shape
from fairlead.tables import RoutingFacts

if TYPE_CHECKING:  # a policy's view has vectors, and whoever only reads specs must not load numpy
    from fairlead.routing.contracts.policies import Policy

POLICY_FIELD = "spec.routing.policy"


class RingUse(StrEnum):
    """A policy's use of the hash ring, which determines which requests and sessions move when the ring changes.

    `none`: the policy does not use the ring · `new-sessions`: the ring places only a session's first request ·
    `every-request`: the ring places every request, so a bound session follows its key to another instance.
    """

    NONE = "none"
    NEW_SESSIONS = "new-sessions"
    EVERY_REQUEST = "every-request"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    """A policy's entry in the catalogue: its purpose in one line, its constructor (which takes parameters and a seed),
    the terms that it records with its decisions, and its use of the hash ring.

    `needs_roles` are the roles that a pool must have for this policy; empty = any pool. `presets` maps each value of
    the parameter `preset` to defaults of other parameters.
    """

    name: str
    intent: str
    build: Callable[[Any, int], "Policy"]
    terms: PolicyTerms
    parameters: type[QueueParameters] = QueueParameters
    needs_roles: tuple[Role, ...] = ()
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ring: RingUse = RingUse.NONE


class PolicyCatalogue:
    """The policies by name. `sources` maps each name to a function that loads the policy's entry."""

    def __init__(self, sources: Mapping[str, Callable[[], object]]) -> None:
        self._sources = dict(sources)
        self._entries: dict[str, PolicyEntry] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The values that `spec.routing.policy` may have."""
        return tuple(self._sources)

    def extended(self, others: Mapping[str, Callable[[], object]]) -> "PolicyCatalogue":
        """Return this catalogue with further policies. Raises InvalidInput when one of their names is already taken."""
        taken = sorted(others.keys() & self._sources.keys())
        if taken:
            raise InvalidInput(
                "entry point fairlead.policies", taken[0], "Fairlead has a policy of this name; give your policy another name"
            )
        return PolicyCatalogue(self._sources | dict(others))

    def entry(self, name: str) -> PolicyEntry:
        """Return the entry of the policy with that name.

        Raises UnknownName for an unknown name, and InvalidInput when the package that provides the policy cannot be
        used.
        """
        known = self._entries.get(name)
        if known is None:
            known = self._entries[name] = self._load(name)
        return known

    def parameters(self, name: str) -> dict[str, Shape]:
        """Return the shape of each parameter of a policy, by the parameter's name. Raises the same errors as
        `entry`.
        """
        return parameter_shapes(self.entry(name).parameters)

    def terms(self, name: str) -> PolicyTerms | None:
        """Return the terms that are recorded with a policy's decisions; None if this process does not know the
        policy.
        """
        try:
            return self.entry(name).terms
        except (UnknownName, InvalidInput):
            return None

    def check_parameters(self, name: str, parameters: Mapping[str, Any]) -> QueueParameters:
        """Return the typed parameters of a policy, with defaults for missing parameters.

        Raises the errors of `entry`, and InvalidInput (`spec.routing.parameters.<name>`) for an unknown parameter, a
        wrong type or a value out of bounds.
        """
        entry = self.entry(name)
        given = {field: value for field, value in parameters.items() if value is not None}
        return read_parameters(entry.parameters, {**entry.presets.get(str(given.get("preset")), {}), **given}, name)

    def check_roles(self, name: str, roles: Collection[Role]) -> None:
        """Check that a pool with these roles can use the policy. Raises InvalidInput if it cannot, and the errors of
        `entry`.
        """
        missing = [role for role in self.entry(name).needs_roles if role not in roles]
        if missing:
            words = " and ".join(role.value for role in missing)
            remedy = f"it needs instances of role {words}; choose another policy, or declare these roles in spec.roles"
            raise InvalidInput(POLICY_FIELD, name, remedy)

    def check(self, facts: RoutingFacts, roles: Collection[Role]) -> None:
        """Check that a pool with these roles can use the policy, its parameters and the policies that only advise.
        Raises InvalidInput, with the field of the spec, if it cannot.
        """
        self._check(facts, roles)
        for place, shadow in enumerate(facts.shadows):
            advising = replace(facts, policy=shadow.policy, parameters=shadow.parameters)
            try:
                self._check(advising, roles)
                if self.learns(advising):
                    remedy = "it learns from the results of its choices, and choices of a shadow have no results; name a policy that does not learn"
                    raise InvalidInput(POLICY_FIELD, shadow.policy, remedy)
            except InvalidInput as error:
                field = error.field.replace("spec.routing.", f"spec.routing.shadows[{place}].", 1)
                raise InvalidInput(field, error.value, error.remedy) from error

    def _check(self, facts: RoutingFacts, roles: Collection[Role]) -> None:
        try:
            self.check_roles(facts.policy, roles)
        except UnknownName as error:
            raise InvalidInput(POLICY_FIELD, error.name, f"choose one of {', '.join(sorted(error.known))}") from error
        self.check_parameters(facts.policy, facts.parameters)

    def build(self, facts: RoutingFacts, seed: int) -> "Policy":
        """Build the policy that a routing table names, with its parameters. The policy is deterministic given `seed`.

        Raises the errors of `check_parameters`, and InvalidInput if the policy cannot be built.
        """
        parameters = self.check_parameters(facts.policy, facts.parameters)
        try:
            policy = self.entry(facts.policy).build(parameters, seed)
        except InvalidInput:
            raise
        except Exception as error:  # another package's code may raise anything
            raise InvalidInput(POLICY_FIELD, facts.policy, f"it cannot be built ({error!r}); repair it or choose another policy") from error
        if getattr(policy, "binds", False) is True and not callable(getattr(policy, "cause_to_leave", None)):
            remedy = "it binds sessions to homes but lacks cause_to_leave; implement that method, or choose another policy"
            raise InvalidInput(POLICY_FIELD, facts.policy, remedy)
        return policy

    def keeps_homes(self, facts: RoutingFacts) -> bool:
        """Return whether the policy that a routing table names binds sessions to the instances where it places them.
        Raises the errors of `check_parameters`.
        """
        return getattr(self.build(facts, 0), "binds", False) is True

    def learns(self, facts: RoutingFacts) -> bool:
        """Return whether the policy that a routing table names learns online; False if the policy cannot be built in
        this process.
        """
        try:
            return hasattr(self.build(facts, 0), "learner_settings")
        except (UnknownName, InvalidInput):
            return False

    def _load(self, name: str) -> PolicyEntry:
        source = self._sources.get(name)
        if source is None:
            raise UnknownName("policy", name, self.names)
        try:
            loaded = source()
        except Exception as error:  # another package's code may raise anything
            raise InvalidInput(
                POLICY_FIELD, name, f"its package cannot be loaded ({error!r}); repair it or choose another policy"
            ) from error
        if not isinstance(loaded, PolicyEntry) or loaded.name != name:
            raise InvalidInput(POLICY_FIELD, name, f"its entry point must name a PolicyEntry called {name}; repair its package")
        return loaded

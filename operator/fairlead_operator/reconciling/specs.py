"""Finds a pool's spec in force and the changes in it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fairlead.conditions.facts import ConditionType, SpecProblem, SpecRefusal
from fairlead.errors import InvalidInput
from fairlead.pools import PoolSpec, parse_spec
from fairlead.role_specs import without_marks
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.scaling.specs import RatioMethod, RatioMode
from fairlead.schemas.writing import differences, written
from fairlead_operator.merge_patches import without_nulls

TOLD_SECTIONS = (
    ("routing", "PolicyChanged", "Routing"),
    ("slo", "SLOChanged", "SLO"),
    ("earlyRejection", "EarlyRejectionChanged", "Early rejection"),
)
"""Sections of the spec whose changes are reported, each with its name in the document, the reason code of the event,
and the section's name for people.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecInForce:
    """A pool's spec in force.

    `spec` and `document` are None if no spec was ever in force; `problem` says why the newest spec is not in force;
    `previous` is the spec that was in force before.
    """

    spec: PoolSpec | None
    document: dict[str, Any] | None
    generation: int | None
    problem: SpecProblem | None
    previous: PoolSpec | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecChange:
    """One change between two specs, for events and history. `member` names the section of the spec that differs."""

    member: str
    reason: str
    message: str
    before: dict[str, Any]
    after: dict[str, Any]


class AcceptedSpecs:
    """Parses and checks one pool's specs. The last accepted spec is kept, so that it need not be parsed again in each
    round.
    """

    def __init__(self, policies: PolicyCatalogue) -> None:
        self._policies = policies
        self._known: tuple[Mapping[str, Any], PoolSpec] | None = None

    def accept(self, document: Mapping[str, Any]) -> PoolSpec:
        """Return the spec of a document. Raises InvalidInput."""
        meant = without_nulls(document)
        if self._known is None or self._known[0] != meant:
            self._known = (meant, accept(meant, self._policies))
        return self._known[1]

    def accept_again(self, document: Mapping[str, Any]) -> PoolSpec:
        """Return the spec of a document that this or a former version accepted. Raises InvalidInput.

        Former versions also accepted templates with labels or annotations that belong to a single pod. A pool with such
        a template keeps the template unchanged, because another template would replace its instances.
        """
        try:
            return self.accept(document)
        except InvalidInput:
            cleaned = accept(without_marks(without_nulls(document)), self._policies)
        given = {role["name"]: role for role in without_nulls(document)["roles"]}
        roles = (
            replace(role, template=given[role.name].get("template"), worker_template=given[role.name].get("workerTemplate"))
            for role in cleaned.roles
        )
        return replace(cleaned, roles=tuple(roles))


def read_spec_in_force(pool: Mapping[str, Any], specs: AcceptedSpecs) -> SpecInForce:
    """Read the spec in force from a pool object. While the object's spec is refused, the last valid spec, which the
    status stores, stays in force.
    """
    generation = int(pool["metadata"].get("generation") or 0)
    kept = (pool.get("status") or {}).get("specInForce") or {}
    previous = _reread(kept.get("spec"), specs)
    document = pool.get("spec") or {}
    try:
        spec = specs.accept(document)
    except InvalidInput as error:
        problem = SpecProblem(reason=_reason(error), message=str(error))
        if previous is None:
            return SpecInForce(spec=None, document=None, generation=None, problem=problem, previous=None)
        return SpecInForce(spec=previous, document=kept["spec"], generation=kept.get("generation"), problem=problem, previous=previous)
    return SpecInForce(spec=spec, document=without_nulls(document), generation=generation, problem=None, previous=previous)


def accept(document: Mapping[str, Any], policies: PolicyCatalogue) -> PoolSpec:
    """Parse and check a spec: schema, cross-field rules, and the policy's name, roles and parameters.

    Raises InvalidInput.
    """
    spec = parse_spec(document)
    policies.check(spec.routing, {role.name for role in spec.roles})
    _check_flips(spec)
    _check_labels(spec)
    return spec


def _check_labels(spec: PoolSpec) -> None:
    """Check the names in `matchLabels`, which a schema cannot check. Raises InvalidInput."""
    for place, role in enumerate(spec.roles):
        name = role.selector.bad_name() if role.selector is not None else None
        if name is not None:
            remedy = "a label's name has at most 63 letters, digits, -, _ and ., with an optional domain and / before it"
            raise InvalidInput(f"spec.roles[{place}].selector.matchLabels", name, remedy)


def _check_flips(spec: PoolSpec) -> None:
    """Check that instances can change their role while they run, if the spec sets the ratio by such role flips. This
    needs instances of a single node, and equal templates of both roles, because a running engine keeps its arguments.

    Raises InvalidInput if flips are set but not possible.
    """
    flips = [path for path, ratio in spec.ratios() if ratio.mode is RatioMode.AUTO and ratio.method is RatioMethod.ROLE_FLIP]
    if not flips:
        return
    groups = next((f"spec.roles[{place}].nodes" for place, role in enumerate(spec.roles) if role.spans > 1), None)
    if groups is not None:
        remedy = f"write Replace: an instance of several nodes ({groups}) keeps its role"
        raise InvalidInput(f"spec.{flips[0]}.method", RatioMethod.ROLE_FLIP.value, remedy)
    templates = [written(role).get("template") or {} for role in spec.roles]
    found = sorted(differences(templates[0], templates[-1]))
    if found:
        remedy = f"write Replace, or make roles[].template equal for prefill and decode: they differ in {', '.join(found)}"
        raise InvalidInput(f"spec.{flips[0]}.method", RatioMethod.ROLE_FLIP.value, remedy)


def _reread(document: object, specs: AcceptedSpecs) -> PoolSpec | None:
    """Return the spec of a document that was accepted before; None if this version of the operator refuses it."""
    if not isinstance(document, Mapping):
        return None
    try:
        return specs.accept_again(document)
    except InvalidInput:
        return None


def _reason(error: InvalidInput) -> SpecRefusal:
    return SpecRefusal.INVALID_ROUTING if error.field.startswith("spec.routing") else SpecRefusal.INVALID_SPEC


def is_refusal_reported(pool: Mapping[str, Any], in_force: SpecInForce) -> bool:
    """Return whether the status says already that this generation is refused."""
    generation = int(pool["metadata"].get("generation") or 0)
    return in_force.problem is not None and any(
        condition.get("type") == "Ready"
        and condition.get("reason") == in_force.problem.reason
        and condition.get("observedGeneration") == generation
        for condition in (pool.get("status") or {}).get("conditions") or ()
    )


def was_refused(pool: Mapping[str, Any]) -> bool:
    """Return whether the condition Ready in the pool's status says that a spec is refused."""
    return any(
        condition.get("type") == ConditionType.READY and condition.get("reason") in set(SpecRefusal)
        for condition in (pool.get("status") or {}).get("conditions") or ()
    )


def changes(before: PoolSpec | None, after: PoolSpec | None) -> tuple[SpecChange, ...]:
    """Return the changes to report when a new spec comes into force; none for a pool's first spec.

    Changes of numbers of instances are not included, because schedules and the load decide these numbers too (see
    `roles.scale_steps`).
    """
    if before is None or after is None or before == after:
        return ()
    found = []
    old_spec, new_spec = written(before), written(after)
    for member, reason, title in TOLD_SECTIONS:
        old, new = old_spec[member], new_spec[member]
        if old != new:
            words = "; ".join(f"{path} {was} → {now}" for path, (was, now) in differences(old, new).items())
            found.append(SpecChange(member=member, reason=reason, message=f"{title}: {words}", before=old, after=new))
    return tuple(found)

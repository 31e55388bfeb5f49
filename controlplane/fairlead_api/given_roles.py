"""Roles that the settings give to people and groups of an identity provider. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fairlead_client.resources.access import AccessRole, Rights

OIDC = "oidc"
"""Source of identities of the identity provider."""

NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A namespace's name, as Kubernetes takes it."""

EVERYBODY = "*"
"""Stands for all whom the identity provider signs in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRole:
    """A role of one person or group: in `namespace`, or in all of them with None."""

    role: AccessRole
    who: str
    namespace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRoles:
    """All that the settings give. Who is not named has no role."""

    to_people: tuple[GivenRole, ...] = ()
    to_groups: tuple[GivenRole, ...] = ()

    def of(self, name: str, groups: Iterable[str]) -> tuple[AccessRole, Rights]:
        """The highest role of somebody in all namespaces, and higher ones of single namespaces."""
        member_of = frozenset(groups)
        held = [one for one in self.to_people if one.who in {name, EVERYBODY}] + [one for one in self.to_groups if one.who in member_of]
        everywhere, single = AccessRole.NONE, Rights()
        for one in held:
            if one.namespace is None:
                everywhere = _higher(everywhere, one.role)
            else:
                single[one.namespace] = _higher(single.get(one.namespace, AccessRole.NONE), one.role)
        return everywhere, {namespace: role for namespace, role in sorted(single.items()) if not everywhere.reaches(role)}


def _higher(one: AccessRole, other: AccessRole) -> AccessRole:
    return one if one.reaches(other) else other

"""Settings of sign-in by an identity provider (OpenID Connect), read once from the environment, and the roles that
these settings give to the provider's people and groups.
"""

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from fairlead.errors import InvalidInput
from fairlead_client.resources.access import PEOPLE, AccessRole, Rights
from fairlead_process.environment import variable
from fairlead_process.kinds import Parsed, Text

OIDC = "oidc"
"""The `source` of identities that the identity provider signs in."""

NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A pattern of the names that Kubernetes accepts for namespaces."""

EVERYBODY = "*"
"""The name that stands, in a setting of roles, for every person whom the identity provider signs in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRole:
    """A role that the settings give to one person or group: in `namespace`, or in all namespaces if `namespace` is
    None.
    """

    role: AccessRole
    who: str
    namespace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRoles:
    """All roles that the settings give. A person without an entry has no role."""

    to_people: tuple[GivenRole, ...] = ()
    to_groups: tuple[GivenRole, ...] = ()

    def of(self, name: str, groups: Iterable[str]) -> tuple[AccessRole, Rights]:
        """Return a person's highest role for all namespaces, and the higher roles that the person has in single
        namespaces.
        """
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


_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_AFTER_A_QUOTE = re.compile(r'"\s+,')
_WANTED = "role:name or role@namespace:name, with commas"
_EXAMPLE = "write role:name or role@namespace:name with a role of viewer, operator, admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """Settings of the identity provider that signs people in, and the roles that people get. `issuer` and `client_id`
    must be given together.
    """

    issuer: str | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_OIDC_ISSUER",
            Parsed(lambda text: parse_issuer(text), "https://id.example.com", "URL"),
            "the identity provider's issuer URL, exactly as in its tokens; `/.well-known/openid-configuration` below this URL is read",
            default_shown="none",
        ),
    )
    client_id: str | None = field(
        default=None,
        metadata=variable(
            "FAIRLEAD_OIDC_CLIENT_ID",
            Text("the client's id"),
            "the id of Fairlead's client at the identity provider; its redirect URI there is `<public URL>/login/oidc/answer`",
            default_shown="none",
        ),
    )
    client_secret: str | None = field(
        default=None,
        repr=False,
        metadata=variable(
            "FAIRLEAD_OIDC_CLIENT_SECRET",
            Text("the client's secret", secret=True),
            "the client's secret",
            "without one the client is a public one, and PKCE alone protects its codes",
            default_shown="none",
        ),
    )
    scopes: str = field(
        default="openid profile email",
        metadata=variable(
            "FAIRLEAD_OIDC_SCOPES",
            Parsed(lambda text: parse_scopes(text), "openid and further scopes with spaces"),
            "the requested scopes, separated by spaces",
            "many providers send groups only for a scope, such as `groups`",
        ),
    )
    name_claim: str = field(
        default="email",
        metadata=variable(
            "FAIRLEAD_OIDC_NAME_CLAIM",
            Text("a claim"),
            "the claim that names a person in rights and audit",
            "`email` counts only if the provider says `email_verified`; `sub` never changes, but people do not recognise it",
        ),
    )
    groups_claim: str = field(
        default="groups",
        metadata=variable("FAIRLEAD_OIDC_GROUPS_CLAIM", Text("a claim"), "the claim that lists a person's groups"),
    )
    to_people: tuple[GivenRole, ...] = field(
        default=(),
        metadata=variable(
            "FAIRLEAD_OIDC_PEOPLE",
            Parsed(lambda text: parse_given("FAIRLEAD_OIDC_PEOPLE", text), _WANTED, "`role:name`, `role@namespace:name` with commas"),
            f"roles of people by name; the name `{EVERYBODY}` is everybody",
            "a person without a role may sign in and sees nothing",
            default_shown="none",
        ),
    )
    to_groups: tuple[GivenRole, ...] = field(
        default=(),
        metadata=variable(
            "FAIRLEAD_OIDC_GROUPS",
            Parsed(lambda text: parse_given("FAIRLEAD_OIDC_GROUPS", text), _WANTED, "`role:group`, `role@namespace:group` with commas"),
            "roles of groups, such as `admin:platform,operator@team-a:ml-team`; an entry with a comma in it stands in double quotes, as "
            '`"admin:CN=ml,OU=Groups,DC=corp"`',
            "a person's groups are those at sign-in; this setting applies to everybody who is signed in",
            default_shown="none",
        ),
    )

    @property
    def given(self) -> GivenRoles:
        return GivenRoles(to_people=self.to_people, to_groups=self.to_groups)

    def check(self, mode: str) -> None:
        """Raises InvalidInput if `mode` is oidc and a needed setting is missing, or if `mode` is not oidc and a setting
        is given.
        """
        if mode != "oidc":
            if self != OidcSettings():
                raise InvalidInput("FAIRLEAD_AUTH_MODE", mode, "write oidc, or remove the variables FAIRLEAD_OIDC_…")
            return
        for name, value in (("FAIRLEAD_OIDC_ISSUER", self.issuer), ("FAIRLEAD_OIDC_CLIENT_ID", self.client_id)):
            if value is None:
                raise InvalidInput(name, "", "set it, as FAIRLEAD_AUTH_MODE is oidc")


def parse_issuer(text: str) -> str:
    """Return the issuer's URL unchanged: an https URL, or an http URL of this machine. Raises ValueError,
    InvalidInput.
    """
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError(text)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise InvalidInput(
            "FAIRLEAD_OIDC_ISSUER", text, "write an https:// address: with http://, an eavesdropper could sign in as any user"
        )
    return text


def parse_scopes(text: str) -> str:
    """Return the OpenID scopes, separated by single spaces. Raises ValueError if `openid` is missing."""
    scopes = text.split()
    if "openid" not in scopes:
        raise ValueError(text)
    return " ".join(scopes)


def _entries(variable_name: str, text: str) -> list[str]:
    """Split the entries at commas and at ends of lines. A manifest's block of text has one entry per line."""
    try:
        return next(csv.reader([_AFTER_A_QUOTE.sub('",', ",".join(text.splitlines()))], skipinitialspace=True, strict=True), [])
    except csv.Error:
        raise InvalidInput(variable_name, text, 'end each entry that begins with a double quote by one: "admin:CN=ml,DC=corp"') from None


def parse_given(variable_name: str, text: str) -> tuple[GivenRole, ...]:
    """Parse `role:name,role@namespace:name,…` into roles. An entry that contains a comma, such as a group's LDAP name,
    must be in double quotes. Raises InvalidInput for the first invalid entry.
    """
    found = []
    for number, part in enumerate((one.strip() for one in _entries(variable_name, text) if one.strip()), 1):
        place, colon, who = part.partition(":")
        role, at, namespace = place.partition("@")
        if not colon or not who.strip() or role not in PEOPLE or (at and not NAMESPACE.fullmatch(namespace)):
            raise InvalidInput(variable_name, part, f"{_EXAMPLE} (entry {number})")
        found.append(GivenRole(role=AccessRole(role), who=who.strip(), namespace=namespace if at else None))
    return tuple(found)

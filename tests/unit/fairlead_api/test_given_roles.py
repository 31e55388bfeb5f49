"""Roles that the settings give to people and groups of an identity provider."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead_api.oidc_settings import GivenRole, GivenRoles, parse_given, parse_issuer
from fairlead_api.settings import read_settings
from fairlead_client.resources.access import PEOPLE, AccessRole, Identity

BASE = {"FAIRLEAD_DATABASE_URL": "postgresql+psycopg://x@127.0.0.1/none"}
OIDC = {"FAIRLEAD_AUTH_MODE": "oidc", "FAIRLEAD_OIDC_ISSUER": "https://id.example.com", "FAIRLEAD_OIDC_CLIENT_ID": "fairlead"}

WHO = st.sampled_from(["a", "b", "c", "*"])
GIVEN = st.builds(GivenRole, role=st.sampled_from(PEOPLE), who=WHO, namespace=st.sampled_from([None, "x", "y"]))


def roles(people: str = "", groups: str = "") -> GivenRoles:
    return GivenRoles(to_people=parse_given("P", people), to_groups=parse_given("G", groups))


def test_who_is_not_named_has_no_role() -> None:
    assert roles("admin:ann@example.com", "viewer:staff").of("bob@example.com", ["Staff", "ann@example.com"]) == (AccessRole.NONE, {})


def test_the_highest_of_all_that_names_somebody_holds_and_namespaces_only_add_to_it() -> None:
    found = roles("viewer:*, admin@team-a:ann@example.com", "operator:ops, viewer@team-b:ops, operator@team-a:ops")
    assert found.of("ann@example.com", ["ops"]) == (AccessRole.OPERATOR, {"team-a": AccessRole.ADMIN})
    assert found.of("bob@example.com", []) == (AccessRole.VIEWER, {})


def test_the_star_names_people_and_no_group() -> None:
    assert roles(groups="admin:*").of("ann@example.com", ["staff"]) == (AccessRole.NONE, {})


@given(st.lists(GIVEN), st.lists(GIVEN), st.sets(st.sampled_from(["a", "b", "c"])))
def test_somebody_may_in_a_namespace_what_the_best_rule_that_names_them_there_or_everywhere_says(
    people: list[GivenRole], groups: list[GivenRole], member_of: set[str]
) -> None:
    role, namespaces = GivenRoles(to_people=tuple(people), to_groups=tuple(groups)).of("a", member_of)
    who = Identity(subject="a", role=role, source="oidc", expires_at=None, namespaces=namespaces)
    naming = [one for one in people if one.who in {"a", "*"}] + [one for one in groups if one.who in member_of]
    for namespace in ("x", "y", "z"):
        for needed in PEOPLE:
            assert who.reaches(needed, namespace) == any(one.role.reaches(needed) for one in naming if one.namespace in {None, namespace})


@pytest.mark.parametrize(
    "text", ["ann", "root:ann", "none:ann", "system-router:ann", "admin:", "admin@:ann", "admin@Team:ann", "viewer:a, x"]
)
def test_what_is_no_role_of_somebody_is_refused_by_its_number(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^FAIRLEAD_OIDC_PEOPLE: .*role@namespace:name.*\(entry \d\)"):
        parse_given("FAIRLEAD_OIDC_PEOPLE", text)


@pytest.mark.parametrize(
    "text",
    [
        '"admin:CN=ml,DC=corp",viewer:b',
        '"admin:CN=ml,DC=corp" , viewer:b',
        '"admin:CN=ml,DC=corp",\nviewer:b\n',
        '"admin:CN=ml,DC=corp"\r\n  viewer:b\r\n',
    ],
)
def test_entries_may_stand_on_lines_of_their_own(text: str) -> None:
    assert [(one.role, one.who) for one in parse_given("FAIRLEAD_OIDC_GROUPS", text)] == [("admin", "CN=ml,DC=corp"), ("viewer", "b")]


@pytest.mark.parametrize("name", ["CN=ml,OU=Groups,DC=corp", "a, b", "CORP\\ml", "urn:group:a", "/team/ml", 'says "x"'])
def test_an_entry_in_double_quotes_may_have_commas(name: str) -> None:
    quoted = '"admin:' + name.replace('"', '""') + '"'
    assert [one.who for one in parse_given("G", f"viewer:staff, {quoted},operator@team-a:ops")] == ["staff", name, "ops"]


def test_an_entry_whose_quotes_do_not_end_is_refused() -> None:
    with pytest.raises(InvalidInput, match="end each entry that begins with a double quote by one"):
        parse_given("FAIRLEAD_OIDC_GROUPS", '"admin:CN=ml')


def test_names_may_have_colons() -> None:
    assert parse_given("P", "admin:urn:group:a")[0].who == "urn:group:a"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"FAIRLEAD_AUTH_MODE": "oidc"}, "FAIRLEAD_OIDC_ISSUER"),
        ({**OIDC, "FAIRLEAD_OIDC_CLIENT_ID": ""}, "FAIRLEAD_OIDC_CLIENT_ID"),
        ({**OIDC, "FAIRLEAD_AUTH_MODE": "bootstrap"}, "FAIRLEAD_AUTH_MODE"),
        ({"FAIRLEAD_OIDC_PEOPLE": "admin:ann"}, "FAIRLEAD_AUTH_MODE"),
        ({**OIDC, "FAIRLEAD_OIDC_ISSUER": "http://id.example.com"}, "FAIRLEAD_OIDC_ISSUER"),
        ({**OIDC, "FAIRLEAD_OIDC_ISSUER": "id.example.com"}, "FAIRLEAD_OIDC_ISSUER"),
        ({**OIDC, "FAIRLEAD_OIDC_SCOPES": "email"}, "FAIRLEAD_OIDC_SCOPES"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused_by_name(changes: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{named}: "):
        read_settings({**BASE, **changes})


def test_settings_that_fit_are_read_and_an_issuer_stands_as_it_is_written() -> None:
    found = read_settings({**BASE, **OIDC, "FAIRLEAD_OIDC_GROUPS": "operator@team-a:ml", "FAIRLEAD_OIDC_SCOPES": "openid  groups"})
    assert found.oidc.given.of("x", ["ml"]) == (AccessRole.NONE, {"team-a": AccessRole.OPERATOR})
    assert (found.oidc.scopes, found.oidc.client_secret) == ("openid groups", None)
    assert parse_issuer("https://id.example.com/realms/a/") == "https://id.example.com/realms/a/"
    assert parse_issuer("http://127.0.0.1:8000") == "http://127.0.0.1:8000"

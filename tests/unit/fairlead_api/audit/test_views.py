"""Saved views of the audit log: what they may contain, who sees them, who may write them, and how many there are."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fairlead.errors import InvalidInput
from fairlead_api.audit.views import MOST_OWN, MOST_SHARED, admitted, changed, new_view, role_to_write, seen, visible
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.errors import Conflict
from fairlead_client.resources.access import AccessRole, Identity
from fairlead_client.resources.audit import AuditKind, AuditView, AuditViewChange, AuditViewRequest

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


def caller(subject: str, role: AccessRole = AccessRole.VIEWER, **namespaces: AccessRole) -> Caller:
    identity = Identity(subject=subject, role=role, source="token", expires_at=None, namespaces=namespaces)
    return Caller(identity=identity, key=b"", request_id="r")


ADA, EVE = caller("ada", AccessRole.OPERATOR), caller("eve", AccessRole.NONE, default=AccessRole.VIEWER)


def view(number: int = 0, by: Caller = ADA, **fields: object) -> AuditView:
    values = {"name": f"view {number}", "start": "now-7d", **fields}
    return new_view(f"view-{number}", AuditViewRequest(**values), by, NOW)  # type: ignore[arg-type]  # of any field


def test_a_views_filters_are_the_query_of_the_audit_log() -> None:
    made = view(pool="default/chat", kind=AuditKind.HUMAN, action="plan.*", start="now-7d", end="now")
    assert made.query == {"pool": "default/chat", "kind": "human", "action": "plan.*", "from": "now-7d", "to": "now"}
    assert view(start=None).query == {}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("name", bad) for bad in ("", "  ", "x" * 101, "a\x00b", "a\nb")),
        *((field, bad) for field in ("actor", "action", "object", "pool") for bad in ("", "x" * 301, "a\x1bb")),
        ("pool", "chat"),
        *((field, bad) for field in ("start", "end") for bad in ("2026-11-21T10:00:00Z", "yesterday", "", "7d")),
    ],
)
def test_what_a_view_cannot_contain_is_refused_by_its_field(field: str, value: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        view(0, ADA, **{field: value})
    assert caught.value.field == field


@pytest.mark.parametrize(("start", "end"), [("now-x", None), ("now-1h", "now-2h"), ("now", "now")])
def test_a_range_that_is_none_is_refused(start: str, end: str | None) -> None:
    with pytest.raises(InvalidInput):
        view(start=start, end=end)


def test_a_shared_view_is_seen_by_those_who_see_its_pool_and_an_own_one_by_its_owner() -> None:
    everything, nowhere = caller("bob"), caller("zoe", AccessRole.NONE, other=AccessRole.ADMIN)
    cases = {
        (None, False): {"ada"},
        (None, True): {"ada", "bob"},
        ("default/chat", False): {"ada"},
        ("default/chat", True): {"ada", "bob", "eve"},
        ("other/code", True): {"ada", "bob", "zoe"},
    }
    for (pool, shared), who in cases.items():
        made = view(pool=pool, shared=shared)
        assert {one.identity.subject for one in (ADA, EVE, everything, nowhere) if visible(made, one)} == who, (pool, shared)
    assert [one.name for one in seen([view(2, shared=True), view(1), view(0, everything)], ADA)] == ["view 1", "view 2"]


def test_who_shares_needs_operator_and_who_changes_anothers_needs_admin() -> None:
    private, shared = view(), view(shared=True)
    assert role_to_write(private, private, ADA) is None
    assert role_to_write(private, shared, ADA) is AccessRole.OPERATOR
    assert role_to_write(shared, replace(shared, name="new"), ADA) is AccessRole.OPERATOR
    assert role_to_write(shared, private, ADA) is role_to_write(shared, None, ADA) is None
    assert role_to_write(shared, None, EVE) is role_to_write(shared, private, EVE) is AccessRole.ADMIN


def test_a_change_keeps_what_it_does_not_name_and_names_something() -> None:
    before = view(pool="default/chat")
    assert changed(before, AuditViewChange(name=" new ")) == replace(before, name="new")
    assert changed(before, AuditViewChange(shared=True)) == replace(before, shared=True)
    for bad in (AuditViewChange(), AuditViewChange(name="")):
        with pytest.raises(InvalidInput):
            changed(before, bad)


def test_names_are_unique_by_owner_and_views_are_bounded_by_owner_and_where_shared() -> None:
    admitted(view(0), [view(1), view(0, EVE, shared=True)])
    with pytest.raises(Conflict) as caught:
        admitted(view(2, name="view 1"), [view(1)])
    assert caught.value.code == "view-exists"
    own = [view(n) for n in range(MOST_OWN - 1)]
    admitted(view(99), own)
    shared = [view(n, EVE, shared=True) for n in range(MOST_SHARED)]
    admitted(view(99), shared)
    for new, others in ((view(99), [*own, view(98)]), (view(99, shared=True), shared)):
        with pytest.raises(Conflict) as caught:
            admitted(new, others)
        assert caught.value.code == "too-many-views"

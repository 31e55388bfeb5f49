"""Saved views on the audit page: links with their filters, saved, changed and deleted there."""

from fairlead_client.resources.audit import AuditKind
from fairlead_testing.running.web_client import Visitor, visitor

FILTERED = "/audit?action=plan.*&kind=human&from=now-2w&to=now-1d"


def mine(one: Visitor, owner: str = "operator-person") -> list[str]:
    return [view.name for view in one.fake.audit_views.views if view.owner == owner]


async def test_a_view_is_saved_from_the_pages_filters_and_is_a_link_with_them() -> None:
    async with visitor("viewer") as viewer:
        answer = await viewer.submit(FILTERED, FILTERED, name="changes by people")
        made = viewer.fake.audit_views.views[-1]
        assert (made.action, made.kind, made.shared) == ("plan.*", AuditKind.HUMAN, False)
        assert made.query == {"action": "plan.*", "kind": "human", "from": "now-14d", "to": "now-1d"}
        link = "/audit?kind=human&action=plan.%2A&from=now-14d&to=now-1d"
        assert (answer.status_code, answer.headers["location"]) == (303, link)
        page = (await viewer.http.get(link)).text
        assert f'href="{link.replace("&", "&amp;")}" aria-current="true"' in page


async def test_a_pools_audit_page_saves_its_pool_and_a_range_of_dates_is_left_out() -> None:
    async with visitor("operator") as operator:
        path = "/pools/default/chat/audit?from=2026-11-20T10:00:00Z&to=2026-11-21T09:00:00Z"
        assert "whose ends are fixed" in (await operator.http.get(path)).text
        await operator.submit(path, path, name="chat", shared="1")
        made = operator.fake.audit_views.views[-1]
        assert (made.query, made.shared) == ({"pool": "default/chat"}, True)


async def test_a_shown_view_is_renamed_shared_and_deleted() -> None:
    async with visitor("operator") as operator:
        await operator.submit("/audit?action=login", "/audit?action=login", name="logins")
        made = operator.fake.audit_views.views[-1]
        shown = "/audit?" + "&".join(f"{name}={value}" for name, value in made.query.items())
        assert "Change this view" in (await operator.http.get(shown)).text
        await operator.submit(shown, shown, saved=made.id, name="all logins", shared="1")
        assert (operator.fake.audit_views.views[-1].name, operator.fake.audit_views.views[-1].shared) == ("all logins", True)
        await operator.submit(shown, shown, saved=made.id, name="all logins", act="delete")
        assert "all logins" not in mine(operator)


async def test_a_refused_view_keeps_its_name_and_the_pages_filters() -> None:
    async with visitor("viewer") as viewer:
        answer = await viewer.submit(FILTERED, FILTERED, name="my logins")
        assert answer.status_code == 409
        assert "already has a view" in answer.text and 'value="my logins"' in answer.text and "<details open>" in answer.text
        assert 'action="/audit?action=plan.%2A&amp;kind=human&amp;from=now-2w&amp;to=now-1d"' in answer.text


async def test_only_who_may_write_a_view_has_its_form_and_only_who_may_share_has_the_box() -> None:
    shared = "/audit?action=plan.*&from=now-7d"
    for role, changes, shares in (("viewer", False, False), ("operator", True, True), ("admin", True, True)):
        async with visitor(role) as one:
            page = (await one.http.get(shared)).text
            assert ("Change this view" in page, 'name="shared"' in page) == (changes, shares), role
            assert ("my logins" in page) is (role == "viewer")


async def test_the_page_is_shown_without_views_when_they_cannot_be_read() -> None:
    async with visitor("viewer") as viewer:
        viewer.fake.broken.add("/v1/audit-views")
        page = (await viewer.http.get("/audit")).text
        assert "saved views: " in page and "Save this view" in page

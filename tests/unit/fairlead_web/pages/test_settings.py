"""The page of settings: tokens and login links shown once, preferences kept in cookies."""

import re

import pytest

from fairlead_testing.running.web_client import visitor
from fairlead_web.pages import settings


async def test_a_new_tokens_secret_is_shown_once() -> None:
    async with visitor("admin") as admin:
        made = await admin.submit("/settings/tokens", name="ci", role="viewer", days="30")
        assert "flt_shown_once" in made.text
        assert made.headers["cache-control"] == "no-store"
        assert "flt_shown_once" not in (await admin.http.get("/settings")).text
        link = await admin.submit("/settings/login-links", subject="grace", role="viewer")
        assert "http://127.0.0.1:8080/login?token=flt_new" in link.text
        for days in ("²", "9" * 5000):
            assert (await admin.submit("/settings/tokens", name="ci", role="viewer", days=days)).status_code == 422
        wrong = await admin.submit("/settings/tokens", name="ci", role="viewer", days="900")
        assert wrong.status_code == 422
        assert "write a whole number from 1 to 365" in wrong.text


async def test_a_refused_form_keeps_what_was_typed_above_all_its_namespaces() -> None:
    async with visitor("admin") as admin:
        asked = {"name": "deploy", "role": "operator", "namespaces": "Team_A team-b", "days": "900"}
        page = (await admin.submit("/settings/tokens", **asked)).text
        assert all(f'value="{asked[name]}"' in page for name in ("name", "namespaces", "days"))
        assert page.count("<option selected>operator</option>") == 1, "of the form for tokens alone"
        link = (await admin.submit("/settings/login-links", subject="", role="admin", namespaces="team-b")).text
        assert 'value="team-b"' in link
        assert "<option selected>admin</option>" in link
        assert 'value="90"' in link, "the other form begins anew"


async def test_every_token_can_be_seen_and_revoked_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "PAGE_ROWS", 1)
    async with visitor("admin") as admin:
        seen, pages, address = set[str](), 0, "/settings"
        while address:
            page = (await admin.http.get(address)).text
            pages += 1
            seen.update(re.findall(r"/settings/tokens/([^/]+)/revoke", page))
            following = re.search(r'href="(/settings\?cursor=[^"]+)" rel="next"', page)
            address = following.group(1) if following else ""
        tokens = admin.fake.world.tokens()
    assert pages == len(tokens) > 1
    assert seen == {one.id for one in tokens if not one.revoked_at}


async def test_preferences_are_kept_in_cookies_and_unknown_ones_ignored() -> None:
    async with visitor() as operator:
        answer = await operator.submit("/settings", theme="dark", time="utc", shortcuts="maybe", next="//evil.example")
        assert answer.headers["location"] == "/"
        cookies = answer.headers.get_list("set-cookie")
        assert [cookie.split(";")[0] for cookie in cookies] == ["fairlead-theme=dark", "fairlead-time=utc"]
        page = await operator.http.get("/help")
        assert all(attribute in page.text for attribute in ('data-theme="dark"', 'data-time="utc"', 'data-shortcuts="on"'))


async def test_a_row_of_a_later_page_leads_back_to_that_page() -> None:
    async with visitor("admin") as admin:
        token = next(one.id for one in admin.fake.world.tokens() if not one.revoked_at)
        answer = await admin.submit(f"/settings/tokens/{token}/revoke?cursor=1&sessions=2")
    assert answer.headers["location"] == "/settings?cursor=1&sessions=2"

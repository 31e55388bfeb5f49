"""Keys of the gateway's clients as people make and revoke them, in a real browser."""

import pytest
from playwright.sync_api import Page

from fairlead_testing.running.browser_site import RunningSite

pytestmark = pytest.mark.browser

SECRET = "flk_shown-once"


def test_a_key_is_made_its_secret_is_seen_once_and_it_is_revoked_after_a_question(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/keys")
    new = page.locator("form[action$='/keys/new']")
    new.get_by_role("textbox", name="Name", exact=True).fill("team-x")
    new.get_by_label("Pools").fill("default/chat")
    new.get_by_label("Requests a minute").fill("600")
    page.get_by_role("button", name="Create key").click()
    page.wait_for_selector("text=Key team-x created")
    assert SECRET in page.inner_text("[role=status]")
    row = page.locator("tbody tr", has_text="team-x")
    assert "default/chat" in row.inner_text()
    assert "600 requests" in row.inner_text()

    for address in (page.url, f"{site.url}/keys"):
        page.goto(address)
        assert row.is_visible()
        assert SECRET not in page.content()

    row.get_by_role("button", name="Revoke").click()
    assert "Revoke the key team-x?" in page.locator("dialog").inner_text()
    page.get_by_role("button", name="Cancel").click()
    page.locator("dialog").wait_for(state="detached")
    assert not any(method == "DELETE" for method, _ in site.fake.requests), "the answer was no"

    row.get_by_role("button", name="Revoke").click()
    page.get_by_role("button", name="Continue").click()
    row.get_by_text("revoked").wait_for()
    assert row.get_by_role("button", name="Revoke").count() == 0


def test_a_key_that_is_there_is_allowed_to_have_decisions_kept_and_forbidden_again(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/keys")
    row = page.locator("tbody tr").first
    assert row.locator("[data-label=Explains]").inner_text().split()[0] == "no"
    row.get_by_role("button", name="Allow").click()
    row.get_by_role("button", name="Forbid").wait_for()
    assert row.locator("[data-label=Explains]").inner_text().split()[0] == "yes"
    row.get_by_role("button", name="Forbid").click()
    row.get_by_role("button", name="Allow").wait_for()
    assert [method for method, path in site.fake.requests if path.startswith("/v1/gateway-keys/")] == ["PATCH", "PATCH"]

"""A real browser keeps all decisions of a session, finds kept ones, and shows a request's outcome."""

import pytest
from playwright.sync_api import Page

from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.browser_site import RunningSite
from fairlead_web.text.addresses import session_path

pytestmark = pytest.mark.browser


def test_a_button_keeps_all_decisions_of_a_session_for_ten_minutes_and_another_ends_it(page: Page, site: RunningSite) -> None:
    session = next(one.session for one in site.fake.world.sessions() if one.pool == CHAT)
    page.goto(f"{site.url}{session_path(CHAT, session)}")
    told = page.locator("#kept")
    assert "a sample of the other requests" in told.inner_text()
    page.get_by_role("button", name="Keep all its decisions for 10 minutes").click()
    told.get_by_text("All are kept until").wait_for()
    assert "requested by operator-person" in told.inner_text()
    assert ("POST", f"/v1/pools/{CHAT}/kept-sessions") in site.fake.requests
    page.get_by_role("button", name="Stop", exact=True).click()
    told.get_by_text("a sample of the other requests").wait_for()
    page.reload()
    assert "a sample of the other requests" in told.inner_text()


def test_decisions_are_found_by_why_they_are_kept_and_tell_the_attempts_of_their_request(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/decisions?from=now-6h&to=now")
    page.get_by_label("Kept for").select_option("retried")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**kept=retried**")
    rows = page.locator("#results tbody tr")
    rows.first.wait_for()
    wanted = [one for one in site.fake.world.decisions() if one.attempts]
    assert rows.evaluate_all("rows => rows.map((row) => row.dataset.key)") == [one.id for one in wanted]
    assert "kept: retried, served" in rows.first.inner_text()
    rows.first.get_by_role("link").first.click()
    page.wait_for_url(f"**/decisions/{wanted[0].id}")
    attempts = page.locator("section", has=page.get_by_role("heading", name="How it ended"))
    failed = attempts.locator("table").first
    assert [cell.split() for cell in failed.locator("tbody td").all_inner_texts()] == [
        [wanted[0].attempts[0].instance],
        ["lost"],
        ["250", "ms"],
    ]
    [on] = wanted[0].continuations
    assert f"of which {on.carried_tokens} tokens were given, went on at {on.target}" in attempts.inner_text()

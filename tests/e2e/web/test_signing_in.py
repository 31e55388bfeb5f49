"""Signing in and out as people do it, in a real browser."""

import pytest
from playwright.sync_api import Browser, BrowserContext

from fairlead_testing.running.browser_site import RunningSite, session_cookie, signed_in
from fairlead_testing.running.people import until_at
from fairlead_testing.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.browser


def fresh(chromium: Browser) -> BrowserContext:
    """Return the browser of a person who is not signed in."""
    context = chromium.new_context()
    context.set_default_timeout(PATIENCE_SECONDS * 1000)
    return context


def test_opening_a_login_link_does_not_use_it_up_but_its_button_does(chromium: Browser, site: RunningSite) -> None:
    preview, person = fresh(chromium), fresh(chromium)
    glance = preview.new_page()
    glance.goto(f"{site.url}/login?token=flt_once")
    assert glance.get_by_role("button", name="Sign in").is_visible()

    page = person.new_page()
    page.goto(f"{site.url}/login?token=flt_once")
    page.click("text=Sign in >> nth=-1")
    page.wait_for_url(f"{site.url}/")
    assert page.inner_text("h1") == "Overview"
    cookie = next(one for one in person.cookies() if one.get("name") == session_cookie(site.url))
    assert cookie.get("httpOnly") is True
    assert cookie.get("sameSite") == "Lax"

    glance.get_by_role("button", name="Sign in").click()
    assert "used before" in glance.inner_text("[role=alert]")
    assert glance.url == f"{site.url}/login"
    preview.close()
    person.close()


def test_a_pasted_token_leads_back_to_the_page_that_was_asked_for(chromium: Browser, site: RunningSite) -> None:
    context = fresh(chromium)
    page = context.new_page()
    page.goto(f"{site.url}/migrations?pool=default%2Fchat&trigger=drain")
    assert "/login?next=" in page.url
    page.fill("input[name=token]", "viewer-token")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{site.url}/migrations?pool=default%2Fchat&trigger=drain")
    context.close()


def test_signing_out_ends_the_session_for_copies_of_the_cookie_too(chromium: Browser, site: RunningSite) -> None:
    context = fresh(chromium)
    page = context.new_page()
    page.goto(f"{site.url}/login")
    page.fill("input[name=token]", "viewer-token")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{site.url}/")
    stolen = [one for one in context.cookies() if one.get("name") == session_cookie(site.url)]
    page.locator("details.user summary").click()
    page.click("text=Sign out")
    page.wait_for_url("**/login")
    other = fresh(chromium)
    other.add_cookies([{"name": session_cookie(site.url), "value": stolen[0].get("value", ""), "url": site.url}])
    thief = other.new_page()
    thief.goto(f"{site.url}/pools")
    assert "/login" in thief.url
    assert "session has ended" in thief.inner_text("main")
    context.close()
    other.close()


def test_a_viewer_sees_why_scaling_is_off(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site, "viewer")
    page = context.new_page()
    page.goto(f"{site.url}/pools/default/chat")
    assert page.locator("#change-scale").get_by_role("button", name="Plan the change").is_disabled()
    assert "needs the role operator; you are viewer" in page.inner_text("main")
    context.close()


def test_a_session_that_ends_while_a_page_is_open_leads_to_the_login(chromium: Browser, site: RunningSite) -> None:
    context = fresh(chromium)
    page = context.new_page()
    page.goto(f"{site.url}/login")
    page.fill("input[name=token]", "operator-token")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{site.url}/")
    page.goto(f"{site.url}/decisions")
    page.wait_for_selector("#live-pill[data-state=live]")  # else the page may leave by itself before anything is chosen
    site.fake.sessions.clear()
    page.select_option("select[name=reason]", "session-cold")
    until_at(page, "/login?")
    context.close()

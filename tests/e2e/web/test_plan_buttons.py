"""Buttons in rows and findings that make a plan while the API is away; their form is elsewhere on the page, hidden."""

import pytest
from playwright.sync_api import Browser, Route

from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.browser_site import RunningSite, session_cookie, signed_in, wait_until
from fairlead_testing.running.people import until_at

pytestmark = pytest.mark.browser

SAID = "[data-kept]:has-text('nothing was sent. Press the button again')"


@pytest.mark.parametrize(("path", "button"), [(f"/pools/{CHAT}/instances", "td button[form=plan-this]"), ("", "text=Cordon…")])
def test_a_plan_that_cannot_be_sent_is_told_where_it_is_seen_and_can_be_sent_later(
    chromium: Browser, site: RunningSite, path: str, button: str
) -> None:
    context = signed_in(chromium, site)
    page = context.new_page()
    held: list[Route] = []
    page.route("**/-/session", lambda route: held.append(route))
    one = site.fake.world.instances(CHAT)[0]
    page.goto(site.url + (path or f"/pools/{CHAT}/instances/{one.id}"))
    page.wait_for_selector("html.scripted")
    pressed = page.locator(button).last
    pressed.click()
    wait_until(page, "document.querySelectorAll('button[form=plan-this][aria-busy]:disabled').length > 0")
    assert pressed.is_disabled()
    site.fake.broken.add("/v1/")
    while not held:  # the button is busy before its question reaches this process
        page.wait_for_timeout(25)
    held[0].continue_()
    page.unroute_all()
    page.wait_for_selector(SAID)
    seen = page.locator(SAID).bounding_box()
    assert seen is not None
    assert 0 <= seen["y"] < 900, "in sight, however far down the button is"
    assert pressed.is_enabled()
    site.fake.broken.clear()
    pressed.click()
    page.wait_for_url("**/plans/*")
    context.close()


def test_a_button_that_goes_while_the_api_is_asked_plans_what_it_planned_when_it_was_pressed(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site)
    page = context.new_page()
    held: list[Route] = []
    page.route("**/-/session", lambda route: held.append(route))
    page.route("**/live?*", lambda route: route.abort())  # nothing but what is done below replaces the button
    page.goto(f"{site.url}/pools/{CHAT}/instances")
    page.wait_for_selector("html.scripted")
    button = page.locator("td button[form=plan-this]").first
    name = (button.get_attribute("formaction") or "").split("/")[-2]
    button.click()
    page.wait_for_selector("button[form=plan-this][aria-busy]:disabled")
    while not held:
        page.wait_for_timeout(25)
    page.evaluate("document.querySelector('#results').replaceChildren()")
    held[0].continue_()
    page.wait_for_url("**/plans/*")
    assert name in page.inner_text("main")
    context.close()


def test_after_a_session_that_ended_it_is_said_that_nothing_was_planned(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site)
    page = context.new_page()
    shown = f"{site.url}/pools/{CHAT}/instances"
    page.goto(shown)
    page.wait_for_selector("html.scripted")
    known = site.fake.tokens.pop("operator-token")
    page.locator("td button[form=plan-this]").first.click()
    until_at(page, "/login")
    site.fake.tokens["operator-token"] = known
    context.add_cookies([{"name": session_cookie(site.url), "value": "operator-token", "url": site.url}])
    page.goto(shown)
    page.wait_for_selector("[data-kept]:has-text('You were signed out before this was sent. Nothing was changed.')")
    context.close()

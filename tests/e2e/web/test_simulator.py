"""The simulator in a browser: run, watch, read the results, plan the best result; nothing is applied."""

import pytest
from playwright.sync_api import Browser

from fairlead_testing.running.browser_site import RunningSite, signed_in, watch_troubles

pytestmark = pytest.mark.browser


def test_two_policies_are_compared_in_four_clicks_and_the_best_becomes_a_plan(chromium: Browser, site: RunningSite) -> None:
    site.fake.simulations.looks = 1000
    context = signed_in(chromium, site, "admin")
    page = context.new_page()
    troubles = watch_troubles(page, site.url)
    page.goto(site.url)
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Simulator").click()
    page.get_by_label("least-loaded").check()
    page.get_by_role("button", name="Simulate").click()
    page.wait_for_selector("progress")
    page.wait_for_selector("progress[value]:not([value='0'])")
    site.fake.simulations.looks = 1
    page.wait_for_selector("text=At 1 times the rate")
    page.wait_for_load_state()
    assert page.locator("#progress-look").count() == 0
    assert page.locator("table.cards").first.locator("tbody tr").count() == 3
    page.locator(".simulator-best button").click()
    page.wait_for_url("**/plans/*")
    assert page.locator("text=/You can apply it until/").count() == 1
    assert site.fake.book.applied == []
    assert troubles == []
    context.close()

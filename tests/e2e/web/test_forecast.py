"""A proposed schedule is shown beside the week for which it is made, and accepted with three clicks."""

import pytest
from playwright.sync_api import Browser

from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.browser_site import RunningSite, signed_in

pytestmark = pytest.mark.browser


def test_a_proposed_schedule_is_accepted_with_three_clicks_from_the_pools_schedules(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site)
    page = context.new_page()
    page.goto(f"{site.url}/pools/{CHAT}/schedules")
    page.click("text=Forecast and proposed schedules")
    assert page.locator("svg.forecast").count() == 2
    assert page.locator("td", has_text="forecast-").count() >= 1
    page.click("text=Plan these schedules")
    page.wait_for_url("**/plans/*")
    page.click("button:has-text('Apply')")
    page.wait_for_selector("text=applied")
    context.close()

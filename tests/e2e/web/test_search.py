"""Finding from any page by keys alone, in a real browser."""

import pytest
from playwright.sync_api import Page

from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.browser_site import RunningSite

pytestmark = pytest.mark.browser


def test_a_part_of_a_name_leads_to_its_page_by_keys_alone(page: Page, site: RunningSite) -> None:
    name = INSTANCES[CHAT][2]
    page.goto(f"{site.url}/sessions")
    page.keyboard.press("/")
    palette = page.get_by_role("dialog", name="Search")
    palette.wait_for()
    page.keyboard.type(name[2:])
    palette.locator("a.cursor").wait_for()
    assert name in palette.locator("a.cursor").inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/instances/{name}")

    page.keyboard.press("Control+k")
    palette.wait_for()
    page.keyboard.type("no-such-thing-anywhere")
    palette.get_by_text("Nothing has").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=no-such-thing-anywhere")
    assert page.get_by_text("Nothing has").is_visible()
    page.get_by_role("searchbox").fill("chat")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=chat")
    page.get_by_role("heading", name="Pools").last.wait_for()
    page.keyboard.press("Control+k")
    palette.wait_for()
    page.keyboard.press("Escape")
    palette.wait_for(state="detached")

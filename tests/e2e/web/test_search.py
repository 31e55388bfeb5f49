"""Search from any page with the keyboard alone, in a real browser."""

import pytest
from playwright.sync_api import Page, Route

from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.browser_site import RunningSite, wait_until

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


def test_the_palette_goes_to_pages_and_changes_by_their_words(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/pools/default/chat")
    wait_until(page, "document.documentElement.classList.contains('scripted')")
    page.keyboard.press("Control+k")
    page.wait_for_selector("dialog.palette [data-found]")
    assert "default/chat" in page.locator("dialog.palette [data-found]").first.inner_text(), (
        "before anything is typed: the pool on the screen"
    )
    page.keyboard.type("heatmap code")
    page.wait_for_selector("dialog.palette [data-found]:has-text('research/code')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/pools/research/code/heatmap")
    wait_until(page, "document.documentElement.classList.contains('scripted')")
    page.keyboard.press("Control+k")
    page.keyboard.type("scale chat")
    page.locator("dialog.palette [data-found]", has_text="default/chat").first.wait_for()
    page.wait_for_selector("dialog.palette [data-found]:has-text('change')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/pools/default/chat?change=scale#h-change")
    assert page.locator("#change-scale[open]").count() == 1


def test_what_is_typed_before_the_palette_is_there_is_in_it_and_does_nothing_else(page: Page, site: RunningSite) -> None:
    held: list[Route] = []
    page.route("**/palette.js*", lambda route: held.append(route))
    page.goto(f"{site.url}/pools/default/chat/heatmap")
    wait_until(page, "document.documentElement.classList.contains('scripted')")
    theme = page.evaluate("document.documentElement.dataset.theme")
    page.keyboard.press("Control+k")
    page.keyboard.type("scaled l")
    while not held:
        page.wait_for_timeout(10)
    held[0].continue_()
    field = page.get_by_role("dialog", name="Search").get_by_role("searchbox")
    field.wait_for()
    page.keyboard.type("ate")
    assert field.input_value() == "scaled late"
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    assert page.url.endswith("/heatmap"), page.url

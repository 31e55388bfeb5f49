"""Why a request went to its instance, and the net effect of a move, in two clicks from the overview, in a real
browser.
"""

import pytest
from playwright.sync_api import Page

from fairlead_testing.running.browser_site import RunningSite, wait_until

pytestmark = pytest.mark.browser


def test_a_request_is_found_by_its_id_and_a_move_says_whether_it_paid_off_in_two_clicks(page: Page, site: RunningSite) -> None:
    decision = site.fake.world.decisions()[7]
    page.goto(site.url)
    page.locator("[data-palette]").first.click()
    palette = page.get_by_role("dialog", name="Search")
    palette.wait_for()
    page.keyboard.type(decision.request)
    palette.get_by_role("link", name=decision.request).first.click()
    page.wait_for_url(f"**/decisions/{decision.id}")
    assert page.get_by_role("heading", level=1).inner_text() == f"Why {decision.chosen}?"
    assert page.get_by_text("Margin in cost").is_visible()
    assert page.get_by_role("region", name="Score by term").get_by_text("decides").first.is_visible()

    page.goto(site.url)
    page.locator("#migrations li a.when").first.click()
    page.wait_for_url("**/migrations/m-*")
    assert page.get_by_role("heading", name="Was it faster than staying?").is_visible()
    steps = page.locator(".move-steps h3").all_inner_texts()
    assert steps == ["Plan", "Transfer", "Cutover", "Release"]
    tops = page.locator(".move-steps li").evaluate_all("all => all.map((one) => Math.round(one.getBoundingClientRect().top))")
    assert len(set(tops)) == 1, "side by side on a wide screen"
    page.set_viewport_size({"width": 380, "height": 800})
    wait_until(page, "innerWidth === 380")
    tops = page.locator(".move-steps li").evaluate_all("all => all.map((one) => Math.round(one.getBoundingClientRect().top))")
    assert tops == sorted(set(tops)), "one below the other on a phone"

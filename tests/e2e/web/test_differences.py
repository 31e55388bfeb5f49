"""Differences of a heatmap's region, selected with Shift, are listed beside it."""

from dataclasses import replace
from datetime import timedelta

import pytest
from playwright.sync_api import Page

from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.browser_site import RunningSite, brush_heatmap, findings_in_both_themes
from fairlead_web.text.addresses import pool_path

pytestmark = pytest.mark.browser

PANEL = "#explanation"


def test_a_region_brushed_with_shift_shows_what_differs_there(page: Page, site: RunningSite) -> None:
    world = site.fake.world
    known = next(one for one in world.decisions() if one.pool == CHAT)
    hot, cool = sorted(one.id for one in world.instances(CHAT))[::5]
    world.extra_decisions = [
        replace(known, id=f"x-{at}", at=world.now - timedelta(minutes=10, seconds=at), chosen=instance, session=session, sample_rate=0.05)
        for instance, session in ((hot, "one-heavy-session"), (cool, None))
        for at in range(80)
    ]
    page.goto(f"{site.url}{pool_path(CHAT)}/heatmap?sort=name")
    brush_heatmap(page)
    page.locator(f"{PANEL} h2", has_text="What differs here?").wait_for()
    row = page.locator(f"{PANEL} tbody tr", has_text="one-heavy-session")
    assert row.count() == 1
    assert "80 recorded" in row.inner_text()
    assert page.url.endswith("sort=name"), "it is not zoomed"
    assert findings_in_both_themes(page) == []


def test_what_differs_is_asked_for_without_dragging_too(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}{pool_path(CHAT)}/heatmap")
    page.get_by_role("link", name="What differs?").click()
    page.wait_for_url("**/differences?**")
    assert page.locator(f"{PANEL} h2").inner_text() == "What differs here?"

"""Every page in both themes, wide, narrow and magnified: no script error, no request to another origin.

Every element is accessible, and none overflows the page.
"""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.browser_site import (
    RunningSite,
    findings,
    findings_in_both_themes,
    running_site,
    signed_in,
    sticking_out,
    wait_until,
    watch_troubles,
)
from fairlead_testing.running.every_page import addresses, furnish
from fairlead_testing.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.browser

INSTANCE = INSTANCES[CHAT][1]
# What nobody can reach: content wider than a box that hides it (an ellipsis whose whole text is a title
# apart), and on a wide screen a table whose last column is outside a panel that does not scroll. Boxes for the
# eyes of screen readers only are one pixel wide.
CUT_OFF = """() => {
  const found = [];
  for (const one of document.querySelectorAll("main *, header *")) {
    const style = getComputedStyle(one);
    if (one.clientWidth <= 1 || one.closest("svg, input, .visually-hidden") || !["hidden", "clip"].includes(style.overflowX)) continue;
    if (style.textOverflow === "ellipsis" && (one.title || one.closest("[title]"))) continue;
    if (one.scrollWidth > one.clientWidth + 1) found.push(`${one.tagName}.${one.className}: ${one.scrollWidth} in ${one.clientWidth}`);
  }
  for (const row of document.querySelectorAll(".panel thead tr")) {
    const panel = row.closest(".panel").getBoundingClientRect(), last = row.lastElementChild.getBoundingClientRect();
    if (innerWidth < 1280 || row.closest(".scroll-x") || last.right <= panel.right + 1) continue;
    if (getComputedStyle(row.closest(".panel")).overflowX === "auto" && getComputedStyle(row.firstElementChild).position === "sticky") continue;
    found.push(`the column "${row.lastElementChild.textContent}" ends at ${last.right} of ${panel.right}`);
  }
  for (const one of innerWidth < 1280 ? [] : document.querySelectorAll(".panel td.key")) {
    const panel = one.closest(".panel").getBoundingClientRect(), { right } = one.getBoundingClientRect();
    if (right > panel.right + 1) found.push(`"${one.dataset.label}", the row's own cell on a phone, ends at ${right} of ${panel.right}`);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def shared_site() -> Iterator[RunningSite]:
    with running_site(clusters=True) as site:
        furnish(site.fake, CHAT, INSTANCE)
        yield site


@pytest.fixture(scope="module")
def shared(chromium: Browser, shared_site: RunningSite) -> Iterator[tuple[Page, list[str]]]:
    """Yield an admin's page, and the errors in it."""
    context = signed_in(chromium, shared_site, "admin")
    page = context.new_page()
    yield page, watch_troubles(page, shared_site.url)
    context.close()


@pytest.mark.parametrize("path", [one for one in addresses(CHAT, INSTANCE) if one != "/docs"])  # see test_explorer
def test_a_page_runs_clean_reads_well_and_fits(path: str, shared: tuple[Page, list[str]], shared_site: RunningSite) -> None:
    page, troubles = shared
    troubles.clear()
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(shared_site.url + path)
    wait_until(page, "document.documentElement.classList.contains('scripted')")
    if "/heatmap" in path:
        page.wait_for_selector("[data-heatmap][data-ready]")
    if page.locator("[data-chart]").count():
        page.locator("[data-chart]").first.scroll_into_view_if_needed()
        page.wait_for_selector("[data-chart][data-ready=yes]")
    assert page.locator("h1").count() == 1
    assert findings_in_both_themes(page) == []
    assert page.evaluate(CUT_OFF) == []
    assert page.evaluate("document.querySelectorAll('*').length") <= 2500
    assert sticking_out(page) == []
    assert page.evaluate(CUT_OFF) == []
    assert troubles == []


def test_pages_without_a_session_read_well_too(chromium: Browser, shared_site: RunningSite) -> None:
    context = chromium.new_context(viewport={"width": 380, "height": 800})
    context.set_default_timeout(PATIENCE_SECONDS * 1000)
    page = context.new_page()
    for path in ("/login", "/login?token=flt_x", "/migrations/none"):
        page.goto(shared_site.url + path)
        assert findings(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 380
    context.close()


def test_a_small_picture_stays_in_its_frame_and_the_current_section_in_view(
    shared: tuple[Page, list[str]], shared_site: RunningSite
) -> None:
    page, _ = shared
    page.set_viewport_size({"width": 380, "height": 800})
    page.goto(f"{shared_site.url}/pools")
    inside = """one => {
      const frame = one.parentElement.getBoundingClientRect(), picture = one.getBoundingClientRect();
      return picture.left >= frame.left && picture.right <= frame.right;
    }"""
    assert page.locator(".minimap.small img").first.evaluate(inside)
    page.goto(f"{shared_site.url}/pools/default/chat/audit")
    wait_until(page, "document.documentElement.classList.contains('scripted')")
    assert page.locator(".tabs [aria-current]").evaluate("one => one.getBoundingClientRect().right <= innerWidth")


def test_on_a_phone_the_fleet_is_a_drawer_that_needs_no_scripts(chromium: Browser, shared_site: RunningSite) -> None:
    context = signed_in(chromium, shared_site, java_script_enabled=False, viewport={"width": 380, "height": 800})
    page = context.new_page()
    page.goto(f"{shared_site.url}/pools/default/chat/sessions")
    link = page.get_by_role("navigation", name="Main").get_by_role("link", name="Migrations")
    assert not link.is_visible()
    page.locator(".drawer > summary").click()
    link.click()
    page.wait_for_url("**/migrations")
    page.set_viewport_size({"width": 1280, "height": 800})
    wait_until(page, "innerWidth === 1280")
    assert link.is_visible(), "beside the page where there is room, open or not"
    context.close()


def test_the_tabs_of_a_pool_stay_in_the_pool(shared: tuple[Page, list[str]], shared_site: RunningSite) -> None:
    page, _ = shared
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(f"{shared_site.url}/pools/default/chat")
    for words in page.locator(".tabs a").all_inner_texts():
        page.locator(".tabs a", has_text=re.compile(f"^{words}$")).click()
        page.wait_for_selector(f".tabs [aria-current]:has-text('{words}')")
        assert "/pools/default/chat" in page.url
        assert CHAT in page.inner_text("#workspace")
        assert page.locator(".crumbs a", has_text=CHAT).count() == (words != "Overview")
    page.goto(f"{shared_site.url}/decisions/d-0004")
    assert page.inner_text(".tabs [aria-current]") == "Decisions"
    tabs = page.locator(".tabs")
    assert tabs.evaluate("one => one.scrollWidth <= one.clientWidth"), "all of them are in sight"


def test_empty_lists_say_why_and_what_to_do(chromium: Browser) -> None:
    with running_site() as site:
        site.fake.world.pools_known = []
        context = signed_in(chromium, site)
        page = context.new_page()
        for path in ("/", "/pools", "/slo"):
            page.goto(site.url + path)
            assert "kubectl apply -f" in page.inner_text(".empty")
            assert findings(page) == []
        context.close()

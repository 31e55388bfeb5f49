"""By keyboard: few stops to a page's content, arrow keys within its lists of links, and a name for every control."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.browser_site import RunningSite, running_site, wait_until
from fairlead_testing.running.every_page import addresses, furnish
from fairlead_web.text.addresses import instance_path, pool_path

pytestmark = pytest.mark.browser

MOST_STOPS = 15
POOL = pool_path(CHAT)
STOPS = """() => {
  const content = document.querySelector(".tabs") ?? document.querySelector(".page-head");
  return [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")].filter((one) =>
    one.tabIndex >= 0 && one.checkVisibility() && !one.disabled && one.id !== "main"
    && (content.contains(one) || content.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_PRECEDING)).map((one) => one.textContent.trim());
}"""
FOCUSED = "document.activeElement.textContent.trim()"


@pytest.fixture
def site() -> Iterator[RunningSite]:
    """Yield the site with all entries that a sidebar can have."""
    with running_site(clusters=True) as found:
        yield found


def opened(page: Page, site: RunningSite, path: str) -> None:
    page.goto(site.url + path)
    wait_until(page, "document.querySelector('.side [tabindex=\"-1\"]') !== null")


@pytest.mark.parametrize("path", ["/", "/migrations", POOL, f"{POOL}/heatmap", instance_path(CHAT, INSTANCES[CHAT][1])])
def test_few_stops_lie_before_the_first_control_of_a_page(page: Page, site: RunningSite, path: str) -> None:
    opened(page, site, path)
    stops = page.evaluate(STOPS)
    assert len(stops) < MOST_STOPS, stops
    page.keyboard.press("Tab")
    for _ in stops:
        page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_arrow_keys_move_within_tabs_and_the_sidebar(page: Page, site: RunningSite) -> None:
    opened(page, site, POOL)
    page.locator(".tabs [aria-current]").focus()
    for key, words in (
        ("ArrowRight", "Heatmap"),
        ("End", "Audit"),
        ("ArrowRight", "Overview"),
        ("ArrowLeft", "Audit"),
        ("Home", "Overview"),
    ):
        page.keyboard.press(key)
        assert page.evaluate(FOCUSED) == words
    page.keyboard.press("End")
    assert page.locator(".tabs a[tabindex='0']").all_inner_texts() == ["Audit"]
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED) == "Audit", "whoever comes back is where they were"
    page.locator(".side-link[href='/keys']").focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate(FOCUSED) == "Notices"


def test_tabs_are_grouped_and_what_says_nothing_for_the_policy_is_grey(page: Page, site: RunningSite) -> None:
    opened(page, site, POOL)
    groups = page.locator(".tabs [role=group]")
    assert [one.split("\n")[0] for one in groups.all_inner_texts()] == ["Now", "Traffic", "Targets", "Internals", "Change"]
    grey = page.locator(".tabs .quiet-tab")
    assert {one.inner_text(): one.get_attribute("title") for one in grey.all()} == {"Predictor": "dualmap does not learn"}


NAMELESS = """() => [...document.querySelectorAll(
    "a[href], button, input:not([type=hidden]), select, textarea, summary, [role=application], [role=img], svg[role]")]
  .filter((one) => one.checkVisibility() && !(one.ariaLabel || one.title || one.alt || one.getAttribute("aria-labelledby") || one.innerText?.trim()
    || [...(one.labels ?? [])].some((label) => label.innerText.trim()) || one.querySelector("img[alt]:not([alt='']), [aria-label]")))
  .map((one) => one.outerHTML.slice(0, 120))"""


def test_every_control_has_a_name_for_screen_readers(page: Page, site: RunningSite) -> None:
    instance = INSTANCES[CHAT][1]
    furnish(site.fake, CHAT, instance)
    for path in addresses(CHAT, instance):
        page.goto(site.url + path)
        page.evaluate("for (const one of document.querySelectorAll('main details')) one.open = true")
        assert page.evaluate(NAMELESS) == [], path

"""Addresses of pages: a permalink in another browser, a site below a path, eight tabs, print, no mouse."""

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page

from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.browser_site import RunningSite, running_site, signed_in, wait_until, watch_troubles
from fairlead_testing.running.people import FOCUS_SEEN

pytestmark = pytest.mark.browser

BELOW = "/ops/infer"


def test_a_permalink_shows_the_same_rows_in_a_fresh_browser(chromium: Browser, page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/migrations?trigger=drain")
    link = page.locator("[data-permalink]").get_attribute("href") or ""
    assert "now" not in urlsplit(link).query
    page.goto(site.url + link)
    rows = "[...document.querySelectorAll('#results tr[data-key]')].map(row => row.dataset.key)"
    first = page.evaluate(rows)
    context = signed_in(chromium, site)
    other = context.new_page()
    other.goto(site.url + link)
    assert other.evaluate(rows) == first != []
    assert other.input_value("select[name=trigger]") == "drain"
    context.close()


def test_a_site_below_a_path_links_streams_and_loads_only_below_it(chromium: Browser) -> None:
    with running_site(BELOW) as below:
        context = signed_in(chromium, below)
        page = context.new_page()
        troubles, asked = watch_troubles(page, below.url), []
        page.on("request", lambda request: asked.append(urlsplit(request.url).path))
        for path in ("/", "/migrations", "/pools/default/chat", "/pools/default/chat/heatmap"):
            page.goto(below.url + path)
            page.wait_for_selector("#live-pill[data-state=live]")
            links = page.evaluate(
                "[...document.querySelectorAll('a[href^=\"/\"], form[action]')].map(one => one.getAttribute('href') ?? one.getAttribute('action'))"
            )
            assert [one for one in links if not one.startswith(BELOW)] == []
        assert [one for one in asked if not one.startswith(BELOW)] == []
        assert any(one.startswith(f"{BELOW}/live") for one in asked)
        assert troubles == []
        context.close()


def test_eight_tabs_load_and_stay_fresh_over_one_connection_pool(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site)
    tabs = [context.new_page() for _ in range(8)]
    for tab in tabs:
        tab.goto(f"{site.url}/pools/default/chat", wait_until="commit")
    for tab in tabs:
        tab.wait_for_selector("#live-pill[data-state=live], #live-pill[data-state=polling]")
    site.fake.world.desired[CHAT] = 11
    site.push("pools", [site.fake.world.pool(name) for name in site.fake.world.pools_known])
    for tab in tabs:
        wait_until(tab, "document.querySelector('#status .value').textContent.endsWith('/ 11')")
    context.close()


def test_a_hidden_tab_asks_for_nothing_and_catches_up_when_it_is_seen(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/pools/default/chat")
    page.wait_for_selector("#live-pill[data-state=live]")
    wait_until(page, "document.querySelectorAll('[data-chart][data-ready=yes]').length >= 3")
    wait_until(page, "[...document.images].every(one => one.complete)")
    hide = """(hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      Object.defineProperty(document, "visibilityState", { value: hidden ? "hidden" : "visible", configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(hide, True)
    page.wait_for_timeout(200)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    site.fake.world.desired[CHAT] = 11
    site.push("pools", [site.fake.world.pool(name) for name in site.fake.world.pools_known])
    page.wait_for_timeout(500)
    assert asked == []
    page.evaluate(hide, False)
    wait_until(page, "document.querySelector('#status .value').textContent.endsWith('/ 11')")


def test_paper_has_the_address_the_range_and_the_picture(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/pools/default/chat/heatmap")
    page.wait_for_selector("[data-heatmap][data-ready]")
    page.emulate_media(media="print")
    told = page.inner_text("footer")
    assert "/pools/default/chat/heatmap" in told
    assert "UTC" in told
    assert "As of" in told
    assert not page.locator(".tabs").is_visible()
    assert page.locator("[data-heatmap] img, [data-heatmap] canvas").first.is_visible()
    assert page.pdf()[:5] == b"%PDF-"


def test_without_a_mouse_an_instance_is_drained_up_to_the_plan_and_left(page: Page, site: RunningSite) -> None:
    """At each step, the focus is visible and the focused element is not covered."""
    words = "(document.activeElement.textContent + (document.activeElement.getAttribute('aria-label') ?? '')).trim()"

    def tab_to(text: str) -> None:
        for _ in range(120):
            page.keyboard.press("Tab")
            if text in page.evaluate(words):
                break
        assert text in page.evaluate(words), f"no way by Tab to {text!r}"
        assert page.evaluate(FOCUS_SEEN), f"the focus on {text!r} is not seen"

    page.goto(f"{site.url}/pools/default/chat/instances")
    page.wait_for_selector("html.scripted")
    tab_to(INSTANCES[CHAT][1])
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/instances/{INSTANCES[CHAT][1]}*")
    tab_to("Drain")
    page.keyboard.press("Enter")
    page.wait_for_url("**/plans/*")
    tab_to("Discard")
    page.keyboard.press("Enter")
    page.wait_for_url("**/pools/default/chat")
    assert site.fake.book.applied == []

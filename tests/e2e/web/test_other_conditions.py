"""Print, forced colours, an upgraded server, a silent API: a page stays true and usable."""

import copy
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page

from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.browser_site import (
    RunningSite,
    findings_in_both_themes,
    running_site,
    signed_in,
    sticking_out,
    wait_until,
    watch_troubles,
)
from fairlead_testing.running.every_page import furnish
from fairlead_web import app
from fairlead_web.frame.assets import STATIC, load_assets
from fairlead_web.text.addresses import pool_path

pytestmark = pytest.mark.browser

POOL = pool_path(CHAT)
UTC_MOMENT = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$"
SWATCHES = "[...document.querySelectorAll('.chart-line')].map((one) => getComputedStyle(one, '::before').backgroundColor)"
WIDE = "[...document.querySelectorAll('.uplot canvas')].every((one) => one.offsetWidth > 0.9 * one.closest('[data-plot]').clientWidth)"
ASK_FOR_PARTS = """() => {
  const asker = document.getElementById("live-regions");
  asker.dataset.names = "as-of";
  asker.dispatchEvent(new CustomEvent("fairlead-refresh"));
}"""
STATES = """() => {
  window.states = [];
  const pill = document.getElementById("live-pill");
  new MutationObserver(() => window.states.push(pill.dataset.state)).observe(pill, {attributeFilter: ["data-state"]});
}"""


def test_style_sheets_are_served_shorter_with_the_same_rules(chromium: Browser) -> None:
    rules = """text => {
      const sheet = new CSSStyleSheet();
      sheet.replaceSync(text);
      return [...sheet.cssRules].map((rule) => rule.cssText.replaceAll(/,\\s+/g, ",")); // values of properties of ours are as written
    }"""
    page = chromium.new_page()
    for path in sorted((STATIC / "css").glob("*.css")):
        served = load_assets().files[f"css/{path.name}"].body.decode()
        written = page.evaluate(rules, path.read_text())
        assert page.evaluate(rules, served) == written != [], path.name
    page.close()


@pytest.mark.parametrize("scripts", [True, False])
def test_a_printed_list_has_moments_and_no_ages(chromium: Browser, site: RunningSite, scripts: bool) -> None:
    context = signed_in(chromium, site, java_script_enabled=scripts, color_scheme="dark")
    page = context.new_page()
    page.goto(f"{site.url}/audit")
    page.emulate_media(media="print")
    time = page.locator("td time").first
    if scripts:
        wait_until(page, f"/{UTC_MOMENT}/.test(document.querySelector('td time').textContent)")
        page.emulate_media(media="screen")
        wait_until(page, "/ago$|^now$/.test(document.querySelector('td time').textContent)")
    else:
        shown = time.evaluate("one => [getComputedStyle(one).fontSize, getComputedStyle(one, '::after').content]")
        assert shown[0] == "0px"
        assert shown[1].strip('"').endswith(" UTC")
    context.close()


def test_charts_are_printed_in_light_ink_over_the_whole_sheet(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site, color_scheme="dark", viewport={"width": 700, "height": 900})
    page = context.new_page()
    page.goto(f"{site.url}{POOL}/slo")
    page.wait_for_selector("[data-chart][data-ready=yes]")
    dark = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--s0')")
    page.emulate_media(media="print")
    wait_until(page, "'paper' in document.documentElement.dataset")
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--s0')") != dark
    page.set_viewport_size({"width": 1000, "height": 900})
    wait_until(page, WIDE)
    assert page.locator(".panel:has(table)").first.evaluate("one => getComputedStyle(one).breakInside") == "auto"
    context.close()


def test_forced_colours_keep_the_keys_of_charts_and_the_current_tab(page: Page, site: RunningSite) -> None:
    page.goto(site.url + POOL)
    page.wait_for_selector(".chart-line")
    before = page.evaluate(SWATCHES)
    page.emulate_media(forced_colors="active")
    assert page.evaluate(SWATCHES) == before
    borders = "[...document.querySelectorAll('.tabs a')].map((one) => getComputedStyle(one).borderBottomColor)"
    found = page.evaluate(borders)
    assert sum(one == found[0] for one in found) == 1, "the first is the current one"


BOXES = """(look) => {
  const back = (one) => getComputedStyle(one).backgroundColor, clear = "rgba(0, 0, 0, 0)";
  const under = (one) => { for (let up = one.parentElement; up; up = up.parentElement) if (back(up) !== clear) return back(up); };
  const lined = (one) => {
    const style = getComputedStyle(one), sides = ["Top", "Right", "Bottom", "Left"];
    return style.outlineStyle !== "none" || sides.some((side) => style[`border${side}Style`] !== "none" && parseFloat(style[`border${side}Width`]) > 0);
  };
  const boxes = [...document.querySelectorAll("body *")].filter((one) => !one.closest("svg, table, .visually-hidden, .skip") && one.innerText?.trim());
  if (look) return boxes.filter((one) => one.dataset.box && !lined(one) && getComputedStyle(one).forcedColorAdjust !== "none").map((one) => one.className);
  for (const one of boxes) if (back(one) !== clear && back(one) !== under(one)) one.dataset.box = "yes";
}"""


@pytest.mark.parametrize("path", ["/", "/advice", "/keys?edit=k-0", "/plans/p-0002", f"{POOL}/heatmap", f"{POOL}/instances"])
def test_forced_colours_draw_a_line_around_what_only_a_background_set_apart(page: Page, site: RunningSite, path: str) -> None:
    furnish(site.fake, CHAT, INSTANCES[CHAT][1])
    page.goto(site.url + path)
    wait_until(page, "document.documentElement.classList.contains('scripted')")
    page.evaluate(BOXES, False)
    page.emulate_media(forced_colors="active")
    assert page.evaluate(BOXES, True) == []


@pytest.fixture
def upgrade() -> Iterator[Any]:
    """Yield the files of the site's server, which an upgrade changes."""
    made = [copy.copy(load_assets())]  # as the process has one object of them
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "load_assets", lambda: made[0])
        yield made


def upgraded(made: list[Any]) -> None:
    object.__setattr__(made[-1], "version", "0123456789abcdef")


def test_an_open_page_notices_that_the_server_was_upgraded_and_loads_itself_again(chromium: Browser, upgrade: list[Any]) -> None:
    with running_site() as site:
        context = signed_in(chromium, site)
        page = context.new_page()
        page.goto(f"{site.url}/pools")
        wait_until(page, "document.getElementById('live-pill').dataset.state === 'live'")
        upgraded(upgrade)
        with page.expect_navigation():
            page.evaluate(ASK_FOR_PARTS)
        page.wait_for_selector("script[type=module][src*='0123456789abcdef']", state="attached")
        context.close()


def test_what_is_typed_outlives_an_upgrade(chromium: Browser, upgrade: list[Any]) -> None:
    with running_site() as site:
        context = signed_in(chromium, site, "admin")
        page = context.new_page()
        page.goto(f"{site.url}{POOL}?change=slo#h-change")
        wait_until(page, "document.getElementById('live-pill').dataset.state === 'live'")
        field = page.locator("#change-slo form input[name=ttft]")
        field.fill("7s")
        upgraded(upgrade)
        page.evaluate(ASK_FOR_PARTS)
        page.get_by_role("link", name="Load the page again").click()
        wait_until(page, "document.querySelector('[data-kept]') !== null")
        assert field.input_value() == "7s"
        context.close()


def test_where_a_script_cannot_be_loaded_the_link_leads_to_its_page(site: RunningSite, chromium: Browser) -> None:
    context = signed_in(chromium, site)
    page = context.new_page()
    page.route("**/js/palette.js", lambda route: route.fulfill(status=404, body="No such file."))
    page.goto(site.url)
    wait_until(page, "document.documentElement.classList.contains('scripted')")
    page.get_by_role("link", name="Search", exact=True).click()
    page.wait_for_url("**/search")
    context.close()


def test_a_silent_api_is_told_within_25_seconds(site: RunningSite, chromium: Browser) -> None:
    context = signed_in(chromium, site)
    page = context.new_page()
    page.clock.install()
    page.goto(site.url)
    wait_until(page, "document.getElementById('live-pill').dataset.state === 'live'")
    page.evaluate(STATES)
    page.clock.fast_forward(25_000)
    assert "reconnecting" in page.evaluate("window.states")
    context.close()


def test_nothing_moves_for_who_asked_for_less_motion(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site, "operator", reduced_motion="reduce")
    opened = context.new_page()
    for path in ("/", "/pools/default/chat/heatmap", "/pools/default/chat", "/search"):
        opened.goto(site.url + path)
        wait_until(opened, "document.documentElement.classList.contains('scripted')")
        moving = opened.evaluate(
            """[...document.querySelectorAll("*")].filter((one) => ["", "::before", "::after"].some((part) => {
                const {animationName, transitionDuration} = getComputedStyle(one, part || null);
                return animationName !== "none" || transitionDuration.split(",").some((each) => parseFloat(each) > 0);
            })).map((one) => one.className || one.tagName)"""
        )
        assert (path, moving, opened.evaluate("document.getAnimations().length")) == (path, [], 0)
    context.close()


@pytest.mark.parametrize(
    ("theme", "system", "scheme"), [("auto", "dark", "light dark"), ("dark", "light", "dark"), ("light", "dark", "light")]
)
def test_scroll_bars_and_fields_are_of_the_pages_theme(
    theme: str, system: Literal["light", "dark"], scheme: str, chromium: Browser, site: RunningSite
) -> None:
    context = signed_in(chromium, site, "operator", color_scheme=system)
    context.add_cookies([{"name": "fairlead-theme", "value": theme, "url": site.url}])
    opened = context.new_page()
    opened.goto(f"{site.url}/pools/default/chat/spec")
    used = "(one) => [getComputedStyle(one).colorScheme, getComputedStyle(one).scrollbarColor]"
    assert opened.locator("html").evaluate(used) == [scheme, "auto"]
    for place in ("pre.diff", ".side", "body"):  # what scrolls has the page's own scheme, and so its scroll bars
        assert opened.locator(place).first.evaluate(used) == [scheme, "auto"], place
    context.close()


def test_the_page_of_notices_runs_clean_reads_well_and_makes_a_webhook(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site, "admin")
    opened = context.new_page()
    troubles = watch_troubles(opened, site.url)
    opened.goto(f"{site.url}/notices")
    assert findings_in_both_themes(opened) == []
    assert sticking_out(opened) == []
    opened.set_viewport_size({"width": 1280, "height": 900})
    opened.locator("form:has(input[name=url]) input[name=name]").fill("on-call")
    opened.locator("input[name=url]").fill("https://hooks.example.com/fairlead")
    opened.locator("form:has(input[name=url]) button").click()
    opened.get_by_text("Webhook on-call created").wait_for()
    assert troubles == []
    context.close()

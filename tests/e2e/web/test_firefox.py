"""Debian's Firefox on every page, for faults that Chromium does not show.

Each browser ends requests, prints, forces colours and passes its language in ways of its own.
"""

import base64
import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fairlead_testing.fakes.public_data.loads import CHAT, CODE, INSTANCES
from fairlead_testing.running.browser_site import RunningSite, running_site, wait_until
from fairlead_testing.running.every_page import addresses, furnish
from fairlead_testing.running.firefox import FIREFOX, FirefoxPage, running_firefox
from fairlead_testing.running.ink import DRAWN, SAID, UNSAID, Ink, ink_of, lost
from fairlead_web import app
from fairlead_web.frame.assets import load_assets
from fairlead_web.text.addresses import pool_path

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(FIREFOX is None, reason="there is no Firefox here: scripts/ensure-firefox.sh says how to have one"),
]

INSTANCE = INSTANCES[CHAT][1]
POOL = pool_path(CHAT)
PACE = 20
"""The factor by which a watched page refreshes faster."""
SETTLED = "document.documentElement.classList.contains('scripted') && !document.querySelector('.htmx-request')"
LIVE = "document.getElementById('live-pill').dataset.state === 'live'"
FIGURES_DRAWN = "[...document.querySelectorAll('[data-heatmap]')].every((one) => one.dataset.ready)"
SHOW_CHARTS = "[...document.querySelectorAll('[data-chart]')].map((one) => one.scrollIntoView())"
NO_WIDER = "document.documentElement.scrollWidth <= innerWidth"
CELL_TIME = "document.querySelector('td time').textContent"
SWATCHES = "[...document.querySelectorAll('.chart-line')].map((one) => getComputedStyle(one, '::before').backgroundColor)"
TAB_BORDERS = "[...document.querySelectorAll('.tabs a')].map((one) => getComputedStyle(one).borderBottomColor)"
WIDE = "[...document.querySelectorAll('.uplot canvas')].every((one) => one.offsetWidth > 0.9 * one.closest('[data-plot]').clientWidth)"
LEFT = """() => {
  const pill = document.getElementById("live-pill"), states = [];
  new MutationObserver(() => states.push(pill.dataset.state)).observe(pill, {attributeFilter: ["data-state"]});
  addEventListener("pagehide", () => sessionStorage.setItem("left", states));
}"""
"""A script that keeps the pill's texts until its page is left."""
MOVING = """[...document.querySelectorAll("*")].filter((one) => ["", "::before", "::after"].some((part) => {
    const {animationName, transitionDuration} = getComputedStyle(one, part || null);
    return animationName !== "none" || transitionDuration.split(",").some((each) => parseFloat(each) > 0);
  })).map((one) => one.className || one.tagName)"""


@pytest.fixture(scope="module")
def assets() -> Iterator[Any]:
    """Yield the files of the site's server, which an upgrade changes."""
    made = copy.copy(load_assets())  # as the process has one object of them
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "load_assets", lambda: made)
        yield made


@pytest.fixture(scope="module")
def site(assets: Any) -> Iterator[RunningSite]:
    with running_site(clusters=True) as found:
        furnish(found.fake, CHAT, INSTANCE)
        yield found


@pytest.fixture(scope="module")
def firefox(site: RunningSite) -> Iterator[FirefoxPage]:
    with running_firefox(site, "admin") as found:
        yield found


@pytest.fixture
def page(firefox: FirefoxPage) -> Iterator[FirefoxPage]:
    """Yield Firefox's page, 1280 pixels wide with default settings; fail if it had an error."""
    firefox.emulate(color_scheme=None, forced_colors=None, reduced_motion=None, media=None, language=None)
    firefox.set_viewport_size({"width": 1280, "height": 900})
    firefox.pace(1)
    firefox.goto("about:blank")
    firefox.troubles()
    yield firefox
    assert firefox.troubles() == []


def opened(page: FirefoxPage, address: str) -> list[Ink]:
    """Open a page, wait until all its figures are drawn, and return them."""
    page.goto(address)
    wait_until(page, SETTLED)
    page.evaluate(SHOW_CHARTS)
    wait_until(page, DRAWN)
    return ink_of(page)


@pytest.mark.parametrize("path", addresses(CHAT, INSTANCE))
def test_a_page_runs_clean_and_fits_wide_and_narrow(path: str, page: FirefoxPage, site: RunningSite) -> None:
    page.goto(site.url + path)
    wait_until(page, SETTLED)
    wait_until(page, FIGURES_DRAWN)
    assert page.evaluate("document.querySelectorAll('h1').length") == 1
    for width in (1280, 380):
        page.set_viewport_size({"width": width, "height": 900})
        wait_until(page, f"innerWidth === {width}")
        wait_until(page, NO_WIDER)


@pytest.mark.parametrize("path", ["/", "/migrations", "/rejections", POOL, f"{POOL}/slo", f"{POOL}/scaling", f"{POOL}/heatmap"])
def test_every_figure_keeps_its_ink_over_three_refreshes(path: str, page: FirefoxPage, site: RunningSite) -> None:
    page.pace(PACE)
    first = opened(page, site.url + path)
    assert any(one.ink for one in first)
    for _ in range(3):
        page.evaluate(UNSAID)
        site.push("instances", site.fake.world.instances(CHAT))
        wait_until(page, SAID)
        wait_until(page, DRAWN)
        assert lost([one for one in first if one.line != "picture"], ink_of(page)) == []  # pictures are fetched again all the while


def test_a_page_is_left_without_a_word_of_a_lost_connection(page: FirefoxPage, site: RunningSite) -> None:
    for here, there in (("/migrations", "/keys"), ("/decisions", "/audit"), ("/", "/pools")):
        page.goto(site.url + here)
        wait_until(page, f"{SETTLED} && {LIVE}")
        page.evaluate(LEFT)
        page.click(f".side-link[href='{there}']")
        wait_until(page, f"location.pathname === '{there}'")
        assert "reconnecting" not in page.evaluate("sessionStorage.getItem('left')")


def test_the_palette_and_tabs_are_used_by_keys_alone(page: FirefoxPage, site: RunningSite) -> None:
    page.goto(site.url + POOL)
    wait_until(page, f"{SETTLED} && document.querySelector('.side [tabindex=\"-1\"]') !== null")
    page.evaluate("document.querySelector('.tabs [aria-current]').focus()")
    for key, words in (("ArrowRight", "Heatmap"), ("End", "Audit"), ("ArrowRight", "Overview"), ("ArrowLeft", "Audit")):
        page.press(key)
        assert page.evaluate("document.activeElement.textContent.trim()") == words
    for keys in ("/", "Control+k"):
        page.press(keys)
        wait_until(page, "document.querySelector('dialog.palette [data-found]') !== null")
        if keys == "/":
            page.press("Escape")
            wait_until(page, "document.querySelector('dialog') === null")
    for letter in "heatmap code":
        page.press(letter)
    wait_until(page, f"document.querySelector('dialog.palette [data-found]')?.textContent.includes('{CODE}')")
    page.press("Enter")
    wait_until(page, f"location.pathname === '{pool_path(CODE)}/heatmap'")


def test_a_heavy_change_is_planned_and_applied_and_its_button_agrees_with_its_field_after_a_reload(
    page: FirefoxPage, site: RunningSite
) -> None:
    page.goto(site.url + POOL)
    wait_until(page, SETTLED)
    page.fill("#change-scale input[name=replicas]", "0")
    page.click("#change-scale form button:not([type=button])")
    wait_until(page, "location.pathname.startsWith('/plans/p-')")
    applies = "document.querySelector('form[action$=apply] button:not([type=button])')"
    agrees = f"{applies}.disabled === (document.querySelector('input[name=confirm]').value !== 'chat')"
    page.fill("input[name=reason]", "closing down")
    for typed in ("chatt", "chat"):
        page.fill("input[name=confirm]", typed)
        assert page.evaluate(agrees)
    page.reload()  # Firefox gives fields and buttons back what they had, each by itself
    wait_until(page, SETTLED)
    assert page.evaluate(agrees)
    page.fill("input[name=confirm]", "chat")
    page.fill("input[name=reason]", "closing down")
    page.click("form[action$=apply] button:not([type=button])")
    wait_until(page, "document.body.textContent.includes('Applied by')")
    assert site.fake.world.desired[CHAT] == 0


def test_a_number_that_the_api_refuses_is_explained_beside_its_field(page: FirefoxPage, site: RunningSite) -> None:
    page.goto(site.url + POOL)
    wait_until(page, SETTLED)
    page.fill("#change-scale input[name=replicas]", "65")
    page.click("#change-scale form button:not([type=button])")
    wait_until(page, "document.querySelector('#scale-problem')?.textContent.includes('must not be greater than')")
    assert page.evaluate("document.querySelector('#change-scale input[name=replicas]').value") == "65"
    assert any(one.startswith("422") for one in page.troubles()), "the answer's status; nothing else is wrong"


def test_a_sheet_of_a_list_has_moments_and_the_page_has_ages_again(page: FirefoxPage, site: RunningSite) -> None:
    page.goto(f"{site.url}/audit")
    wait_until(page, f"/ago$|^now$/.test({CELL_TIME})")
    page.evaluate(f"() => addEventListener('beforeprint', () => {{ window.printed = {CELL_TIME}; }})")
    assert base64.b64decode(page.print()).startswith(b"%PDF")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", page.evaluate("window.printed"))
    wait_until(page, f"/ago$|^now$/.test({CELL_TIME})")


def test_charts_on_paper_have_light_ink_over_the_whole_sheet(page: FirefoxPage, site: RunningSite) -> None:
    light = opened(page, f"{site.url}{POOL}/slo")
    page.emulate(color_scheme="dark")
    wait_until(page, "matchMedia('(prefers-color-scheme: dark)').matches")
    dark = {one.colour for one in ink_of(page)}
    assert dark.isdisjoint(one.colour for one in light)
    page.emulate(media="print")
    wait_until(page, "'paper' in document.documentElement.dataset")
    page.set_viewport_size({"width": 1000, "height": 900})
    wait_until(page, WIDE)
    printed = ink_of(page)
    assert dark.isdisjoint(one.colour for one in printed)
    assert {one.name for one in printed if one.ink} >= {one.name for one in light if one.ink}


def test_forced_colours_keep_the_keys_of_charts_and_the_current_tab(page: FirefoxPage, site: RunningSite) -> None:
    first = opened(page, site.url + POOL)
    before = page.evaluate(SWATCHES)
    page.emulate(forced_colors="active")
    wait_until(page, "matchMedia('(forced-colors: active)').matches")
    assert page.evaluate(SWATCHES) == before
    borders = page.evaluate(TAB_BORDERS)
    assert sum(one == borders[0] for one in borders) == 1, "the first is the current one"
    assert lost(first, ink_of(page)) == []


def test_nothing_moves_for_who_asked_for_less_motion(page: FirefoxPage, site: RunningSite) -> None:
    page.emulate(reduced_motion="reduce")
    for path in ("/", f"{POOL}/heatmap", POOL, "/search"):
        page.goto(site.url + path)
        wait_until(page, SETTLED)
        assert (path, page.evaluate(MOVING), page.evaluate("document.getAnimations().length")) == (path, [], 0)


@pytest.mark.parametrize("language", ["ar-EG", "de-DE", "fa-IR", "C"])
def test_charts_and_times_are_the_same_in_every_language(language: str, page: FirefoxPage, site: RunningSite) -> None:
    first = opened(page, f"{site.url}/rejections")
    page.emulate(language=language)
    page.goto(f"{site.url}/audit")
    wait_until(page, SETTLED)
    assert page.evaluate("navigator.language") == language
    assert page.evaluate(CELL_TIME).isascii()
    second = opened(page, f"{site.url}/rejections")
    assert all(one.ink for one in second)
    assert [one.name for one in second] == [one.name for one in first]


@contextmanager
def upgraded(assets: Any) -> Iterator[None]:
    version = assets.version
    object.__setattr__(assets, "version", "0123456789abcdef")
    try:
        yield
    finally:
        object.__setattr__(assets, "version", version)


def test_an_open_page_of_an_upgraded_server_loads_itself_again_and_search_is_not_dead(
    page: FirefoxPage, site: RunningSite, assets: Any
) -> None:
    page.goto(f"{site.url}/pools")
    wait_until(page, f"{SETTLED} && {LIVE}")
    page.forget()
    with upgraded(assets):
        page.click(".side [data-palette]")
        wait_until(page, "location.pathname === '/search' || document.querySelector(`script[src*='0123456789abcdef']`) !== null")
        wait_until(page, SETTLED)
        assert page.evaluate("document.querySelector(`script[type=module]`).src").find("0123456789abcdef") > 0
    page.troubles()  # the script that is no longer there

"""Charts over time in a real browser: zoom, the shared crosshair, gaps, colours, keys, weight, and no scripts."""

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route

from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.fakes.public_data.series import GAP, lines_of
from fairlead_testing.running.browser_site import RunningSite, signed_in, wait_until, watch_troubles
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_web.text.time_ranges import stamp

pytestmark = pytest.mark.browser

PATH = "/pools/default/chat"
LIMIT = 90 * 1024
PIXELS = """([of, token, from, to]) => {
  const figure = document.querySelector(of), canvas = figure.querySelector("canvas");
  const probe = document.createElement("canvas").getContext("2d");
  probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(token).trim();
  probe.fillRect(0, 0, 1, 1);
  const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
  const over = figure.querySelector(".u-over"), ratio = devicePixelRatio;
  const left = (over.offsetLeft + from * over.offsetWidth) * ratio, wide = Math.max(1, (to - from) * over.offsetWidth * ratio);
  const found = canvas.getContext("2d").getImageData(left, 0, wide, canvas.height).data;
  let count = 0;
  for (let i = 0; i < found.length; i += 4) count += Math.abs(found[i] - r) + Math.abs(found[i + 1] - g) + Math.abs(found[i + 2] - b) < 12;
  return count;
}"""
"""A script that counts pixels of a token's colour in a part (0-1 of the width) of a chart."""
WORK = "[data-title=Work]"


def hour(site: RunningSite) -> tuple[str, datetime, datetime]:
    """Return the query, start and end of a fixed hour with a gap in the middle."""
    end = site.fake.world.now.replace(minute=GAP.start - 30, second=0, microsecond=0)
    end -= timedelta(hours=end > site.fake.world.now)
    start = end - timedelta(hours=1)
    return f"from={stamp(start)}&to={stamp(end)}", start, end


def opened(page: Page, address: str, count: int = 3) -> None:
    page.goto(address)
    wait_until(page, f"document.querySelectorAll('[data-chart][data-ready=yes]').length >= {count}")
    wait_until(page, "document.querySelector('link[href*=uPlot]').sheet !== null")  # which places all within a chart


def test_dragging_zooms_the_page_and_back_and_keys_undo_it(page: Page, site: RunningSite) -> None:
    query, start, end = hour(site)
    opened(page, f"{site.url}{PATH}?{query}")
    before = page.url
    box = page.locator(f"{WORK} .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 50)
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60)
    page.mouse.up()
    page.wait_for_url(lambda url: url != before)
    asked = {name: datetime.fromisoformat(value[0]) for name, value in parse_qs(urlsplit(page.url).query).items()}
    assert abs(asked["from"] - (start + timedelta(minutes=15))) < timedelta(seconds=40)
    assert abs(asked["to"] - (end - timedelta(minutes=30))) < timedelta(seconds=40)
    wait_until(page, "document.querySelectorAll('[data-chart][data-ready=yes]').length >= 3")
    zoomed = page.url
    page.keyboard.type("tz")
    page.wait_for_url(lambda url: url != zoomed)
    page.go_back()
    page.go_back()
    assert page.url == before


def test_legends_without_a_pointer_have_the_figures_of_the_tiles(page: Page, site: RunningSite) -> None:
    query, *_ = hour(site)
    opened(page, f"{site.url}{PATH}?{query}")
    tiles = dict(
        page.evaluate(
            "[...document.querySelectorAll('#status .stat')].map((one) => [one.querySelector('dt').innerText, one.querySelector('.value').innerText])"
        )
    )
    page.locator("[data-title=Caches]").scroll_into_view_if_needed()
    wait_until(page, "document.querySelector('[data-title=Caches][data-ready=yes]') !== null")
    found = dict(
        page.evaluate("[...document.querySelectorAll('.chart-line')].map((one) => [...one.children].map((each) => each.innerText))")
    )
    assert found["TTFT and TPOT"] == tiles["In time"]
    assert float(tiles["In time"].removesuffix(" %")) <= float(found["TTFT"].removesuffix(" %"))
    assert (found["refused"], found["prefix hits"]) == (tiles["Refused"], tiles["Prefix hit rate"])
    assert re.fullmatch(r"\d.* % in the (minute|\d+ (s|min)) to \d\d:\d\d:\d\d( UTC)?", found["KV in use"]), (
        "a last value says of which time it is the mean"
    )


def test_a_live_legend_says_of_which_time_a_measured_figure_is_the_mean(page: Page, site: RunningSite) -> None:
    opened(page, f"{site.url}{PATH}")
    page.locator("[data-title=Caches]").scroll_into_view_if_needed()
    wait_until(page, "document.querySelector('[data-title=Caches][data-ready=yes]') !== null")
    found = dict(
        page.evaluate("[...document.querySelectorAll('.chart-line')].map((one) => [...one.children].map((each) => each.innerText))")
    )
    for name in ("running", "waiting", "KV in use"):
        assert re.search(r" in the last (minute|\d+ (s|min))$", found[name]), found[name]


def test_the_instant_at_the_pointer_is_told_to_all_and_by_all(page: Page, site: RunningSite) -> None:
    query, start, end = hour(site)
    opened(page, f"{site.url}{PATH}?{query}")
    page.evaluate("() => { window.told = []; document.addEventListener('fairlead:crosshair', (event) => told.push(event.detail.at)); }")
    running = lines_of("running", CHAT, None, start, end, 180, site.fake.world.now)[0]
    index = next(i for i in (20, 80) if running.values[i] is not None)
    at = running.start + timedelta(seconds=(index + 0.5) * running.step_seconds)
    tell = "(at) => document.dispatchEvent(new CustomEvent('fairlead:crosshair', { detail: { at } }))"
    page.evaluate(tell, at.timestamp())
    assert page.inner_text(f"{WORK} .chart-line >> nth=0") == f"running\n{running.values[index]:.0f}"
    assert f"{at:%H:%M:%S}" in page.inner_text("[data-title=Requests] [data-when]")
    page.evaluate(tell, None)
    assert " – " in page.inner_text("[data-title=Requests] [data-when]"), "the range of the figures in the legend"
    box = page.locator(f"{WORK} .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    wait_until(page, "told.length > 2")
    assert abs(page.evaluate("told.at(-1)") - (start + (end - start) / 2).timestamp()) < 30
    assert " – " not in page.inner_text("[data-title=Requests] [data-when]"), "an instant, and no range"
    page.mouse.move(2, 2)
    wait_until(page, "told.at(-1) === null")


def test_a_gap_is_a_gap_and_lines_have_the_colours_of_the_theme(page: Page, site: RunningSite) -> None:
    query, start, _ = hour(site)
    opened(page, f"{site.url}{PATH}?{query}")
    page.mouse.move(2, 2)
    gap = [(minute - start.minute) / 60 for minute in (GAP.start + 1, GAP.stop - 1)]
    for theme in ("light", "dark"):
        page.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", theme)
        wait_until(page, f"({PIXELS})({json.dumps([WORK, '--s0', 0, 1])}) > 100")
        assert page.evaluate(PIXELS, [WORK, "--s0", *gap]) == 0
        assert page.evaluate(PIXELS, [WORK, "--s1", 0, 1]) > 50
    assert "nothing known of" in (page.get_attribute(f"{WORK} [data-plot]", "aria-label") or "")


def test_a_value_with_gaps_on_both_sides_is_a_point(page: Page, site: RunningSite) -> None:
    query, _, _ = hour(site)

    def one_value_each(route: Route) -> None:
        answer = route.fetch()
        series = answer.json()
        for line in series["series"]["lines"]:
            line["values"] = [None] * 20 + [line["values"][5] or 1.0] + [None] * (len(line["values"]) - 21)
        route.fulfill(response=answer, json=series)

    page.route(re.compile(r"/series\b"), one_value_each)
    opened(page, f"{site.url}{PATH}?{query}")
    assert 5 < page.evaluate(PIXELS, [WORK, "--s0", 0, 1]) < 100


def test_keys_walk_a_chart_and_say_its_values_and_lines_can_be_hidden(page: Page, site: RunningSite) -> None:
    query, _, end = hour(site)
    opened(page, f"{site.url}{PATH}?{query}")
    plot = page.locator(f"{WORK} [data-plot]")
    plot.focus()
    for key in ("End", "ArrowLeft", "ArrowLeft"):
        page.keyboard.press(key)
    wait_until(page, f"document.querySelector('{WORK} [data-say]').textContent.includes('{end - timedelta(seconds=75):%H:%M}')")
    assert "running " in page.inner_text(f"{WORK} [data-say]")
    line = page.locator(f"{WORK} .chart-line").first
    line.click()
    assert line.get_attribute("aria-pressed") == "false"
    assert page.evaluate(PIXELS, [WORK, "--s0", 0, 1]) == 0


def test_a_live_chart_draws_and_tells_what_came(page: Page, site: RunningSite) -> None:
    troubles = watch_troubles(page, site.url)
    opened(page, site.url + PATH)
    page.evaluate(f"document.querySelector('{WORK} .chart-line strong').textContent = 'old'")
    wait_until(page, f"document.querySelector('{WORK} .chart-line strong').textContent !== 'old'")
    assert troubles == []


def drawn(page: Page, count: int) -> None:
    """Wait until this many charts were drawn since the last call."""
    wait_until(page, f"document.querySelectorAll('[data-chart][data-ready=yes] .uplot:not([data-seen])').length === {count}")
    page.evaluate("for (const one of document.querySelectorAll('.uplot')) one.dataset.seen = 'yes'")
    assert page.locator(".uplot").count() == count
    assert page.locator("[data-chart]:has(.chart-line)").count() == count
    assert page.locator("[data-plot][tabindex='0']").count() == count


@pytest.mark.parametrize(
    ("path", "name", "value", "count"),
    [("/migrations", "pool", CHAT, 2), ("/migrations", "trigger", "drain", 2), ("/rejections", "pool", CHAT, 1)],
)
def test_a_filter_leaves_the_charts_drawn(page: Page, site: RunningSite, path: str, name: str, value: str, count: int) -> None:
    opened(page, f"{site.url}{path}", count)
    drawn(page, count)
    page.select_option(f"select[name={name}]", value)
    page.wait_for_url(f"**{path}?{name}=*")
    drawn(page, count)
    assert page.locator("[data-src*='/pools/']").count() == count * (name == "pool")
    page.go_back()
    page.wait_for_url(f"**{path}")
    drawn(page, count)


def test_a_chart_that_could_not_be_loaded_is_drawn_when_it_is_tried_again(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site)
    page = context.new_page()
    page.route(re.compile(r"/series\b"), lambda route: route.abort())
    page.goto(f"{site.url}/rejections")
    page.wait_for_selector("[data-chart] :text('could not be loaded')")
    page.unroute_all()
    page.click("text=Try again")
    drawn(page, 1)
    assert page.locator("[data-failed]").count() == 0
    context.close()


def refreshed_until(page: Page, seen: Callable[[], bool]) -> None:
    """Advance the page's clock, by which charts fetch new lines every ten seconds, until the condition holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not seen():
        assert time.monotonic() < deadline
        page.clock.fast_forward(10_000)
        page.wait_for_timeout(200)


def test_a_chart_whose_lines_are_no_longer_had_says_of_when_they_are(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site)
    page = context.new_page()
    page.clock.install()
    opened(page, f"{site.url}/rejections", 1)
    page.route(re.compile(r"/series\b"), lambda route: route.abort())
    said = page.locator("[data-chart] [data-when]:has-text('As of 20')")
    refreshed_until(page, said.is_visible)
    assert "newer lines cannot be had" in said.inner_text()
    page.unroute_all()
    refreshed_until(page, said.is_hidden)
    assert page.locator("[data-stale]").count() == 0
    context.close()


def test_what_happened_is_marked_told_at_the_pointer_and_listed(page: Page, site: RunningSite) -> None:
    opened(page, f"{site.url}{PATH}")
    page.click("[data-chart-events] summary")
    listed = page.inner_text("[data-chart-events] ol")
    assert "both: 6 → 8 wanted" in listed
    assert "<img src=x" in listed
    assert "load test of the billing service" in listed, "what somebody wrote on the time"
    at = (datetime.now(UTC) - timedelta(minutes=30)).timestamp()  # by the clock of the API
    page.evaluate("(at) => document.dispatchEvent(new CustomEvent('fairlead:crosshair', { detail: { at } }))", at)
    wait_until(page, f"document.querySelector('{WORK} [data-when]').textContent.includes('8 wanted')")


def test_a_page_with_charts_weighs_little_at_the_first_visit(chromium: Browser, site: RunningSite) -> None:
    for path in ("/", PATH, f"{PATH}/slo"):
        context = signed_in(chromium, site)
        page = context.new_page()
        opened(page, f"{site.url}{path}", 2)
        sizes = "one => one.encodedBodySize && !/[.](png|json)|live/.test(one.name) ? one.encodedBodySize : 0"
        assert sum(page.evaluate(f"() => performance.getEntries().map({sizes})")) <= LIMIT
        context.close()


def test_without_scripts_the_numbers_are_a_click_away(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site.url}{PATH}")
    with page.expect_navigation():
        page.click("text=As table >> nth=1")
    assert "5.00 s" in page.inner_text("main table >> nth=0")
    assert page.inner_text("main thead >> nth=0").strip().split("\t")[-1] == "ttft limit, seconds"
    context.close()

"""Charts and heatmaps while their page stays open: no refresh changes a line, bar, stack, point or cell wrongly."""

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route

import fairlead_web
from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.fakes.public_data.series import POINTS, STEPS
from fairlead_testing.running.browser_site import RunningSite, running_site, signed_in, wait_until, watch_troubles
from fairlead_testing.running.ink import DRAWN, SAID, UNSAID, Ink, ink_of, lost
from fairlead_testing.running.tour import pages_of
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_web.text.time_ranges import stamp

pytestmark = pytest.mark.browser

REFRESH_SECONDS = 10
TEMPLATES = Path(fairlead_web.__file__).parent / "templates"
PLOTTED = """() => [...document.querySelectorAll("[data-chart] canvas")].map((one) => one.getContext("2d").getImageData(0, 0, one.width, one.height).data)"""
KEEP = f"window.plotted = ({PLOTTED})()"
SEEN = "(data, at) => at % 4 === 3 ? data[at] : data[at] * data[at - at % 4 + 3] / 255"
"""A script for a byte of a picture as it is visible: browsers round the colour of nearly transparent pixels freely."""
DIFFERENT = f"""({PLOTTED})().reduce((sum, now, chart) => {{
  const seen = {SEEN}, before = plotted[chart];
  return sum + now.filter((_, at) => Math.abs(seen(now, at) - seen(before, at)) > 16).length;
}}, 0)"""
"""A script for the share of all charts that differs from the kept picture."""
BUILD = "document.documentElement.dataset.theme = document.documentElement.dataset.theme"
"""A script that sets the theme, even to its present value, which rebuilds all charts."""
BUILT_OTHERWISE = f"""async () => {{
  {KEEP};
  {BUILD};
  for (let turn = 0; turn < 50; turn += 1) await null;
  return {DIFFERENT};
}}"""
"""A script for the share of all charts that differs from newly built charts.

It runs in microtasks only, so that no answer to a refresh comes in between.
"""
START = "document.querySelector('[data-heatmap]').heat.map.start"
MISDRAWN = """[...document.querySelectorAll("[data-heatmap]")].map(({ heat }) => {
  const { map, canvas } = heat, { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return [...map.levels].filter((level, at) => (level === 255 ? data[at * 4 + 3] !== 0
    : [0, 1, 2].some((one) => data[at * 4 + one] !== map.lut[level * 3 + one]))).length;
}).reduce((sum, one) => sum + one, 0)"""
"""A script for the cells of heatmaps that do not have the colour of their level."""


@pytest.fixture(scope="module")
def shared_site() -> Iterator[RunningSite]:
    with running_site() as found:
        yield found


@pytest.fixture
def timed(chromium: Browser, shared_site: RunningSite) -> Iterator[Page]:
    """Yield a page in virtual time, in which refreshes need no waiting; the page may have no errors."""
    context = signed_in(chromium, shared_site, "admin")
    page = context.new_page()
    troubles = watch_troubles(page, shared_site.url)
    page.clock.install()
    yield page
    context.close()
    assert troubles == []


def goes_on(page: Page, seconds: float) -> None:
    """Advance the page's clock without letting a request of htmx time out."""
    wait_until(page, "!document.querySelector('#live-regions.htmx-request')")
    page.clock.run_for(round(seconds * 1000))


def refreshed(page: Page, site: RunningSite) -> None:
    """Advance the page's clock by a refresh, and wait until each live chart has drawn its answer."""
    page.evaluate(UNSAID)
    goes_on(page, REFRESH_SECONDS)
    site.push("instances", [one for pool in site.fake.world.pools_known for one in site.fake.world.instances(pool)])
    wait_until(page, SAID)
    wait_until(page, DRAWN)


def opened(page: Page, address: str) -> list[Ink]:
    page.goto(address)
    wait_until(page, "document.documentElement.classList.contains('scripted')")
    for figure in page.locator("[data-chart], [data-minimap]").all():  # each is drawn when it comes into view
        figure.scroll_into_view_if_needed()
    page.mouse.move(2, 2)
    wait_until(page, DRAWN)
    wait_until(page, "document.querySelector('link[href*=uPlot]')?.sheet !== null")  # which places all within a chart
    return ink_of(page)


def pages_with_charts(chromium: Browser, site: RunningSite) -> dict[str, str]:
    """Return the name and path of every page with a figure drawn by scripts; pages are found, so new ones are
    included.
    """
    context = signed_in(chromium, site, "admin")
    found = {
        name: path
        for name, path in pages_of(site.ask, CHAT).items()
        if re.search(r"\bdata-(chart|heatmap)\b", context.request.get(site.url + path).text())
    }
    context.close()
    return found


def kinds(page: Page) -> set[str]:
    """Return the kinds of series that a page draws."""
    found: set[str] = set(page.evaluate("[...document.querySelectorAll('[data-chart]')].map((one) => one.dataset.kind)"))
    metrics = set(page.evaluate("[...document.querySelectorAll('[data-chart]')].flatMap((one) => one.dataset.metrics.split(' '))"))
    drawn = {"points": bool(metrics & POINTS), "steps": bool(metrics & set(STEPS)), "heatmap": page.locator("[data-heatmap]").count() > 0}
    return found | {name for name, is_there in drawn.items() if is_there}


def faded(page: Page, site: RunningSite, theme: str) -> list[str]:
    """Return the differences that three refreshes made in the figures of a page in a theme."""
    page.evaluate("(name) => { document.documentElement.dataset.theme = name; }", theme)
    first, found = ink_of(page), []
    for number in (1, 2, 3):
        refreshed(page, site)
        found += [f"{theme}, refresh {number}: {one}" for one in lost(first, ink_of(page))]
        if count := page.evaluate(MISDRAWN):
            found.append(f"{theme}, refresh {number}: {count} cells have another colour than their level")
    if count := page.evaluate(BUILT_OTHERWISE):
        found.append(f"{theme}: {count} bytes of refreshed charts are not as in charts built from nothing")
    return found


def test_every_figure_keeps_its_ink_over_three_refreshes_in_light_and_in_dark(
    timed: Page, chromium: Browser, shared_site: RunningSite
) -> None:
    seen: set[str] = set()
    titles: set[str] = set()
    wrong: list[str] = []
    for name, path in pages_with_charts(chromium, shared_site).items():
        first = opened(timed, shared_site.url + path)
        assert first, f"{name}: nothing was drawn"
        seen |= kinds(timed)
        titles |= {one.of for one in first}
        wrong += [f"{name}, {one}" for theme in ("light", "dark") for one in faded(timed, shared_site, theme)]
    assert not wrong, "\n".join(wrong)
    assert seen >= {"line", "bars", "stack", "points", "steps", "heatmap"}
    named = re.compile(r'charts\.chart\(shell, [^\n]*?, "([A-Z][^"]*)"')
    written = {title for one in TEMPLATES.rglob("*.html") for title in named.findall(one.read_text())}
    assert written - titles == set(), "a chart is on no page that is found: add an example of its page to tour.py"


def test_what_a_fixed_range_shows_stays_as_it_is(timed: Page, chromium: Browser, shared_site: RunningSite) -> None:
    end = shared_site.fake.world.now.replace(microsecond=0) - timedelta(minutes=1)
    asked: list[str] = []
    timed.on("request", lambda request: asked.append(request.url) if re.search(r"/(series\.json|heatmap\.bin)", request.url) else None)
    for name, path in pages_with_charts(chromium, shared_site).items():
        first = opened(timed, f"{shared_site.url}{path}?from={stamp(end - timedelta(hours=1))}&to={stamp(end)}")
        timed.evaluate(KEEP)
        asked.clear()
        for _ in range(3):
            refreshed(timed, shared_site)
        assert (asked, timed.evaluate(DIFFERENT), lost(first, ink_of(timed), share=1)) == ([], 0, []), name


Drawing = Callable[[Sequence[dict[str, Any]]], None]


@pytest.fixture
def draw(timed: Page) -> Drawing:
    """Set the lines of charts from now on: metric, part and style, in their order. Return the drawing."""
    told: list[dict[str, Any]] = []

    def answer(route: Route) -> None:
        found = route.fetch()
        series = found.json()
        like = series["series"]["lines"][0]
        series["series"]["lines"] = [like | {"values": [one["level"]] * len(like["values"])} | one for one in told]
        route.fulfill(response=found, json=series)

    def now(lines: Sequence[dict[str, Any]]) -> None:
        told[:] = lines

    timed.route(re.compile(r"/series\.json"), answer)
    return now


def lines_that_come_and_go(metric: str, drawn: str, limit: str | None) -> Iterator[list[dict[str, Any]]]:
    """Yield some of eight parts in any order, each with a value of its own, and sometimes a limit among them."""
    random = Random(7)
    whole = [{"metric": metric, "part": f"part-{name}", "drawn": drawn, "level": 0.1 + 0.1 * at} for at, name in enumerate("abcdefgh")]
    yield whole[:3]
    yield whole[:2]
    yield [whole[3], *whole[2::-1]]
    yield []
    for _ in range(12):
        lines = random.sample(whole, random.randint(1, 8))
        if limit and random.random() < 0.5:
            lines.insert(random.randint(0, len(lines)), {"metric": limit, "part": None, "drawn": "steps", "level": 0.95})
        yield lines


@pytest.mark.parametrize(
    ("path", "title", "metric", "drawn", "limit"),
    [
        ("/pools/default/chat/slo", "In time", "attainment", "line", "goal"),
        ("/rejections", "Refused, by cause", "refused_by_cause", "line", None),
        ("/pools/default/chat/predictor", "Prediction error", "predictor_error", "points", None),
        ("/pools/default/chat/scaling", "Instances", "instances_serving", "steps", None),
    ],
)
def test_a_line_keeps_its_colour_and_its_value_wherever_it_stands_in_the_answer(
    timed: Page, shared_site: RunningSite, draw: Drawing, path: str, title: str, metric: str, drawn: str, limit: str | None
) -> None:
    colours: dict[str, str] = {}
    for number, lines in enumerate(lines_that_come_and_go(metric, drawn, limit)):
        draw(lines)
        if number:
            refreshed(timed, shared_site)
        else:
            opened(timed, shared_site.url + path)
        if number == 8:
            timed.evaluate(BUILD)
        found = [one for one in ink_of(timed) if one.of == title]
        assert [one.line.split()[-1] for one in found] == [(one["part"] or "goal").split("-")[-1] for one in lines]
        for one, line in zip(found, lines, strict=True):
            assert colours.setdefault(one.line, one.colour) == one.colour, f"{number}: {one.name}"
            assert one.ink > 20, f"{number}: {one.name}"
            amount = one.said.partition(" in the ")[0]
            assert re.sub(r"[^0-9.]", "", amount) in {
                f"{line['level'] * unit:.{digits}f}" for unit in (1, 100, 1000) for digits in (0, 1, 2)
            }
    assert len(set(colours.values())) == len(colours), "each has its own"


def test_a_hidden_line_and_the_focus_in_the_legend_stay_when_lines_come_and_go(
    timed: Page, shared_site: RunningSite, draw: Drawing
) -> None:
    one, two, three = ({"metric": "attainment", "part": name, "drawn": "line", "level": 0.2 + 0.2 * at} for at, name in enumerate("abc"))
    draw([one, two])
    opened(timed, f"{shared_site.url}/pools/default/chat/slo")
    timed.locator(".chart-line", has_text="b").first.focus()
    timed.keyboard.press("Enter")
    for lines in ([three, two, one], [two, three], [one, two]):
        draw(lines)
        refreshed(timed, shared_site)
        found = {each.line: each for each in ink_of(timed) if each.of == "In time"}
        assert {name for name, each in found.items() if each.hidden} == {"b"}
        assert {name for name, each in found.items() if each.ink} == set(found) - {"b"}
        assert timed.evaluate("document.activeElement.querySelector('span').textContent") == "b"
    draw([two])
    refreshed(timed, shared_site)
    assert [each.ink > 0 for each in ink_of(timed) if each.of == "In time"] == [True], "a chart never hides all it has"


def test_a_chart_that_is_swapped_for_what_the_server_sends_is_drawn_again(timed: Page, shared_site: RunningSite) -> None:
    first = opened(timed, f"{shared_site.url}/rejections")
    timed.evaluate("""async () => {
      const sent = new DOMParser().parseFromString(await (await fetch(location.href)).text(), "text/html");
      document.querySelector("[data-chart]").replaceWith(document.adoptNode(sent.querySelector("[data-chart]")));
      document.dispatchEvent(new CustomEvent("htmx:after:swap", { detail: { ctx: {} } }));
    }""")
    goes_on(timed, 0.1)
    wait_until(timed, "document.querySelector('[data-chart]').dataset.ready === 'yes'")
    assert lost(first, ink_of(timed)) == []


@pytest.mark.parametrize("language", ["C", "en-US@posix", "", "de_DE.UTF-8"])
def test_charts_are_drawn_in_a_browser_whose_language_is_none(chromium: Browser, shared_site: RunningSite, language: str) -> None:
    context = signed_in(chromium, shared_site)
    context.add_init_script(f"Object.defineProperty(Navigator.prototype, 'language', {{ get: () => {json.dumps(language)} }})")
    page = context.new_page()
    troubles = watch_troubles(page, shared_site.url)
    assert all(one.ink for one in opened(page, f"{shared_site.url}/rejections"))
    assert all(one.ink for one in opened(page, f"{shared_site.url}/pools/default/chat/heatmap"))
    assert troubles == []
    context.close()


@pytest.mark.parametrize("script", [None, "throw new RangeError('C')"])
def test_charts_whose_library_did_not_start_say_so_and_are_drawn_when_tried_again(
    chromium: Browser, shared_site: RunningSite, script: str | None
) -> None:
    context = signed_in(chromium, shared_site)
    page = context.new_page()
    broken = re.compile(r"uPlot\.iife")
    page.route(broken, lambda route: route.abort() if script is None else route.fulfill(body=script, content_type="text/javascript"))
    page.goto(f"{shared_site.url}/rejections")
    page.wait_for_selector("[data-chart] :text('could not be loaded')")
    page.unroute(broken)
    page.click("text=Try again")
    wait_until(page, DRAWN)
    assert all(one.ink for one in ink_of(page))
    context.close()


def test_a_chart_that_cannot_be_drawn_says_so_beside_those_that_are_and_is_drawn_once_it_can(
    chromium: Browser, shared_site: RunningSite
) -> None:
    context = signed_in(chromium, shared_site)
    page = context.new_page()
    page.clock.install()
    bad = [True]

    def answer(route: Route) -> None:
        found = route.fetch()
        series = found.json()
        for line in series["series"]["lines"]:
            line["values"] = None if bad[0] and line["metric"] == "refused" else line["values"]
        route.fulfill(response=found, json=series)

    page.route(re.compile(r"/series\.json"), answer)
    page.goto(f"{shared_site.url}/")
    page.wait_for_selector("[data-title=Refused][data-ready=failed] :text('could not be loaded')")
    wait_until(page, "document.querySelectorAll('[data-chart][data-ready=yes]').length === 2")
    bad[0] = False
    goes_on(page, REFRESH_SECONDS)
    wait_until(page, DRAWN)
    assert page.locator("[data-failed]").count() == 0
    assert all(one.ink for one in ink_of(page) if one.of == "Refused")
    context.close()


def test_what_is_looked_at_in_a_heatmap_stays_with_its_time_and_the_tip_with_the_pointer(timed: Page, shared_site: RunningSite) -> None:
    opened(timed, f"{shared_site.url}/pools/default/chat/heatmap?from=now-10m")
    box = timed.locator("canvas[data-cells]").bounding_box()
    assert box is not None
    columns, step = timed.evaluate("(({ columns, step }) => [columns, step])(document.querySelector('[data-heatmap]').heat.map)")

    def place(column: float) -> tuple[float, float]:
        return box["x"] + (column + 0.5) * box["width"] / columns, box["y"] + 3

    def moved_on() -> None:
        before = timed.evaluate(START)
        goes_on(timed, step)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while timed.evaluate(START) == before:  # its stream may just be made again
            assert time.monotonic() < deadline, "the map does not move on"
            shared_site.push("instances", shared_site.fake.world.instances(CHAT))
            timed.wait_for_timeout(100)

    timed.route(re.compile(r"/heatmap\.bin"), lambda _: None)  # the server's time does not go on as the page's does
    moved_on()
    surface = timed.locator(".heatmap-surface")
    surface.focus()
    for key in ("Home", *["ArrowRight"] * 20):
        timed.keyboard.press(key)
    explained = stamp(datetime.fromtimestamp(timed.evaluate(START) + 20 * step, UTC))
    moved_on()
    with timed.expect_request("**/explanation?**") as asked:
        timed.keyboard.press("e")
    assert parse_qs(urlsplit(asked.value.url).query)["from"] == [explained]
    timed.keyboard.down("Shift")
    timed.mouse.click(*place(30))
    timed.keyboard.up("Shift")
    pinned = timed.evaluate(START) + 30 * step
    moved_on()
    held = timed.evaluate("document.querySelector('[data-heatmap]').heat.view.pinned.at")
    assert pinned <= held < pinned + step
    timed.keyboard.press("Escape")
    timed.mouse.move(*place(40))
    for _ in range(2):
        moved_on()
        under = datetime.fromtimestamp(timed.evaluate(START) + 40 * step, UTC)
        assert f"{under:%Y-%m-%d %H:%M:%S}" in timed.inner_text(".heatmap-tip")

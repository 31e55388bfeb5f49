"""The heatmap in a real browser: its pixels, numbers, clicks, keys, zoom and live columns."""

import itertools
import re
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page
from playwright.sync_api import TimeoutError as NotSeen

from fairlead_client.resources.heatmaps import Heatmap
from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.browser_site import RunningSite, signed_in, wait_until
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_web.heatmaps.cells import cell_size, short_of, text_of
from fairlead_web.pages.heatmap import TABLE_COLUMNS
from fairlead_web.text.time_ranges import stamp

pytestmark = pytest.mark.browser

PATH = "/pools/default/chat/heatmap"


def absolute(site: RunningSite, minutes: int = 60) -> tuple[str, datetime, datetime]:
    """Return the query, start and end of a fixed range."""
    end = site.fake.world.now.replace(microsecond=0) - timedelta(minutes=1)
    start = end - timedelta(minutes=minutes)
    return f"from={stamp(start)}&to={stamp(end)}", start, end


def opened(page: Page, site: RunningSite, query: str) -> None:
    page.goto(f"{site.url}{PATH}?{query}")
    page.wait_for_selector("[data-heatmap][data-ready]")


def cell_centre(page: Page, row: int, column: int, rows: int, columns: int) -> tuple[float, float]:
    box = page.locator("canvas[data-cells]").first.bounding_box()
    assert box is not None
    return box["x"] + (column + 0.5) * box["width"] / columns, box["y"] + (row + 0.5) * box["height"] / rows


def test_tooltips_show_the_numbers_of_the_api(page: Page, site: RunningSite) -> None:
    query, start, end = absolute(site)
    opened(page, site, f"{query}&metric=kv_usage")
    heatmap = site.fake.world.heatmap(CHAT, "kv_usage", start, end, 120, "max", "name")
    random = Random(7)
    cells = [(random.randrange(len(heatmap.rows)), random.randrange(heatmap.columns)) for _ in range(50)]
    nothing = next((r, c) for r, row in enumerate(heatmap.rows) for c, value in enumerate(row.values) if value is None)
    for row, column in [*cells, nothing]:
        page.mouse.move(*cell_centre(page, row, column, len(heatmap.rows), heatmap.columns))
        shown = page.locator(".heatmap-tip .exact").inner_text()
        assert shown == text_of(heatmap.rows[row].values[column], "share")
        assert page.locator(".heatmap-tip strong").inner_text() == heatmap.rows[row].instance


def test_canvas_and_picture_have_the_same_pixels(page: Page, site: RunningSite) -> None:
    query, _, _ = absolute(site)
    opened(page, site, f"{query}&metric=ttft_p95")
    different = page.evaluate(
        """async () => {
            const canvas = document.querySelector('canvas[data-cells]');
            const picture = new Image();
            picture.src = document.querySelector('[data-heatmap]').dataset.src.replace('.bin', '.png');
            await picture.decode();
            const copy = document.createElement('canvas');
            [copy.width, copy.height] = [picture.naturalWidth, picture.naturalHeight];
            if (copy.width !== canvas.width || copy.height !== canvas.height) return -1;
            copy.getContext('2d').drawImage(picture, 0, 0);
            const pixels = (one) => one.getContext('2d').getImageData(0, 0, one.width, one.height).data;
            const [a, b] = [pixels(canvas), pixels(copy)];
            return a.reduce((sum, value, index) => sum + (value !== b[index]), 0);
        }"""
    )
    assert different == 0


def test_a_click_leads_to_the_instance_in_that_window(page: Page, site: RunningSite) -> None:
    query, start, end = absolute(site)
    opened(page, site, query)
    heatmap = site.fake.world.heatmap(CHAT, "pending_prefill_tokens", start, end, 120, "max", "name")
    page.mouse.click(*cell_centre(page, 2, 40, len(heatmap.rows), heatmap.columns))
    page.wait_for_url(f"**/instances/{heatmap.rows[2].instance}?**")
    asked = parse_qs(urlsplit(page.url).query)
    assert asked["from"] == [stamp(heatmap.start + timedelta(seconds=40 * heatmap.step_seconds))]
    assert asked["to"] == [stamp(heatmap.start + timedelta(seconds=41 * heatmap.step_seconds))]
    page.click("text=All in this range")
    page.wait_for_url("**/decisions?**")
    assert parse_qs(urlsplit(page.url).query)["from"] == asked["from"]


def test_dragging_zooms_and_back_and_keys_undo_it(page: Page, site: RunningSite) -> None:
    query, start, _ = absolute(site)
    opened(page, site, query)
    before = page.url
    x, y = cell_centre(page, 1, 30, 8, 120)
    right, _ = cell_centre(page, 1, 60, 8, 120)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move((x + right) / 2, y + 4)
    page.mouse.move(right, y + 8)
    page.mouse.up()
    page.wait_for_url(lambda url: url != before)
    asked = parse_qs(urlsplit(page.url).query)
    zoomed = datetime.fromisoformat(asked["to"][0]) - datetime.fromisoformat(asked["from"][0])
    assert timedelta(minutes=14) <= zoomed <= timedelta(minutes=17)
    assert datetime.fromisoformat(asked["from"][0]) > start
    page.wait_for_selector("[data-heatmap][data-ready]")
    zoomed_url = page.url
    page.locator("#workspace").click()
    page.keyboard.type("tz")
    page.wait_for_url(lambda url: url != zoomed_url)
    page.go_back()
    page.go_back()
    assert page.url == before


def test_the_keyboard_walks_the_cells_and_opens_one(page: Page, site: RunningSite) -> None:
    query, start, end = absolute(site)
    opened(page, site, f"{query}&metric=kv_usage")
    heatmap = site.fake.world.heatmap(CHAT, "kv_usage", start, end, 120, "max", "name")
    page.keyboard.press("Tab")
    page.locator(".heatmap-surface").focus()
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    expected = text_of(heatmap.rows[1].values[2], "share")
    assert page.locator(".heatmap-tip .exact").inner_text() == expected
    wait_until(page, f"document.querySelector('[data-announce]').textContent.startsWith('{heatmap.rows[1].instance}, ')")
    spoken = page.locator("[data-announce]").inner_text()
    assert expected in spoken
    assert "limit 90.0 %" in spoken
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/instances/{heatmap.rows[1].instance}?**")


def test_arrows_wait_for_a_look_say_how_many_there_are_and_leave_clicks_to_the_cells(page: Page, site: RunningSite) -> None:
    query, start, end = absolute(site)
    opened(page, site, query)
    heatmap = site.fake.world.heatmap(CHAT, "pending_prefill_tokens", start, end, 120, "max", "name")
    assert len(heatmap.migrations) > 60
    assert f"{heatmap.migrations_total} of {heatmap.migrations_total} shown" in page.inner_text("[data-arrows-shown]")
    rows = {row.instance: index for index, row in enumerate(heatmap.rows)}
    move = next(one for one in heatmap.migrations if abs(rows[one.source] - rows[one.target]) > 1)
    column = int((move.at - heatmap.start).total_seconds() // heatmap.step_seconds)
    middle = (rows[move.source] + rows[move.target]) // 2
    assert drawn(page) == 0, "no arrow before somebody looks"
    page.mouse.move(*cell_centre(page, rows[move.source], column, len(rows), heatmap.columns))
    assert 0 < drawn(page) < len(heatmap.migrations), "only those of the row"
    page.select_option("[data-moves]", "all")
    page.mouse.click(*cell_centre(page, middle, column, len(rows), heatmap.columns))
    page.wait_for_url(f"**/instances/{heatmap.rows[middle].instance}?**")


def drawn(page: Page) -> int:
    return int(page.evaluate("document.querySelector('[data-heatmap]').heat.view.moves.length"))


def test_a_pinned_cell_links_to_its_moves_and_is_explained(page: Page, site: RunningSite) -> None:
    query, start, end = absolute(site)
    opened(page, site, query)
    heatmap = site.fake.world.heatmap(CHAT, "pending_prefill_tokens", start, end, 120, "max", "name")
    rows = {row.instance: index for index, row in enumerate(heatmap.rows)}
    move = next(one for one in heatmap.migrations if one.count == 1)
    column = int((move.at - heatmap.start).total_seconds() // heatmap.step_seconds)
    page.keyboard.down("Shift")
    page.mouse.click(*cell_centre(page, rows[move.source], column, len(rows), heatmap.columns))
    page.keyboard.up("Shift")
    tip = page.locator(".heatmap-tip.pinned")
    assert tip.locator(f"a[href$='/migrations/{move.id}']").count() == 1
    page.wait_for_selector(f"#explanation h2:has-text('{move.source}')")
    asked = text_of(heatmap.rows[rows[move.source]].values[column], "tokens").removesuffix(" tokens")
    page.wait_for_selector(f"#explanation .asked td:first-of-type:text-is('{asked}')")  # the panel's figure is the cell's
    assert "left for" in page.inner_text("#explanation")
    page.mouse.move(5, 5)
    assert tip.is_visible(), "a pinned tip stays"
    page.keyboard.press("Escape")
    assert tip.count() == 0


def test_stacked_maps_share_rows_range_and_crosshair(page: Page, site: RunningSite) -> None:
    query, start, end = absolute(site)
    opened(page, site, f"{query}&metric=ttft_p95&stack=kv_usage,running&sort=pain")
    wait_until(page, "document.querySelectorAll('[data-heatmap][data-ready]').length === 3")
    labels = page.evaluate("[...document.querySelectorAll('.heatmap-labels')].map((list) => list.textContent.trim())")
    assert labels[0] == labels[1] == labels[2]
    names = labels[0].split()
    heatmap = site.fake.world.heatmap(CHAT, "kv_usage", start, end, 120, "max", "name")
    kv = {row.instance: row for row in heatmap.rows}
    page.evaluate("document.addEventListener('fairlead:crosshair', (event) => { window.looked = event.detail.at; })")
    page.mouse.move(*cell_centre(page, 3, 50, len(names), heatmap.columns))
    assert page.locator("[data-readout]").nth(1).inner_text() == text_of(kv[names[3]].values[50], "share")
    assert page.evaluate("window.looked") == heatmap.start.timestamp() + 50.5 * heatmap.step_seconds
    page.evaluate("document.dispatchEvent(new CustomEvent('fairlead:crosshair', { detail: { at: null } }))")
    assert page.locator("[data-readout]").nth(1).inner_text() == ""


def test_a_comparison_shows_what_changed_with_its_sign(page: Page, site: RunningSite) -> None:
    query, start, end = absolute(site)
    opened(page, site, f"{query}&metric=kv_usage&compare=day")
    now, then = (
        site.fake.world.heatmap(CHAT, "kv_usage", start - timedelta(days=back), end - timedelta(days=back), 120, "max", "name")
        for back in (0, 1)
    )
    # By what the cells hold: which rows have gaps, and where, follows from the minute of the hour.
    changes = [
        (row, column, one, other)
        for row in range(len(now.rows))
        for column, (one, other) in enumerate(zip(now.rows[row].values, then.rows[row].values, strict=True))
        if one is not None and other is not None and one != other
    ]
    for row, column, one, other in Random(7).sample(changes, 5):
        page.mouse.move(*cell_centre(page, row, column, len(now.rows), now.columns))
        shown = page.locator(".heatmap-tip .exact").inner_text()
        assert shown[0] == ("+" if one > other else "−")
        assert f"{text_of(one, 'share')}, then {text_of(other, 'share')}" in page.inner_text(".heatmap-tip")


NEWEST_IN_SIGHT = """(() => {
  const right = (one) => document.querySelector(one).getBoundingClientRect().right;
  return document.querySelector(".heatmap-box").scrollWidth > innerWidth && Math.abs(right(".heatmap-plot") - right(".heatmap-box")) < 3;
})()"""


def test_without_scripts_the_map_opens_at_the_newest_edge_too(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site, viewport={"width": 380, "height": 800}, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site.url}/pools/default/chat/heatmap")
    assert page.evaluate(NEWEST_IN_SIGHT)
    context.close()


def test_a_window_that_becomes_narrow_keeps_the_newest_in_sight(page: Page, site: RunningSite) -> None:
    opened(page, site, absolute(site)[0])
    page.set_viewport_size({"width": 380, "height": 800})
    wait_until(page, NEWEST_IN_SIGHT)


def test_on_a_phone_the_map_opens_at_the_newest_edge_and_a_tap_explains(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site, viewport={"width": 380, "height": 800}, has_touch=True)
    page = context.new_page()
    query, _, _ = absolute(site)
    opened(page, site, query)
    assert page.evaluate(NEWEST_IN_SIGHT)
    page.locator("canvas[data-cells]").scroll_into_view_if_needed()
    box = page.locator("canvas[data-cells]").bounding_box()
    assert box is not None
    page.touchscreen.tap(300, box["y"] + box["height"] / 2)
    page.wait_for_selector(".heatmap-tip.pinned")
    page.wait_for_selector("#explanation .why-causes")
    context.close()


def test_the_panel_judges_by_the_limit_of_the_maps_newest_reading(page: Page, site: RunningSite) -> None:
    query, _, _ = absolute(site)
    opened(page, site, query)
    page.wait_for_selector("#explanation .asked")
    page.evaluate("() => { const { heat } = document.querySelector('[data-heatmap]'); heat.adopt({ ...heat.map, limit: 12345 }); }")
    page.wait_for_selector("#explanation .asked:has-text('12,345')")
    page.wait_for_selector("#explanation[aria-live=polite]")


def test_without_scripts_a_click_on_the_picture_opens_the_instance(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site, java_script_enabled=False)
    page = context.new_page()
    query, start, end = absolute(site)
    page.goto(f"{site.url}{PATH}?{query}")
    heatmap = site.fake.world.heatmap(CHAT, "pending_prefill_tokens", start, end, 120, "max", "name")
    size = cell_size(heatmap.columns, len(heatmap.rows))
    page.locator("input[type=image]").click(position={"x": 33 * size.width + 2, "y": 4 * size.height + 5})
    page.wait_for_url(f"**/instances/{heatmap.rows[4].instance}?**")
    assert parse_qs(urlsplit(page.url).query)["from"] == [stamp(heatmap.start + timedelta(seconds=33 * heatmap.step_seconds))]
    context.close()


def test_the_newest_column_follows_live_events(page: Page, site: RunningSite) -> None:
    opened(page, site, "from=now-10m&metric=running")
    page.wait_for_selector("#live-pill[data-state=live]")
    one = site.fake.world.instance(CHAT, min(INSTANCES[CHAT]))  # the first row: rows are in order of their names
    page.locator("canvas[data-cells]").scroll_into_view_if_needed()
    told = False
    for _ in range(120):  # as reports come, second by second: a column may end between an event and the look at it
        page.mouse.move(2, 2)  # what the tip shows is of when the pointer came to the cell
        site.push("instances", [replace(one, running=777)])
        columns = int(page.evaluate("document.querySelector('canvas[data-cells]').width"))
        page.mouse.move(*cell_centre(page, 0, columns - 1, 8, columns))
        with suppress(NotSeen):
            page.locator(".heatmap-tip .exact", has_text="777 requests").first.wait_for(timeout=1000)
            told = True
            break
    assert told


def test_a_live_map_moves_on_by_itself_without_loading_the_page_again(page: Page, site: RunningSite) -> None:
    opened(page, site, "from=now-2m&metric=tpot_p95")
    page.wait_for_selector("#live-pill[data-state=live]")
    page.evaluate("window.marked = true")

    def asked() -> int:
        return [path for _, path in site.fake.requests].count("/v1/pools/default/chat/heatmap")

    before, began = asked(), time.monotonic()
    one = site.fake.world.instance(CHAT, INSTANCES[CHAT][0])
    for second in range(int(PATIENCE_SECONDS)):
        site.push("instances", [replace(one, running=second)])
        page.wait_for_timeout(1000)
        if second >= 7 and asked() > before:
            break
    assert 1 <= asked() - before <= 2 + (time.monotonic() - began) // 5, "at most each five seconds"
    assert page.evaluate("window.marked") is True


READ_AGAIN = "document.dispatchEvent(new CustomEvent('fairlead:live', { detail: { topic: 'poll', items: [] } }))"
MAP = "document.querySelector('[data-heatmap]').heat.map"


def test_scale_summary_and_ranking_are_of_the_reading_that_the_colours_are_of(
    page: Page, site: RunningSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(page, site, "from=now-1h&to=now")
    page.wait_for_selector("#live-pill[data-state=live]")
    before, heatmap_then = page.evaluate(f"{MAP}.top"), site.fake.world.heatmap

    def heatmap(*asked: object, **named: object) -> Heatmap:
        found = heatmap_then(*asked, **named)  # type: ignore[arg-type]  # passed on as it came
        rows = [replace(row, values=[value and value * 4 for value in row.values]) for row in found.rows]
        return replace(found, rows=rows, maximum=found.maximum * 4)

    monkeypatch.setattr(site.fake.world, "heatmap", heatmap)
    page.evaluate(READ_AGAIN)
    wait_until(page, f"{MAP}.top > 2 * {before}")
    top = page.evaluate(f"{MAP}.top")
    assert page.locator(".scale-marks text").last.text_content() == short_of(top, "tokens").removesuffix(" tokens")
    assert f"Highest: {text_of(top, 'tokens')} on" in page.inner_text("#heatmap-summary-1")
    assert page.locator("[aria-labelledby=h-ranked] tr td.num").first.inner_text().removesuffix(" over limit") == text_of(top, "tokens")


def test_a_value_beyond_the_scale_has_the_map_read_again(page: Page, site: RunningSite) -> None:
    page.clock.install()
    opened(page, site, "from=now-10m&metric=running")
    page.wait_for_selector("#live-pill[data-state=live]")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "heatmap.bin" in request.url else None)
    one = site.fake.world.instance(CHAT, min(INSTANCES[CHAT]))
    page.clock.fast_forward(20_000)
    event = {"topic": "instances", "items": [{"id": one.id, "pool": CHAT, "state": "Serving", "running": 777}]}
    page.evaluate("(detail) => document.dispatchEvent(new CustomEvent('fairlead:live', { detail }))", event)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not asked:
        assert time.monotonic() < deadline
        page.wait_for_timeout(25)


def test_an_instance_that_goes_takes_its_row_along_and_leaves_what_is_typed(
    page: Page, site: RunningSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(page, site, "from=now-1h&to=now")
    page.wait_for_selector("#live-pill[data-state=live]")
    page.locator("details.range > summary").click()
    page.fill("details.range [name=from]", "2026-11-26 08:00")
    heatmap_then = site.fake.world.heatmap

    def heatmap(*asked: object, **named: object) -> Heatmap:
        found = heatmap_then(*asked, **named)  # type: ignore[arg-type]  # passed on as it came
        gone = found.rows[0].instance
        kept = [one for one in found.migrations if gone not in (one.source, one.target)]
        return replace(found, rows=found.rows[1:], rows_total=7, migrations=kept)

    monkeypatch.setattr(site.fake.world, "heatmap", heatmap)
    page.evaluate(READ_AGAIN)
    wait_until(page, f"{MAP}.rows.length === 7")
    named = page.evaluate("[...document.querySelectorAll('.heatmap-labels [data-row]')].map((one) => one.dataset.row)")
    assert named == page.evaluate(f"{MAP}.rows.map((one) => one.id)")
    assert "7 instances" in page.inner_text("[data-told=grid]")
    assert page.input_value("details.range [name=from]") == "2026-11-26 08:00"


def test_an_instance_without_a_row_is_asked_for_once(page: Page, site: RunningSite) -> None:
    opened(page, site, "from=now-1h&to=now")
    page.wait_for_selector("#live-pill[data-state=live]")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "heatmap.bin" in request.url else None)
    stranger = replace(site.fake.world.instance(CHAT, INSTANCES[CHAT][0]), id="chat-beyond")
    deadline = time.monotonic() + PATIENCE_SECONDS
    told = 0
    while not asked or told < 9:  # it goes on being told of after it was asked for
        assert time.monotonic() < deadline
        site.push("instances", [replace(stranger, running=told)])
        page.wait_for_timeout(1000)
        told += bool(asked)
    assert len(asked) == 1


@pytest.mark.parametrize("told", [True, False], ids=["an event tells of it", "nothing tells of it"])
def test_a_map_without_load_is_drawn_once_load_comes(told: bool, page: Page, site: RunningSite, monkeypatch: pytest.MonkeyPatch) -> None:
    page.clock.install()
    heatmap_then, loaded = site.fake.world.heatmap, False

    def heatmap(*asked: object, **named: object) -> Heatmap:
        found = heatmap_then(*asked, **named)  # type: ignore[arg-type]  # passed on as it came
        return found if loaded else replace(found, rows=[], rows_total=0, migrations=[], migrations_total=0)

    monkeypatch.setattr(site.fake.world, "heatmap", heatmap)
    page.goto(f"{site.url}{PATH}?from=now-1h&to=now")
    page.wait_for_selector("[data-heatmap-awaited]")
    page.wait_for_selector("#live-pill[data-state=live]")
    loaded = True
    page.clock.fast_forward(10_000 if told else 61_000)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not page.locator("[data-heatmap][data-ready]").count():
        assert time.monotonic() < deadline
        if told:
            site.push("instances", [site.fake.world.instance(CHAT, INSTANCES[CHAT][0])])
        page.wait_for_timeout(250)


def test_the_table_agrees_with_the_csv(page: Page, site: RunningSite) -> None:
    query, _, _ = absolute(site, minutes=4)
    page.goto(f"{site.url}{PATH}?{query}&metric=running&view=table&columns=25")
    lines = page.request.get(f"{site.url}{PATH}.csv?{query}&metric=running&columns=25").text().splitlines()
    header = lines[0].split(",")
    first = lines[1].split(",")
    times = page.locator("table.grid thead th").all_inner_texts()[1:]
    cells = page.locator("table.grid tbody tr").first.locator("td").all_inner_texts()
    expected = dict(zip((column[11:19] for column in header[3:]), first[3:], strict=True))
    shown = {time: re.sub(r" requests?| over the limit", "", cell) for time, cell in zip(times, cells, strict=True)}
    assert len(shown) == TABLE_COLUMNS
    assert shown == {time: expected[time] for time in shown}


def test_times_on_the_axis_are_utc_unless_asked_otherwise(page: Page, site: RunningSite) -> None:
    query, start, _ = absolute(site)
    opened(page, site, query)
    labels = page.locator("[data-axis] text").all_text_contents()
    hours = {f"{(start + timedelta(hours=step)).astimezone(UTC):%H}" for step in (0, 1)}
    assert labels
    assert {label[:2] for label in labels} <= hours


@pytest.mark.parametrize(("rows", "columns"), [(64, 120), (512, 360)])
def test_a_large_heatmap_is_painted_as_one_image(rows: int, columns: int, page: Page, site: RunningSite) -> None:
    """The test counts calls that draw or change the page, as their duration depends on the machine."""
    opened(page, site, absolute(site)[0])
    page.evaluate(
        """() => {
          window.calls = 0;
          for (const kind of [CanvasRenderingContext2D, Document, Node])
            for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(kind.prototype)))
              if (typeof value === "function" && name !== "constructor")
                kind.prototype[name] = function (...given) { window.calls += 1; return value.apply(this, given); };
        }"""
    )
    painted = page.evaluate(
        """([rows, columns]) => new Promise((done) => {
          const { heat } = document.querySelector("[data-heatmap]");
          const names = Array.from({ length: rows }, (_, row) => ({ ...heat.map.rows[0], id: `row-${row}` }));
          const levels = Uint8Array.from({ length: rows * columns }, (_, cell) => (cell * 7919) % 250);
          const rowOf = new Map(names.map((one, row) => [one.id, row]));
          heat.adopt({ ...heat.map, rows: names, columns, levels, steps: new Uint32Array(levels), rowOf, moves: [], limit_level: 200 });
          requestAnimationFrame(() => setTimeout(() => done([heat.canvas.height, heat.canvas.width])));
        })""",
        [rows, columns],
    )
    assert painted == [rows, columns]
    assert 0 < page.evaluate("window.calls") < rows, "not even one for each row"


def test_the_marks_of_a_scale_with_a_limit_are_apart(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/pools/default/chat/heatmap")
    boxes = page.locator(".scale-marks text").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect()).map((one) => [one.left, one.right])"
    )
    assert len(boxes) == 5
    assert all(before[1] < after[0] for before, after in itertools.pairwise(sorted(boxes)))

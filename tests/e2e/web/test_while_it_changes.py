"""Text that a reader selects, types or opens stays while the page changes, is left, or loses its session."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.browser_site import RunningSite, session_cookie, signed_in, wait_until, watch_troubles
from fairlead_testing.running.people import until_at

pytestmark = pytest.mark.browser

LIVE = "#live-pill[data-state=live]"
HIDE = """(hidden) => {
  for (const [name, value] of [["hidden", hidden], ["visibilityState", hidden ? "hidden" : "visible"]])
    Object.defineProperty(document, name, { value, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
NOTE = """() => {
  const [main, pill] = [document.getElementById("main"), document.getElementById("live-pill")];
  window.seen = [];
  new MutationObserver(() => window.seen.push(Boolean(document.getElementById("away")))).observe(main, { childList: true });
  new MutationObserver(() => window.seen.push(pill.dataset.state)).observe(pill, { attributeFilter: ["data-state"] });
}"""
"""A script that records in `window.seen`, at each change, whether there is an alarm, and the pill's text."""
FOCUS = "[document.activeElement.textContent, document.activeElement.href]"


def push_pools(site: RunningSite) -> None:
    site.push("pools", [site.fake.world.pool(name) for name in site.fake.world.pools_known])


def after_signing_out(page: Page, site: RunningSite, act: Callable[[], object]) -> None:
    """End the session, act, and sign in again."""
    known = site.fake.tokens.pop("operator-token")
    act()
    until_at(page, "/login")
    site.fake.tokens["operator-token"] = known
    page.context.add_cookies([{"name": session_cookie(site.url), "value": "operator-token", "url": site.url}])


def test_a_question_mark_is_typed_where_text_is_typed(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/migrations")
    page.wait_for_selector("html.scripted")
    page.focus("input[name=session]")
    page.keyboard.type("a?b")
    assert page.input_value("input[name=session]") == "a?b"
    assert page.locator("dialog").count() == 0


def test_what_was_typed_is_kept_when_the_page_itself_finds_that_the_session_ended(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site)
    page = context.new_page()
    page.goto(f"{site.url}/pools/{CHAT}")
    page.wait_for_selector(LIVE)
    page.fill("input[name=replicas]", "11")
    after_signing_out(page, site, lambda: site.loop.call_soon_threadsafe(site.fake.end_streams))
    page.goto(f"{site.url}/pools/{CHAT}")
    page.wait_for_selector("[data-kept]:has-text('What you typed is here again')")
    assert page.input_value("input[name=replicas]") == "11"
    context.close()


def test_a_form_with_a_file_is_kept_without_it_and_the_page_works(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site)
    page = context.new_page()
    address = f"{site.url}/pools/{CHAT}/simulator"
    page.goto(address)
    page.wait_for_selector("html.scripted")
    page.set_input_files("input[name=trace]", {"name": "t.jsonl", "mimeType": "application/json", "buffer": b"{}\n"})
    page.fill("input[name=seed]", "7")
    after_signing_out(page, site, lambda: page.get_by_role("button", name="Simulate").click())
    troubles = watch_troubles(page, site.url)
    page.goto(address)
    page.wait_for_selector("html.scripted")
    assert page.input_value("input[name=seed]") == "7"
    assert troubles == []
    context.close()


def test_names_stand_beside_their_rows_in_whatever_order_the_map_comes(page: Page, site: RunningSite) -> None:
    def turned(route: Route) -> None:
        answer = route.fetch()
        rows = re.findall(r'<li data-row="[^"]+">.*?</li>', answer.text(), re.DOTALL)
        assert len(rows) > 2
        body = answer.text().replace(rows[0], "\0").replace(rows[1], rows[0]).replace("\0", rows[1])
        route.fulfill(response=answer, body=body)

    page.route("**/heatmap?turned", turned)
    page.goto(f"{site.url}/pools/{CHAT}/heatmap?turned")
    page.wait_for_selector("[data-heatmap][data-ready]")
    named, drawn = page.evaluate("""(() => {
      const figure = document.querySelector("[data-heatmap]");
      return [[...figure.querySelectorAll("[data-row]")].map((one) => one.dataset.row), figure.heat.map.rows.map((one) => one.id)];
    })()""")
    assert named == drawn


def test_a_form_has_the_value_in_force_until_somebody_types(page: Page, site: RunningSite) -> None:
    site.fake.world.desired[CHAT] = 8
    page.goto(f"{site.url}/pools/{CHAT}")
    page.wait_for_selector(LIVE)
    replicas = page.locator("#change-scale [name=replicas]")
    assert replicas.input_value() == "8"
    site.fake.world.desired[CHAT] = 10
    push_pools(site)
    wait_until(page, "document.querySelector('#change-scale [name=replicas]').value === '10'")
    now = page.locator("#change-scale [data-now]")
    assert "10" in now.inner_text()
    replicas.fill("12")
    site.fake.world.desired[CHAT] = 9
    push_pools(site)
    wait_until(page, "/\\b9\\b/.test(document.querySelector('#change-scale [data-now]').textContent)")
    assert replicas.input_value() == "12", "typed is typed"


def test_where_a_session_can_be_moved_follows_the_pool_and_what_was_chosen_stays(
    page: Page, site: RunningSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = site.fake.world
    session = next(one for one in world.sessions() if one.pool == CHAT and one.instance)
    page.goto(f"{site.url}/sessions/{CHAT}/{session.session}")
    page.wait_for_selector(LIVE)
    choice = page.locator("#targets select")
    first, *between, chosen, last = choice.locator("option").all_inner_texts()
    choice.select_option(chosen)
    page.evaluate("document.querySelector('#targets select').marked = true")
    found = {one.id: one for one in world.instances(CHAT)}
    now = [found[last], *(found[name] for name in between), found[chosen], replace(found[last], id="chat-new")]
    now = [replace(one, pending_prefill_tokens=number) for number, one in enumerate(now)]
    monkeypatch.setattr(world, "instances", lambda pool: now)
    site.push("migrations", [world.migrations()[0]])
    expect(choice.locator("option")).to_have_text([one.id for one in now])
    assert first not in choice.inner_text()
    assert choice.input_value() == chosen
    assert page.evaluate("document.querySelector('#targets select').marked"), "an opened choice is not closed"
    monkeypatch.setattr(world, "instances", lambda pool: [])
    site.push("migrations", [world.migrations()[1]])
    expect(page.get_by_role("button", name="Move…")).to_be_disabled()


def test_a_stream_that_falls_silent_is_no_longer_called_live_and_is_made_again(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site)
    page = context.new_page()
    page.clock.install()
    page.goto(f"{site.url}/pools/{CHAT}")
    page.wait_for_selector(LIVE)
    streams: list[str] = []
    page.on("request", lambda request: streams.append(request.url) if "/live?" in request.url else None)
    page.evaluate(NOTE)
    page.clock.fast_forward(50_000)
    wait_until(page, "window.seen.includes('reconnecting') && window.seen.at(-1) === 'live'")
    assert streams, "another connection"
    context.close()


def test_coming_back_to_a_tab_raises_no_alarm(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/pools/{CHAT}")
    page.wait_for_selector(LIVE)
    page.evaluate(NOTE)
    page.evaluate(HIDE, True)
    page.wait_for_timeout(3500)
    page.evaluate(HIDE, False)
    wait_until(page, "window.seen.includes('connecting') && window.seen.at(-1) === 'live'")
    assert page.evaluate("window.seen.includes(true) || window.seen.includes('reconnecting')") is False


def test_an_opened_sample_stays_open_and_a_rows_focus_and_mark_stay_with_it(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/rejections")
    page.wait_for_selector(LIVE)
    sample = page.locator("#results details").first
    sample.locator("summary").click()
    asked = page.locator("#results .cause-count").first
    asked.evaluate("one => { one.dataset.before = 'yes'; }")
    site.push("rejections", [{"pool": CHAT, "count": 1}])
    wait_until(page, "!document.querySelector('#results .cause-count').dataset.before")
    assert sample.evaluate("one => one.open")

    world = site.fake.world
    world.attainment["research/code"], world.attainment[CHAT] = 0.2, 0.9
    page.goto(f"{site.url}/pools?sort=attainment")
    page.wait_for_selector(LIVE)
    order = "[...document.querySelectorAll('[data-rows] tbody tr')].map((row) => row.dataset.key).join(' ')"
    before = page.evaluate(order)
    page.keyboard.press("j")
    held = page.evaluate(FOCUS)
    world.attainment["research/code"], world.attainment[CHAT] = 0.9, 0.2
    push_pools(site)
    wait_until(page, f"{order} !== '{before}'")
    assert page.evaluate(FOCUS) == held
    place = page.evaluate(order).split().index(before.split()[0])
    page.keyboard.press("k")
    assert page.evaluate(FOCUS)[0].split()[0] == page.evaluate(order).split()[max(0, place - 1)]


def test_enter_in_a_filter_is_one_search_and_one_step_back(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/sessions")
    page.wait_for_selector(LIVE)
    steps = page.evaluate("history.length")
    page.focus("input[name=q]")
    page.keyboard.type("img")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=img**")
    page.wait_for_timeout(1000)
    assert page.evaluate("history.length") == steps + 1


def test_a_charts_line_is_hidden_and_shown_by_keys_alone(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/pools/{CHAT}")
    page.wait_for_selector("[data-chart][data-ready=yes] .chart-line")
    line = page.locator(".chart-line").first
    line.focus()
    for pressed in ("false", "true"):
        page.keyboard.press("Space")
        wait_until(page, f"document.activeElement.matches('.chart-line[aria-pressed={pressed}]')")


def test_the_age_of_a_page_is_not_spoken_each_time_it_grows(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site)
    page = context.new_page()
    page.goto(f"{site.url}/pools/{CHAT}")
    page.wait_for_selector(LIVE)
    site.fake.broken.add("/v1/")
    site.loop.call_soon_threadsafe(site.fake.end_streams)
    page.wait_for_selector("#away")
    assert page.inner_text("#away [role=alert]") == "The control API does not answer."
    assert page.get_attribute("#away", "role") is None
    context.close()


@pytest.mark.parametrize(("zone", "hour"), [("America/New_York", {4, 5}), ("Asia/Tokyo", {15}), ("Asia/Kolkata", {18})])
def test_days_below_a_heatmap_begin_at_the_readers_midnight(chromium: Browser, site: RunningSite, zone: str, hour: set[int]) -> None:
    context = signed_in(chromium, site, timezone_id=zone)
    context.add_cookies([{"name": "fairlead-time", "value": "local", "url": site.url}])
    page = context.new_page()
    page.goto(f"{site.url}/pools/{CHAT}/heatmap?from=now-7d&to=now")
    page.wait_for_selector("[data-heatmap][data-ready]")
    at = page.evaluate("""(() => {
      const { map, size, axisLine } = document.querySelector("[data-heatmap]").heat;
      return [...axisLine.querySelectorAll("line")].map((one) => map.start + (Number(one.getAttribute("x1")) / size.width) * map.columns * map.step);
    })()""")
    assert len(at) > 2
    assert {round(one / 60) * 60 // 3600 % 24 for one in at} <= hour
    context.close()

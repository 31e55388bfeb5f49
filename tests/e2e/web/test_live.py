"""Live updates, pausing, and a tab beyond the limit of live ones; the page without scripts."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request

from fairlead_client.resources.moves import Migration
from fairlead_testing.fakes.public_data.loads import CHAT, CODE
from fairlead_testing.running.browser_site import RunningSite, session_cookie, signed_in, wait_until
from fairlead_testing.running.people import until_at
from fairlead_web.heatmaps.cells import text_of
from fairlead_web.text import formats

pytestmark = pytest.mark.browser


def new_migration(site: RunningSite, name: str) -> Migration:
    made = replace(site.fake.world.migrations()[0], id=name, at=datetime.now(UTC), pool=CHAT, session="fresh-session")
    site.fake.world.extra_migrations.append(made)
    return made


def test_a_new_migration_appears_by_itself(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/migrations")
    page.wait_for_selector("#live-pill[data-state=live]")
    site.push("migrations", [new_migration(site, "m-fresh")])
    page.wait_for_selector("tr[data-key=m-fresh]")
    assert page.get_attribute("#live-pill", "data-state") == "live", "the stream told it, no poll"


def watched(page: Page, site: RunningSite) -> list[str]:
    """Return the paths that the page asks for from now on, except streams and assets; regions are named after a `#`."""
    asked: list[str] = []

    def note(request: Request) -> None:
        path = request.url.removeprefix(site.url)
        if not path.startswith(("/live", "/static")):
            regions = request.headers.get("fairlead-regions", "")
            asked.append(f"{path}#{regions}" if regions else path)

    page.on("request", note)
    return asked


def push_pools(site: RunningSite, **changes: object) -> None:
    world = site.fake.world
    site.push("pools", [replace(world.pool(name), **changes) for name in world.pools_known])  # type: ignore[arg-type]  # fields vary by test


def test_a_pool_page_changes_all_at_once_when_the_pools_state_changes(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/pools/default/chat")
    page.wait_for_selector("#live-pill[data-state=live]")
    wait_until(page, "[...document.images].every(one => one.complete)")
    asked = watched(page, site)
    site.fake.world.desired[CHAT] = 9
    site.fake.world.starting.add(CHAT)
    push_pools(site)
    page.wait_for_selector("#workspace:has-text('starting, 5 of 9 serve')")
    assert "5 / 9" in page.inner_text("#status")
    assert "Starting 1" in " ".join(page.inner_text("#states").split())
    assert page.inner_text("#roles").split()[:6] == ["Instances", "both", "Desired", "9", "Serving", "5"]
    assert "InstancesStarting" in page.inner_text("#conditions")
    assert "is starting instances: 5 of 9 instances serve" in page.inner_text("#findings")
    assert [path for path in asked if "#" in path] == [], "the stream brings what changed"
    site.fake.world.starting.clear()
    push_pools(site)
    page.wait_for_selector("#workspace .badge:has-text('ready')")
    assert "6 / 9" in page.inner_text("#status")
    assert page.locator("#findings:has-text('starting')").count() == 0


def test_a_pool_that_falls_out_of_its_slo_turns_red_and_moves_up(page: Page, site: RunningSite) -> None:
    site.fake.world.attainment[CODE] = 0.99
    site.fake.world.well.add(CODE)
    page.goto(f"{site.url}/")
    page.wait_for_selector("#live-pill[data-state=live]")
    site.fake.world.attainment[CODE] = 0.42
    push_pools(site)
    page.wait_for_selector(".pool-card.bad:first-child .badge:has-text('out of SLO')")
    assert page.locator("#totals .stat.bad").count() == 1


def test_new_rows_come_alone_and_join_the_list(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/migrations")
    page.wait_for_selector("#live-pill[data-state=live]")
    asked = watched(page, site)
    kept = page.locator("#results tbody tr[data-key]").first
    key = kept.get_attribute("data-key")
    kept.evaluate("row => { row.marked = true; }")
    site.push("migrations", [new_migration(site, "m-newest")])
    page.wait_for_selector("#results tr[data-key=m-newest]")
    assert [path for path in asked if "#" in path] == []
    assert page.locator(f"tr[data-key={key}]").evaluate("row => row.marked") is True
    assert page.locator("#results .cards tbody tr").count() == 50


def test_a_pause_holds_back_and_counts_and_resuming_shows(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/migrations")
    page.wait_for_selector("#live-pill[data-state=live]")
    page.click("#live-pill")
    for name in ("m-one", "m-two"):
        site.push("migrations", [new_migration(site, name)])
    page.wait_for_selector("#live-pill:has-text('2 new')")
    assert page.locator("tr[data-key=m-one]").count() == 0
    page.click("#live-pill")
    page.wait_for_selector("tr[data-key=m-two]")
    keys = [row.get_attribute("data-key") for row in page.locator("tr[data-key]").all()[:2]]
    assert keys == ["m-two", "m-one"]


def test_a_paused_list_that_is_filtered_counts_nothing_that_may_not_be_of_it(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/migrations?trigger=slo")
    page.wait_for_selector("#live-pill[data-state=live]")
    page.click("#live-pill")
    page.evaluate("document.addEventListener('migrations', () => { window.came = true; })")
    site.push("migrations", [new_migration(site, "m-other")])
    wait_until(page, "window.came")
    assert page.inner_text("#live-pill").strip() == "Paused"


def test_all_numbers_of_a_page_change_together_and_nobody_asks_for_them(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/")
    page.wait_for_selector("#live-pill[data-state=live]")
    wait_until(page, "[...document.images].every(one => one.complete)")
    asked = watched(page, site)
    seen = """() => {
      window.seen = new Set();
      new MutationObserver(() => {
        const [card, finding] = ["#cards", "#findings"].map(one => document.querySelector(one).textContent.includes("42.0 %"));
        window.seen.add(`${card} ${finding}`);
      }).observe(document.body, { subtree: true, childList: true, characterData: true });
    }"""
    page.evaluate(seen)
    for name in site.fake.world.pools_known:
        site.fake.world.attainment[name] = 0.42
    push_pools(site)
    wait_until(page, "document.querySelector('#cards').textContent.includes('42.0 %')")
    page.wait_for_timeout(200)
    assert "true false" not in page.evaluate("[...window.seen]")
    assert page.inner_text("#cards").count("42.0 %") == 2
    assert [path for path in asked if "#" in path] == []


def test_a_form_that_cannot_be_sent_stays_and_can_be_sent_later(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site)
    page = context.new_page()
    page.goto(f"{site.url}/pools/default/chat")
    page.fill("input[name=replicas]", "11")
    site.fake.broken.add("/v1/")
    page.click("text=Plan the change")
    page.wait_for_selector("[data-kept]:has-text('nothing was sent')")
    assert page.input_value("input[name=replicas]") == "11"
    site.fake.broken.clear()
    page.click("text=Plan the change")
    page.wait_for_url("**/plans/*")
    assert "11" in page.inner_text(".diff-table")
    context.close()


def test_an_ended_session_comes_back_to_the_page_with_what_was_typed(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site)
    page = context.new_page()
    page.goto(f"{site.url}/pools/default/chat?from=now-2h&to=now")
    page.fill("input[name=replicas]", "11")
    known = site.fake.tokens.pop("operator-token")
    page.click("text=Plan the change")
    until_at(page, "/login")
    site.fake.tokens["operator-token"] = known
    context.add_cookies([{"name": session_cookie(site.url), "value": "operator-token", "url": site.url}])
    page.goto(site.url + parse_qs(urlsplit(page.url).query)["next"][0])
    page.wait_for_selector("[data-kept]:has-text('is here again')")
    assert "from=now-2h" in page.url
    assert page.input_value("input[name=replicas]") == "11"
    context.close()


def test_a_tab_too_many_asks_every_five_seconds_instead(page: Page, site: RunningSite) -> None:
    site.fake.live.limit = 0
    page.goto(f"{site.url}/migrations")
    page.wait_for_selector("#live-pill[data-state=polling]")
    new_migration(site, "m-polled")
    page.wait_for_selector("tr[data-key=m-polled]")


def test_a_lost_stream_is_shown_and_comes_back_by_itself(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site)
    page = context.new_page()  # not the fixture's: a stream that is asked for meanwhile is an error in the console
    page.goto(f"{site.url}/migrations")
    page.wait_for_selector("#live-pill[data-state=live]")

    site.fake.broken.add("/v1/live")
    site.loop.call_soon_threadsafe(site.fake.end_streams)
    page.wait_for_selector("#live-pill[data-state=reconnecting]")
    site.fake.broken.clear()
    page.wait_for_selector("#live-pill[data-state=live]")
    site.push("migrations", [new_migration(site, "m-after")])
    page.wait_for_selector("tr[data-key=m-after]")
    context.close()


def test_a_lost_api_is_said_with_its_age_and_goes_away_by_itself(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site)
    page = context.new_page()
    page.goto(f"{site.url}/pools/default/chat")
    page.wait_for_selector("#live-pill[data-state=live]")
    page.fill("input[name=replicas]", "11")
    site.fake.broken.add("/v1/")
    site.loop.call_soon_threadsafe(site.fake.end_streams)
    page.wait_for_selector("#away:has-text('The control API does not answer.')")
    wait_until(page, "/is .*[0-9] s old/.test(document.querySelector('#away').textContent)")
    site.fake.broken.clear()
    page.wait_for_selector("#away", state="detached")
    assert page.input_value("input[name=replicas]") == "11"
    context.close()


def test_times_have_one_shape_and_name_their_zone(chromium: Browser, site: RunningSite) -> None:
    for mode, ending in (("utc", "UTC"), ("relative", "UTC"), ("local", "GMT+3")):
        context = signed_in(chromium, site, timezone_id="Europe/Istanbul")
        context.add_cookies([{"name": "fairlead-time", "value": mode, "url": site.url}])
        page = context.new_page()
        page.goto(f"{site.url}/audit/56")
        page.wait_for_selector("html.scripted")
        text = page.inner_text("footer time")
        assert re.fullmatch(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d {re.escape(ending)}", text), text
        context.close()


def test_scripts_and_server_write_numbers_alike(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/")
    address = page.evaluate("document.querySelector('script[type=module]').src")
    values = [
        None,
        0,
        0.0004,
        0.0333,
        0.0421,
        0.0996,
        0.4999,
        0.83149,
        0.9994,
        0.99951,
        0.99996,
        0.9999999,
        1.005,
        3.14159,
        9.994,
        9.996,
        42.05,
        99.94,
        99.96,
        1234.5,
        987654.3,
    ]
    written = "values.map(v => [f.count(v), f.share(v), f.seconds(v), f.rate(v), f.latency(v)])"
    shown = page.evaluate(
        f"async ([address, values]) => {{ const f = (await import(address)).$formats; return {written}; }}", [address, values]
    )
    assert shown == [[formats.count(v), formats.share(v), formats.seconds(v), formats.rate(v), formats.latency(v)] for v in values]
    units = ("tokens", "share", "seconds", "requests", "requests/s")
    steps = page.evaluate(
        "async ([address, units]) => { const f = (await import(address)).$formats; return units.map(u => f.exact(12345, u)); }",
        [address, list(units)],
    )
    edges = [0, 999, 1000, 1005, 9994, 9995, 12250, 63547, 120049]
    exact = page.evaluate(
        "async ([address, edges]) => { const f = (await import(address)).$formats; return edges.map(e => f.exact(e, 'seconds')); }",
        [address, edges],
    )
    assert exact == [text_of(edge / 1000, "seconds") for edge in edges]
    assert steps == [text_of(12345 * {"tokens": 1, "share": 0.001, "seconds": 0.001, "requests": 0.1}.get(u, 0.01), u) for u in units]


def test_filters_change_the_address_and_back_restores_them(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/migrations")
    page.wait_for_selector("form.filters[data-htmx-powered]")
    page.select_option("select[name=trigger]", "drain")
    page.wait_for_url("**/migrations?trigger=drain")
    wait_until(page, "[...document.querySelectorAll('td[data-label=Trigger]')].every(cell => cell.textContent === 'drain')")
    page.select_option("select[name=pool]", CHAT)
    page.wait_for_url("**pool=default%2Fchat&trigger=drain")
    assert "trigger=drain" in (page.locator("details.range a.chip").first.get_attribute("href") or "")
    page.go_back()
    page.wait_for_url("**/migrations?trigger=drain")
    wait_until(page, "document.querySelector('select[name=pool]').value === ''")
    assert page.input_value("select[name=trigger]") == "drain"


def test_a_filtered_list_stays_filtered_when_something_happens(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/sessions")
    page.wait_for_selector("#live-pill[data-state=live]")
    with page.expect_request("**/live?*") as asked:
        page.fill("input[name=q]", "img")
        page.keyboard.press("Enter")
    assert asked.value.headers["fairlead-page"] == "/sessions?q=img"
    wait_until(page, "document.querySelectorAll('#results tr[data-key]').length === 1")
    site.push("migrations", [new_migration(site, "m-meanwhile")])
    page.wait_for_timeout(1500)
    assert page.locator("#results tr[data-key]").count() == 1


def test_keys_go_to_pages_and_can_be_switched_off(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/")
    page.keyboard.type("gm")
    page.wait_for_url("**/migrations")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.goto(f"{site.url}/settings")
    page.check("input[name=shortcuts][value=off]")
    with page.expect_navigation():
        page.click("text=Save")
    page.keyboard.type("gmd")
    assert page.url.endswith("/settings")
    assert page.evaluate("document.documentElement.dataset.theme") == "auto"


def test_keys_are_heard_as_soon_as_a_page_has_loaded(page: Page, site: RunningSite) -> None:
    page.add_init_script("if (globalThis.scheduler) scheduler.yield = () => new Promise(() => {})")
    page.goto(f"{site.url}/")
    page.keyboard.type("gm")
    page.wait_for_url("**/migrations")
    page.keyboard.press("Control+k")
    page.get_by_role("dialog", name="Search").wait_for()


def test_without_scripts_filters_paging_ranges_plan_and_apply_work(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site.url}/migrations")
    first = page.locator("tr[data-key]").first.get_attribute("data-key")
    page.click("text=Next page")
    page.wait_for_url("**cursor=50**")
    assert page.locator("tr[data-key]").first.get_attribute("data-key") != first
    page.select_option("select[name=trigger]", "drain")
    page.click("button:has-text('Filter')")
    page.wait_for_url("**trigger=drain**")
    assert set(page.locator("td[data-label=Trigger]").all_inner_texts()) == {"drain"}
    page.locator("details.range summary").click()
    page.fill("input[name=from]", "2h")
    page.keyboard.press("Enter")
    page.wait_for_url("**from=2h**")
    assert page.inner_text("details.range summary") == "Last 2 h"
    assert page.input_value("select[name=trigger]") == "drain"
    page.goto(f"{site.url}/pools/default/chat")
    page.fill("input[name=replicas]", "9")
    page.click("text=Plan the change")
    page.get_by_role("button", name="Apply").click()
    page.wait_for_selector("text=Applied by")
    assert site.fake.world.desired[CHAT] == 9
    with page.expect_navigation():
        page.click("#theme-button")
    assert page.locator("html").get_attribute("data-theme") == "light"
    context.close()


NODES = "(() => { const walk = document.createTreeWalker(document); let count = 1; while (walk.nextNode()) count++; return count; })()"


def test_updates_keep_focus_selection_and_text_and_leave_little_behind(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/pools/default/chat")
    page.wait_for_selector("#live-pill[data-state=live]")
    page.fill("input[name=replicas]", "12")
    for number, chart in enumerate(page.locator("[data-chart]").all()):  # each is drawn when it comes into view: not during the updates
        chart.scroll_into_view_if_needed()
        wait_until(page, f"document.querySelectorAll('[data-chart]')[{number}].dataset.ready === 'yes'")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#workspace h1'))")
    page.focus("input[name=replicas]")
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable")
    kept = []
    for desired in (9, 10, 9, 10, 9, 10):
        site.fake.world.desired[CHAT] = desired
        push_pools(site)
        wait_until(page, f"document.querySelector('#status .value').textContent.endsWith('/ {desired}')")
        devtools.send("HeapProfiler.collectGarbage")
        figures = {one["name"]: one["value"] for one in devtools.send("Performance.getMetrics")["metrics"]}
        kept.append((figures["Nodes"], figures["JSEventListeners"], page.evaluate(NODES)))
    assert page.evaluate("getSelection().toString()") == CHAT
    assert page.evaluate("document.activeElement.name") == "replicas"
    assert page.input_value("input[name=replicas]") == "12"
    assert kept[-1][1] == kept[1][1], "no listener stays"
    assert kept[-1][2] == kept[1][2], "no node stays in the page, no empty text either"
    assert (kept[-1][0] - kept[1][0]) / 4 <= 10, "an update leaves a few nodes behind at most"

"""Live updates, pausing, and what happens when there are too many tabs; the page without scripts."""

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Browser, Page, Request

from fairlead_client.resources.moves import Migration
from fairlead_testing.fakes.public_data.loads import CHAT, CODE, INSTANCES
from fairlead_testing.running.browser_site import RunningSite, signed_in, wait_until
from fairlead_web import formats
from fairlead_web.heatmap_cells import text_of

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
    """Paths the page asks for from now on, streams and assets apart; regions are named after a `#`."""
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


def test_numbers_that_change_are_patched_and_nothing_is_asked_for(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/")
    page.wait_for_selector("#live-pill[data-state=live]")
    wait_until(page, "[...document.images].every(one => one.complete)")
    asked = watched(page, site)
    for number in range(1, 6):
        push_pools(site, requests_per_second=100.0 * number)
        wait_until(page, f"document.querySelector('#totals [data-total=requests_per_second]').textContent === '{200 * number:,}'")
    assert page.locator("#cards [data-field=requests_per_second]").all_inner_texts() == ["500", "500"]
    assert asked == []


def test_totals_of_live_events_are_the_ones_the_server_writes(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/")
    page.wait_for_selector("#live-pill[data-state=live]")
    written = page.locator("#totals [data-total]").all_inner_texts()
    for cell in page.locator("#totals [data-total]").all():
        cell.evaluate("cell => { cell.textContent = 'x'; }")
    push_pools(site)
    wait_until(page, "document.querySelector('#totals [data-total=requests_per_second]').textContent !== 'x'")
    assert page.locator("#totals [data-total]").all_inner_texts() == written


def test_a_pool_page_changes_all_at_once_when_the_pools_state_changes(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/pools/default/chat")
    page.wait_for_selector("#live-pill[data-state=live]")
    wait_until(page, "[...document.images].every(one => one.complete)")
    asked = watched(page, site)
    site.fake.world.desired[CHAT] = 9
    site.fake.world.starting.add(CHAT)
    push_pools(site)
    page.wait_for_selector("#heading:has-text('starting, 5 of 9 serve')")
    assert "5 / 9" in page.inner_text("#status")
    assert "Starting 1" in " ".join(page.inner_text("#states").split())
    assert page.inner_text("#roles").split()[:6] == ["Instances", "both", "Wanted", "9", "Serving", "5"]
    assert "InstancesStarting" in page.inner_text("#conditions")
    assert "is starting instances: 5 of 9 serve" in page.inner_text("#findings")
    pages = [path for path in asked if "#" in path]
    assert len(pages) == 1, pages
    site.fake.world.starting.clear()
    push_pools(site)
    page.wait_for_selector("#heading .badge.good")
    assert "6 / 9" in page.inner_text("#status")
    assert page.locator("#findings:has-text('starting')").count() == 0


def test_an_answer_older_than_its_event_is_asked_for_again(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/pools/default/chat")
    page.wait_for_selector("#live-pill[data-state=live]")
    push_pools(site, state_digest="newer")  # the API's own answer still has the old state
    page.wait_for_timeout(500)
    site.fake.world.starting.add(CHAT)
    push_pools(site)
    page.wait_for_selector("#heading:has-text('starting')")


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
    assert asked == ["/migrations#newest"]
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


def test_numbers_are_patched_in_place(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/pools/default/chat/instances")
    page.wait_for_selector("#live-pill[data-state=live]")
    name = INSTANCES[CHAT][0]
    row = page.locator(f"tr[data-key={name}]")
    row.evaluate("row => { row.marked = true; }")
    changed = replace(site.fake.world.instance(CHAT, name), pending_prefill_tokens=987654, kv_usage=0.4321, ttft_p95_seconds=0.0421)
    site.push("instances", [changed])
    wait_until(page, f"document.querySelector('tr[data-key={name}] [data-field=pending_prefill_tokens]').textContent === '987,654'")
    assert row.locator("[data-field=kv_usage]").inner_text() == "43.2 %"
    assert row.locator("[data-field=ttft_p95_seconds]").inner_text() == "42 ms"
    assert row.evaluate("row => row.marked") is True


def test_a_tab_too_many_asks_every_five_seconds_instead(page: Page, site: RunningSite) -> None:
    site.fake.live.limit = 0
    page.goto(f"{site.url}/migrations")
    page.wait_for_selector("#live-pill[data-state=polling]")
    new_migration(site, "m-polled")
    page.wait_for_selector("tr[data-key=m-polled]")


def test_a_lost_stream_is_shown_and_comes_back_by_itself(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/migrations")
    page.wait_for_selector("#live-pill[data-state=live]")

    site.fake.broken.add("/v1/live")
    site.loop.call_soon_threadsafe(site.fake.end_streams)
    page.wait_for_selector("#live-pill[data-state=reconnecting]")
    site.fake.broken.clear()
    page.wait_for_selector("#live-pill[data-state=live]")
    site.push("migrations", [new_migration(site, "m-after")])
    page.wait_for_selector("tr[data-key=m-after]")


def test_a_lost_api_is_said_with_its_age_and_goes_away_by_itself(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site)
    page = context.new_page()
    page.goto(f"{site.url}/pools/default/chat")
    page.wait_for_selector("#live-pill[data-state=live]")
    page.fill("input[name=replicas]", "11")
    site.fake.broken.add("/v1/")
    site.loop.call_soon_threadsafe(site.fake.end_streams)
    page.wait_for_selector("#away:has-text('The control API does not answer.')")
    wait_until(page, "/is [0-9]+ s old/.test(document.querySelector('#away').textContent)")
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
    address = page.evaluate("document.querySelector('script[type=module]').src.replace('main.js', 'formats.js')")
    values = [None, 0, 0.0421, 0.4999, 0.83149, 0.9994, 0.99951, 1.005, 3.14159, 9.994, 9.996, 42.05, 99.94, 99.96, 1234.5, 987654.3]
    shown = page.evaluate(
        "async ([address, values]) => { const f = await import(address); return values.map(v => [f.count(v), f.share(v), f.seconds(v), f.rate(v)]); }",
        [address, values],
    )
    assert shown == [[formats.count(v), formats.share(v), formats.seconds(v), formats.rate(v)] for v in values]
    units = ("tokens", "share", "seconds", "requests", "requests/s")
    steps = page.evaluate(
        "async ([address, units]) => { const f = await import(address); return units.map(u => f.exact(12345, u)); }", [address, list(units)]
    )
    edges = [0, 999, 1000, 1005, 9994, 9995, 12250, 63547, 120049]
    exact = page.evaluate(
        "async ([address, edges]) => { const f = await import(address); return edges.map(e => f.exact(e, 'seconds')); }", [address, edges]
    )
    assert exact == [text_of(edge / 1000, "seconds") for edge in edges]
    assert steps == [text_of(12345 * {"tokens": 1, "share": 0.001, "seconds": 0.001, "requests": 0.1}.get(u, 0.01), u) for u in units]


def test_filters_change_the_address_and_back_restores_them(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/migrations")
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


def test_keys_go_to_pages_and_can_be_switched_off(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/")
    page.keyboard.press("g")
    page.keyboard.press("m")
    page.wait_for_url("**/migrations")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.goto(f"{site.url}/settings")
    page.check("input[name=shortcuts][value=off]")
    page.click("text=Save")
    page.wait_for_url("**/settings")
    page.keyboard.press("g")
    page.keyboard.press("m")
    page.keyboard.press("d")
    assert page.url.endswith("/settings")
    assert page.evaluate("document.documentElement.dataset.theme") == "auto"


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
    page.click("#theme-button")
    assert page.locator("html").get_attribute("data-theme") == "light"
    context.close()

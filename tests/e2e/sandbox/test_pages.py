"""The web UI with the real API, operator, routers and engines under load.

Each common job takes at most a given number of clicks from the overview.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from playwright.sync_api import Browser, Locator, Page

from fairlead_testing.builders.sandbox_pools import pool, replay_arguments
from fairlead_testing.running.browser_site import findings_in_both_themes, sign_in, sticking_out, wait_until, watch_troubles
from fairlead_testing.running.page_numbers import Watch
from fairlead_testing.running.people import Person, come_to
from fairlead_testing.running.sandbox import POOLS, RunningSandbox, until
from fairlead_testing.running.tour import pages_of
from fairlead_testing.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.browser, pytest.mark.sandbox]

NAME = "looked-at"
POOL = f"default/{NAME}"
EMPTY = "without-traffic"
EVERY_PAGE = "FAIRLEAD_TEST_EVERY_PAGE" in os.environ
ROLES = [{"name": "both", "minReplicas": 1, "maxReplicas": 8}]


@pytest.fixture(scope="module")
def busy(sandbox: RunningSandbox) -> Iterator[RunningSandbox]:
    """Yield the sandbox with a pool that serves a replay as long as these tests run."""
    sandbox.apply_pool(pool(NAME, policy="ear", replicas=3, roles=ROLES, earlyRejection={"mode": "Load"})).raise_for_status()
    sandbox.until_ready(NAME, 3)
    replay = sandbox.replay(*replay_arguments(NAME, 20_000, 8), "--loop")
    until(lambda: sandbox.ask("/v1/sessions", pool=POOL, limit=1)["items"], "sessions bound")
    until(lambda: sandbox.ask("/v1/decisions", pool=POOL, limit=1)["items"], "decisions recorded")
    yield sandbox
    replay.terminate()
    with suppress(subprocess.TimeoutExpired):
        replay.wait(PATIENCE_SECONDS)
    sandbox.delete_pool(NAME)


@pytest.fixture(scope="module")
def visit(chromium: Browser, busy: RunningSandbox) -> Iterator[tuple[Page, list[str]]]:
    """Yield an admin's page, and the errors in it."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_SECONDS * 1000)
    page = context.new_page()
    sign_in(page, busy)
    yield page, watch_troubles(page, busy.url("api"))
    context.close()


@pytest.fixture
def person(visit: tuple[Page, list[str]], busy: RunningSandbox) -> Person:
    """Return a person at the overview, without a mouse; the focused element must be visible, so that a click would hit
    it.
    """
    page = visit[0]
    to_overview(page, busy)
    return Person(page)


def to_overview(page: Page, busy: RunningSandbox) -> None:
    page.goto(f"{busy.url('api')}/")
    wait_until(page, "document.documentElement.classList.contains('scripted')")


def apply(person: Person) -> None:
    """Apply the plan that the page shows."""
    page = person.page
    person.sees(page.locator("form[action$='/apply']"))
    page.wait_for_load_state()
    for name, value in (("confirm", NAME), ("reason", "tried by a test")):
        field = page.locator(f"form[action$='/apply'] input[name={name}]")
        if field.count():
            person.write(field, value)
    person.on(page.get_by_role("button", name="Apply", exact=True))
    person.sees(page.get_by_text("Applied by").first)


def section(page: Page, words: str) -> Locator:
    return page.get_by_role("navigation", name="Main").get_by_role("link", name=words, exact=True)


def to_the_pool(person: Person) -> None:
    person.on(person.page.locator("main .pool-card h2 a", has_text=POOL))
    person.page.wait_for_url(f"**/pools/{POOL}")
    wait_until(person.page, "document.documentElement.classList.contains('scripted')")


def planned(busy: RunningSandbox, **request: object) -> str:
    """Make a plan for the pool and apply it, as another person would; return its id."""
    made = busy.request("POST", f"/v1/pools/{POOL}/plans", json=request)
    assert made.status_code == 201, made.text
    plan = str(made.json()["id"])
    applied = busy.request("POST", f"/v1/plans/{plan}/apply", json={"confirm": NAME, "reason": "tried by a test"})
    assert applied.status_code == 200, applied.text
    return plan


@pytest.mark.skipif(not EVERY_PAGE, reason="a minute of eight pages: make test-pages")
def test_no_two_numbers_of_a_page_disagree_while_the_pool_is_scaled_drained_and_hurt(
    chromium: Browser, visit: tuple[Page, list[str]], busy: RunningSandbox
) -> None:
    """Pages are open all the time and read each second; each must have shown a change, as a frozen page always agrees.

    The test runs first, because a schedule of the other tests would set the number of instances.
    """
    instance = serving(busy)[0]
    places = {
        "overview": "/",
        "pools": "/pools",
        "pool": f"/pools/{POOL}",
        "instances": f"/pools/{POOL}/instances",
        "instance": f"/pools/{POOL}/instances/{instance}",
        "ring": f"/pools/{POOL}/ring",
        "migrations": f"/pools/{POOL}/migrations",
        "rejections": f"/pools/{POOL}/rejections",
    }
    watch = Watch(tabs={name: visit[0].context.new_page() for name in places})
    for name, tab in watch.tabs.items():
        tab.goto(busy.url("api") + places[name])
        wait_until(tab, "['live', 'polling'].includes(document.getElementById('live-pill').dataset.state)")

    def while_watching(seen: Callable[[], object], what: str) -> None:
        def now() -> object:
            watch.read()
            return seen()

        until(now, what, pause=1.0)

    busy.scale_pool(NAME, 4).raise_for_status()
    while_watching(lambda: len(serving(busy)) == 4, "a fourth instance serves")
    planned(busy, kind="drain", instance=instance)
    while_watching(lambda: instance not in serving(busy) and len(serving(busy)) == 4, "another took the drained one's place")
    os.kill(busy.engine_pids(NAME)[0], signal.SIGKILL)
    while_watching(lambda: len(serving(busy)) < 4, "an engine is missed")
    while_watching(lambda: len(serving(busy)) == 4, "it is replaced")
    busy.scale_pool(NAME, 3).raise_for_status()
    while_watching(lambda: len(busy.ask(f"/v1/pools/{POOL}/instances", limit=100)["items"]) == 3, "three are left")
    for _ in range(3):
        while_watching(lambda: True, "")
    for tab in watch.tabs.values():
        tab.close()
    assert watch.lasting == {}
    assert {name for name, amount in watch.compared.items() if amount == 0} == set()
    assert {name for name, said in watch.shown.items() if len(said) < 2} <= {"rejections"}, "only refusals need not come"


def test_a_pool_is_scaled_in_three_clicks_and_that_undone_in_two(person: Person, busy: RunningSandbox) -> None:
    page = person.page
    to_the_pool(person)
    person.write(page.locator("input[name=replicas]"), "4")
    person.on(page.locator("form:has(input[name=replicas]) button.primary"))
    apply(person)
    assert person.count <= 3
    until(lambda: busy.pool(NAME)["spec"]["replicas"] == 4, "the pool wants four")
    made = page.url.rsplit("/", 1)[1]
    [entry] = [one for one in busy.ask("/v1/audit", limit=100)["items"] if one["plan"] == made and one["action"] == "plan.applied"]
    assert entry["actor"]
    assert entry["reason"] == "tried by a test"
    to_overview(page, busy)
    person.count = 0
    person.on(page.get_by_role("button", name="Undo the last change"))
    person.sees(page.get_by_text("This plan undoes"))
    apply(person)
    assert person.count <= 2
    until(lambda: busy.pool(NAME)["spec"]["replicas"] == 3, "three again")
    busy.until_ready(NAME, 3)


def test_who_changed_what_is_a_click_away(person: Person, busy: RunningSandbox) -> None:
    newest = busy.ask("/v1/audit", limit=1)["items"][0]
    person.on(section(person.page, "Audit"))
    person.page.wait_for_url("**/audit")
    person.sees(person.page.locator("main table"))
    said = person.page.inner_text("main")
    assert newest["actor"] in said
    assert newest["object"] in said
    assert person.count == 1


def test_the_cause_of_an_instances_load_is_two_clicks_away(person: Person) -> None:
    page = person.page
    person.on(page.locator(f".pool-card a.minimap[href*='{POOL}']"))
    person.sees(page.locator("[data-heatmap][data-ready]"))
    person.newest_cell(page.locator(".heatmap-surface").first)
    page.wait_for_url("**/instances/**")
    person.sees(page.locator("main").get_by_text("Sessions").first)
    assert person.count <= 2


def test_why_a_request_went_there_is_two_clicks_away_by_its_id(person: Person, busy: RunningSandbox) -> None:
    page, decision = person.page, busy.ask("/v1/decisions", pool=POOL, limit=1)["items"][0]
    person.on(page.get_by_role("link", name="Search", exact=True))
    found = page.get_by_role("dialog", name="Search")
    found.wait_for()
    page.keyboard.type(decision["id"])
    person.on(found.locator(f"[data-found][href$='/decisions/{decision['id']}']"))
    page.wait_for_url(f"**/decisions/{decision['id']}")
    person.sees(page.locator("main table").first)
    assert decision["chosen"] in page.inner_text("main table")
    assert person.count <= 2


def test_a_session_is_found_by_any_part_of_its_name_in_two_clicks(person: Person, busy: RunningSandbox) -> None:
    page, session = person.page, busy.ask("/v1/sessions", pool=POOL, limit=1)["items"][0]["session"]
    person.on(section(page, "Sessions"))
    page.wait_for_url("**/sessions")
    wait_until(page, "document.documentElement.classList.contains('scripted')")
    person.write(page.locator("main input[name=q]"), session[1:-1])
    page.keyboard.press("Enter")
    page.wait_for_url("**q=**")
    person.on(page.locator(f"#results tr[data-key='{session}'] a[data-open]"))
    person.sees(page.locator("h1", has_text=session))
    assert person.count <= 2


def test_an_instance_is_drained_in_three_clicks(person: Person, busy: RunningSandbox) -> None:
    page = person.page
    person.on(page.get_by_title(f"Instances of {POOL}"))
    page.wait_for_url("**/instances")
    wait_until(page, "document.documentElement.classList.contains('scripted')")
    row = page.locator("#results tr[data-state=Serving]").first
    person.sees(row)
    name = str(row.get_attribute("data-key"))
    person.on(page.get_by_role("button", name=f"Drain {name}"))
    apply(person)
    assert person.count <= 3
    until(lambda: busy.ask(f"/v1/pools/{POOL}/instances/{name}")["instance"]["state"] in {"Draining", "Gone"}, "it drains")
    busy.until_ready(NAME, 3)


def test_whether_a_migration_paid_off_is_two_clicks_away(person: Person, busy: RunningSandbox) -> None:
    page = person.page
    until(lambda: busy.ask("/v1/migrations", pool=POOL, limit=1)["items"], "a session moved")
    to_overview(page, busy)
    person.on(page.locator("#migrations a.when"))
    page.wait_for_url("**/migrations/*")
    verdict = page.get_by_role("region", name="Was it faster than staying?").locator("header")
    person.sees(verdict)
    assert verdict.inner_text().lower().endswith(("yes", "no", "yes, not predicted", "not known"))
    assert person.count <= 2


def test_two_policies_are_compared_in_four_clicks(person: Person) -> None:
    page = person.page
    to_the_pool(person)
    person.on(page.get_by_role("navigation", name=f"Pool {POOL}").get_by_role("link", name="Simulator"))
    page.wait_for_url("**/simulator")
    person.write(page.locator("input[name=start]"), "now-1m")
    person.tick(page.get_by_role("checkbox", name="least-request", exact=True))
    person.on(page.get_by_role("button", name="Simulate"))
    assert person.count <= 4
    page.wait_for_url("**/simulator/*")
    person.sees(page.locator("main :is(progress, table.simulator-results)").first)
    page.locator("main table", has_text="least-request").first.wait_for(timeout=3 * PATIENCE_SECONDS * 1000)
    assert "ear" in page.inner_text("main table")


def test_a_schedule_is_set_in_four_clicks(person: Person, busy: RunningSandbox) -> None:
    page, name = person.page, "nights"
    person.on(section(page, "Schedules"))
    page.wait_for_url("**/schedules")
    builder = page.locator("#builder")
    person.sees(builder)
    builder.locator("[name=pool]").select_option(POOL)
    person.write(builder.locator("[name=name]"), name)
    person.write(builder.locator("[name='roles.0.minimum']"), "1")
    person.on(builder.get_by_role("button", name="Plan the schedule"))
    apply(person)
    assert person.count <= 4
    assert name in [one["name"] for one in busy.pool(NAME)["spec"]["scaling"]["schedules"]]
    until(lambda: name in [one["name"] for one in busy.ask("/v1/schedules", limit=100)["items"]], "the API has it")
    page.goto(f"{busy.url('api')}/schedules/{POOL}/{name}")
    come_to(page, page.locator("h1", has_text=name))


@pytest.mark.parametrize(
    ("kind", "fill", "path", "want"),
    [
        ("policy", ("policy", "dualmap"), ("routing", "policy"), "dualmap"),
        ("slo", ("ttft", "900ms"), ("slo", "ttft"), "900ms"),
        ("early-rejection", ("headroom", "1.7"), ("earlyRejection", "headroom"), 1.7),
    ],
)
def test_policy_slo_and_early_rejection_are_changed_in_four_clicks(
    kind: str, fill: tuple[str, str], path: tuple[str, str], want: object, person: Person, busy: RunningSandbox
) -> None:
    to_the_pool(person)
    form = person.page.locator(f"details.change:has(input[name=kind][value={kind}])")
    person.on(form.locator("summary"))
    person.write(form.locator(f"[name={fill[0]}]"), fill[1])
    person.on(form.get_by_role("button", name="Plan the change"))
    apply(person)
    assert person.count <= 4
    assert busy.pool(NAME)["spec"][path[0]][path[1]] == want


def serving(busy: RunningSandbox) -> list[str]:
    """Return the pool's instances that serve."""
    items = busy.ask(f"/v1/pools/{POOL}/instances", limit=100)["items"]
    return [one["id"] for one in items if one["state"] == "Serving"]


def test_a_revision_is_gone_back_to_in_four_clicks(person: Person, busy: RunningSandbox) -> None:
    page, spec = person.page, busy.pool(NAME)["spec"]
    before = spec["engine"]["simulated"]["startup"]
    spec["engine"]["simulated"]["startup"] = "600ms"
    busy.kubernetes("PATCH", f"{POOLS}/{NAME}", {"spec": {"engine": spec["engine"]}}, "application/merge-patch+json").raise_for_status()
    until(lambda: len(busy.ask(f"/v1/pools/{POOL}/rollout")["revisions"]) == 2, "the operator keeps a second revision")
    to_overview(page, busy)
    to_the_pool(person)
    person.on(page.get_by_role("button", name="Roll back to revision 1"))
    apply(person)
    assert person.count <= 4
    until(lambda: busy.pool(NAME)["spec"]["engine"]["simulated"]["startup"] == before, "the first revision's engine")


@pytest.mark.skipif(not EVERY_PAGE, reason="some minutes for all pages: make test-pages")
def test_every_page_full_and_empty_reads_well_in_both_themes_and_fits(visit: tuple[Page, list[str]], busy: RunningSandbox) -> None:
    page, troubles = visit
    busy.apply_pool(pool(EMPTY, policy="ear", replicas=0, roles=[{"name": "both", "minReplicas": 0, "maxReplicas": 2}])).raise_for_status()
    until(lambda: busy.ask("/v1/pools", limit=100)["total"] >= 2, "the empty pool is known")
    found = []
    troubles.clear()
    try:
        for path in dict.fromkeys(path for name in (POOL, f"default/{EMPTY}") for path in pages_of(busy.ask, name).values()):
            page.set_viewport_size({"width": 1280, "height": 900})
            page.goto(busy.url("api") + path)
            wait_until(page, "document.documentElement.classList.contains('scripted')")
            wrong = findings_in_both_themes(page) + sticking_out(page) + page.locator("text=Part of this page is missing").all_inner_texts()
            found += [f"{path}: {one}" for one in wrong + troubles]
            troubles.clear()
    finally:
        busy.delete_pool(EMPTY)
    assert found == []

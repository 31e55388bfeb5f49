"""The most frequent jobs, from the overview by clicks: a limited number of clicks, and only names and numbers are
typed.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_testing.fakes.public_data.loads import CHAT, CODE, INSTANCES
from fairlead_testing.running.browser_site import RunningSite, brush_heatmap, signed_in, watch_troubles

pytestmark = pytest.mark.browser


@pytest.fixture
def page(chromium: Browser, site: RunningSite) -> Iterator[Page]:
    """Yield an admin's page, which may have no errors."""
    context = signed_in(chromium, site, "admin")
    opened = context.new_page()
    troubles = watch_troubles(opened, site.url)
    yield opened
    context.close()
    assert troubles == []


class Hand:
    """Clicks on elements and counts the clicks."""

    def __init__(self, page: Page, site: RunningSite) -> None:
        self.page = page
        self.clicks = 0
        page.goto(site.url)

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.click()

    def button(self, name: str) -> None:
        self.click(self.page.get_by_role("button", name=name, exact=True))

    def link(self, name: str) -> None:
        self.click(self.page.locator("#main").get_by_role("link", name=name, exact=True).first)

    def apply(self) -> None:
        self.page.wait_for_url("**/plans/p-*")
        self.button("Apply")
        self.page.wait_for_selector("text=Applied by")


def test_bounds_are_changed_with_three_clicks(page: Page, site: RunningSite) -> None:
    hand = Hand(page, site)
    hand.link(CHAT)
    bounds = page.locator("#change-bounds")
    bounds.locator("[name=minReplicas]").fill("2")
    bounds.locator("[name=maxReplicas]").fill("16")
    hand.click(bounds.get_by_role("button", name="Plan the change"))
    hand.apply()
    assert site.fake.world.spec(CHAT)["roles"] == [{"name": "both", "minReplicas": 2, "maxReplicas": 16}]
    assert hand.clicks == 3


def test_a_tasks_timeline_is_two_clicks_from_its_pool_and_one_from_its_session(page: Page, site: RunningSite) -> None:
    hand = Hand(page, site)
    page.goto(f"{site.url}/pools/{CHAT}")
    hand.link("Sessions")
    hand.click(page.locator("#results").get_by_role("link", name="over time").first)
    page.wait_for_url("**/trees/**")
    assert page.locator("#over-time svg.lane-track rect").count()
    assert page.locator("#turns tbody tr").count()
    assert hand.clicks == 2
    page.goto(page.url.replace("/trees/", "/sessions/"))
    hand.link("Tree over time")
    page.wait_for_selector("#over-time")
    assert hand.clicks == 3


def test_a_pool_is_made_from_an_example_with_four_clicks(page: Page, site: RunningSite) -> None:
    hand = Hand(page, site)
    hand.link("New pool…")
    hand.link("chat-8")
    page.fill("input[name=name]", "default/fresh")
    hand.button("Plan the pool")
    hand.apply()
    (plan,) = [plan for plan in site.fake.book.plans.values() if plan.kind is PlanKind.CREATE]
    assert (plan.pool, plan.id in site.fake.book.applied) == ("default/fresh", True)
    assert hand.clicks == 4


def test_a_schedule_of_every_weekday_night_needs_no_cron_and_its_week_is_seen_before(page: Page, site: RunningSite) -> None:
    hand = Hand(page, site)
    hand.link(CHAT)
    page.wait_for_url("**/pools/default/chat")
    hand.click(page.locator("#main").get_by_role("link", name="Schedules", exact=True))
    builder = page.locator("#builder")
    builder.locator("[name=name]").fill("weekday-night")
    builder.locator("[name=zone]").fill("Europe/Berlin")
    builder.locator("[name='roles.0.minimum']").fill("1")
    builder.locator("[name='roles.0.maximum']").fill("2")
    builder.locator("[name='roles.0.maximum']").blur()
    page.wait_for_selector("#week >> text=Sets 1 to 2 instances")
    assert page.locator("#week svg rect").count() >= 5
    hand.click(builder.get_by_role("button", name="Plan the schedule"))
    hand.apply()
    (schedule,) = site.fake.world.spec(CHAT)["scaling"]["schedules"]
    assert (schedule["cron"], schedule["timeZone"], schedule["duration"]) == ("0 22 * * 1-5", "Europe/Berlin", "8h")
    assert hand.clicks <= 5


def test_the_log_of_an_instance_that_something_happened_to_is_two_clicks_away(page: Page, site: RunningSite) -> None:
    hand = Hand(page, site)
    hand.link(CODE)
    page.wait_for_url("**/pools/research/code")
    log = page.get_by_role("link", name="Log of ").first
    instance = (log.get_attribute("aria-label") or "").removeprefix("Log of ")
    hand.click(log)
    page.wait_for_selector(f"text={instance} line 399")
    assert hand.clicks == 2


def test_a_test_request_is_two_clicks_away(page: Page, site: RunningSite) -> None:
    hand = Hand(page, site)
    hand.link(CHAT)
    hand.button("Send")
    page.wait_for_selector("text=Echo: Say hello in one sentence.")
    assert INSTANCES[CHAT][0] in page.inner_text("#main")
    assert hand.clicks == 2


def test_a_key_is_edited_with_three_clicks(page: Page, site: RunningSite) -> None:
    hand = Hand(page, site)
    hand.click(page.get_by_role("link", name="Keys", exact=True))
    hand.click(page.get_by_role("link", name="Edit ").first)
    form = page.locator("form", has=page.get_by_role("button", name="Save"))
    form.get_by_label("Requests a minute").fill("77")
    hand.click(form.get_by_role("button", name="Save"))
    page.wait_for_selector("text=77 requests")
    assert hand.clicks == 3


def test_a_month_of_a_pools_migrations_is_exported_with_two_clicks(page: Page, site: RunningSite) -> None:
    hand = Hand(page, site)
    hand.link(CHAT)
    with page.expect_download() as saved:
        hand.link("30 days as CSV")
    assert saved.value.suggested_filename == "migrations.csv"
    asked = [path for _, path in site.fake.requests if path.startswith("/v1/migrations.csv")]
    assert len(asked) == 1
    assert hand.clicks == 2


def test_what_differs_in_a_region_of_the_heatmap_is_three_clicks_away(page: Page, site: RunningSite) -> None:
    hand = Hand(page, site)
    hand.link(CHAT)
    page.wait_for_url("**/pools/default/chat")
    hand.link("Heatmap")
    brush_heatmap(page)
    hand.clicks += 1  # the brush is one press
    page.locator("#explanation h2", has_text="What differs here?").wait_for()
    assert hand.clicks == 3


def test_a_canary_is_stopped_on_its_page_with_two_clicks(page: Page, site: RunningSite) -> None:
    site.fake.world.spec_changes[CHAT] = {"rollout": {"canary": {}}}
    hand = Hand(page, site)
    page.goto(f"{site.url}/pools/default/chat/canary")
    hand.button("Stop the rollout…")
    hand.apply()
    assert site.fake.world.spec(CHAT)["rollout"]["paused"] is True
    assert hand.clicks == 2


LONGEST = "logins" + "s" * 94
"""The longest name of a view."""


def test_filters_of_the_audit_log_are_saved_with_two_clicks_then_renamed_and_deleted(page: Page, site: RunningSite) -> None:
    hand = Hand(page, site)
    page.goto(f"{site.url}/audit?action=login&from=now-7d&to=now")
    views = page.locator("#views")
    hand.click(views.get_by_text("Save this view…"))
    views.get_by_label("Name").fill("logins of a week")
    hand.button("Save")
    made = views.get_by_role("link", name="logins of a week", exact=True)
    expect(made).to_have_attribute("aria-current", "true")
    assert hand.clicks == 2
    hand.click(views.get_by_text("Change this view…"))
    views.get_by_label("Name").first.fill(LONGEST)
    hand.click(views.get_by_label("with all who see all pools").first)
    hand.button("Change")
    expect(views.get_by_role("link", name=f"{LONGEST} shared", exact=True)).to_be_visible()
    assert hand.clicks == 5
    page.set_viewport_size({"width": 320, "height": 800})
    page.goto(f"{site.url}/audit")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    hand.link(f"{LONGEST} shared")
    hand.click(views.get_by_text("Change this view…"))
    hand.button("Delete")
    expect(views.get_by_role("link", name=f"{LONGEST} shared", exact=True)).to_have_count(0)
    assert hand.clicks == 8

"""Every kind of change that pages offer: planned, applied and undone by its form, which restores the initial state."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page

from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.browser_site import RunningSite, signed_in

pytestmark = pytest.mark.browser

INSTANCE = INSTANCES[CHAT][0]
POOL = "/pools/default/chat"
Ask = Callable[[Page], None]


def form(kind: str, **fields: str) -> tuple[str, Ask]:
    """Return a form of the pool's page, opened and filled in."""

    def ask(page: Page) -> None:
        one = page.locator(f"#change-{kind}")
        if one.get_attribute("open") is None:
            one.locator("summary").click()
        for name, value in fields.items():
            field = one.locator(f"[name='{name}']")
            if field.evaluate("one => one.localName") == "select":
                field.select_option(value)
            else:
                field.fill(value)
        one.get_by_role("button", name="Plan the change").click()

    return POOL, ask


def weigh(page: Page) -> None:
    page.get_by_label(f"Plan another weight of {INSTANCE}").click()
    page.wait_for_url(lambda url: "instance=" in url)
    page.fill("input[name=weight]", "0.5")
    page.get_by_role("button", name="Plan the weight").click()


CHANGES: dict[str, tuple[str, Ask]] = {
    "scale": form("scale", replicas="9"),
    "policy": form("policy", policy="sticky", parameters=""),
    "slo": form("slo", ttft="3s"),
    "early rejection": form("early-rejection", mode="Disabled"),
    "migrations": form("migrations", migrations="Paused"),
    "scaling": form("scaling", targetLoad="0.7"),
    "bounds": form("bounds", minReplicas="2", maxReplicas="16"),
    "pace": form("pace", **{"scaleDown.cooldown": "5m"}),
    "sessions": form("sessions", **{"session.ttl": "2h"}),
    "draining": form("draining", timeout="10m"),
    "classes": form("classes", **{"priorityClasses.0.name": "batch", "priorityClasses.0.priority": "-10"}),
    "fairness": form("fairness", fairness="Tenants"),
    "rollout": form("rollout", paused="true"),
    "ring": form("ring", anchorsPerInstance="80"),
    "weight": (f"{POOL}/ring", weigh),
    "cordon": (f"{POOL}/instances/{INSTANCE}", lambda page: page.get_by_role("button", name="Cordon…").click()),
    "drain": (f"{POOL}/instances/{INSTANCE}", lambda page: page.get_by_role("button", name="Drain and replace…").click()),
    "revert": (f"{POOL}/spec", lambda page: page.get_by_label("Roll back to revision 2").click()),
}


def apply(page: Page) -> None:
    if page.locator("input[name=confirm]").count():
        page.fill("input[name=confirm]", "chat")
        page.fill("input[name=reason]", "tried")
    page.get_by_role("button", name="Apply", exact=True).click()
    page.wait_for_selector("text=Applied by")


def test_every_change_is_applied_and_undone_and_all_is_as_before(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site, "admin", java_script_enabled=False)  # the forms are the same with scripts, and slower
    page, world = context.new_page(), site.fake.world
    for kind, (path, ask) in CHANGES.items():
        before = world.spec(CHAT), world.annotations(INSTANCE)
        page.goto(f"{site.url}{path}")
        ask(page)
        page.wait_for_url("**/plans/p-*")
        assert (world.spec(CHAT), world.annotations(INSTANCE)) == before, f"{kind}: planning changes nothing"
        apply(page)
        assert (world.spec(CHAT), world.annotations(INSTANCE)) != before, kind
        with page.expect_navigation():
            page.get_by_role("button", name="Undo…").click()
        page.wait_for_selector("text=This plan undoes")
        apply(page)
        assert (world.spec(CHAT), world.annotations(INSTANCE)) == before, kind
    context.close()


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_who_may_not_make_a_change_finds_its_button_locked_or_not_there(chromium: Browser, site: RunningSite, role: str) -> None:
    context = signed_in(chromium, site, role, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site.url}{POOL}")
    locked = {
        str(one.get_attribute("id")).removeprefix("change-")
        for one in page.locator("details.change").all()
        if one.locator("button[disabled]").count()
    }
    of_admins = {"policy", "slo", "early-rejection", "scaling", "ring", "delete"}
    of_admins |= {"bounds", "pace", "sessions", "draining", "classes", "fairness"}
    assert locked == of_admins | ({"scale", "migrations", "rollout"} if role == "viewer" else set())
    page.goto(f"{site.url}{POOL}/ring")
    assert page.get_by_role("button", name="Plan the weight").is_disabled() is (role == "viewer")
    page.goto(f"{site.url}{POOL}/spec")
    assert page.get_by_label("Roll back to revision 2").count() == 0
    context.close()

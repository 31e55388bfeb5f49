"""Scaling a pool: plan, check, apply, undo; heavy changes require a name and a reason; no change is made twice."""

import pytest
from playwright.sync_api import Browser, Dialog, Page

from fairlead_testing.fakes.public_data.loads import CHAT, CODE, HOSTILE
from fairlead_testing.running.browser_site import RunningSite, signed_in

pytestmark = pytest.mark.browser


def plan(page: Page, site: RunningSite, replicas: str) -> None:
    page.goto(f"{site.url}/pools/default/chat")
    page.fill("input[name=replicas]", replicas)
    page.click("text=Plan the change")


def test_a_change_is_planned_applied_and_undone(page: Page, site: RunningSite) -> None:
    plan(page, site, "10")
    page.wait_for_url("**/plans/*")
    assert page.locator(".diff-table tbody td").all_inner_texts() == ["8", "10 +2"]
    assert site.fake.world.desired[CHAT] == 8
    page.fill("input[name=reason]", "evening peak")
    page.get_by_role("button", name="Apply").click()
    page.wait_for_selector("text=Applied by")
    assert site.fake.world.desired[CHAT] == 10
    page.get_by_role("button", name="Undo…").click()
    page.wait_for_url("**/plans/p-0002")
    assert "This plan undoes" in page.inner_text("main")
    assert page.locator(".diff-table tbody td").all_inner_texts() == ["10", "8 -2"]
    page.get_by_role("button", name="Apply").click()
    page.wait_for_selector("text=Applied by")
    assert site.fake.world.desired[CHAT] == 8


def test_a_double_click_applies_once(page: Page, site: RunningSite) -> None:
    plan(page, site, "9")
    page.wait_for_url("**/plans/*")
    page.get_by_role("button", name="Apply").dblclick()
    page.wait_for_selector("text=Applied by")
    assert site.fake.book.applied == ["p-0001"]
    assert len([one for one in site.fake.requests if one == ("POST", "/v1/plans/p-0001/apply")]) == 1


def test_a_heavy_change_wants_the_pools_name_and_a_reason(page: Page, site: RunningSite) -> None:
    plan(page, site, "0")
    page.wait_for_url("**/plans/*")
    button = page.get_by_role("button", name="Apply")
    assert button.is_disabled()
    page.fill("input[name=confirm]", "chatt")
    page.fill("input[name=reason]", "closing down")
    assert button.is_disabled()
    page.fill("input[name=confirm]", "chat")
    assert button.is_enabled()
    button.click()
    page.wait_for_selector("text=Applied by")
    assert site.fake.world.desired[CHAT] == 0


def test_a_number_the_api_refuses_is_explained_beside_the_field(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site)
    page = context.new_page()
    plan(page, site, "65")
    assert "must not be greater than roles[].maxReplicas" in page.inner_text("#scale-problem")
    assert page.input_value("input[name=replicas]") == "65"
    page.fill("input[name=replicas]", "9")
    page.click("text=Plan the change")
    page.wait_for_url("**/plans/p-0001")
    context.close()


def test_a_pool_owned_by_gitops_is_read_only_here(page: Page, site: RunningSite) -> None:
    made = site.fake
    made.world.owner[CHAT] = "argocd"
    made.book.make(CHAT, 9, "ada")
    page.goto(f"{site.url}/plans/p-0001")
    assert page.get_by_role("button", name="Apply").is_disabled()
    assert "argocd owns this pool" in page.inner_text("main")
    assert page.locator("pre").first.inner_text().strip() == "spec:\n  replicas: 9"


def test_the_theme_changes_and_stays(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/")
    page.click("#theme-button")
    page.click("#theme-button")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.goto(f"{site.url}/pools")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark == "rgb(15, 19, 23)"


def test_hostile_names_are_text_everywhere(page: Page, site: RunningSite) -> None:
    dialogs: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    for path in ("/sessions", "/migrations", "/decisions", "/audit", "/"):
        page.goto(f"{site.url}{path}")
        assert HOSTILE in page.inner_text("main")
        assert page.locator("img[src=x]").count() == 0
    page.goto(f"{site.url}/sessions?q=%3Cimg")
    page.click("td a[data-open]")
    page.locator("h1", has_text=HOSTILE).wait_for()
    assert dialogs == []


def test_a_new_schedules_text_follows_the_pool_until_it_is_edited(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/schedules")
    text, pool = page.locator("#schedule-spec textarea"), page.locator("form[data-once] input[name=pool]")
    page.click("summary:has-text('Or write it as YAML')")
    page.wait_for_selector("form[data-once] input[name=pool][data-htmx-powered]")
    for name, least in ((CODE, 8), (CHAT, 16)):
        pool.fill(name)
        pool.blur()
        page.wait_for_function(
            "least => document.querySelector('#schedule-spec textarea').value.includes(least)", arg=f"minReplicas: {least}"
        )
    text.fill("cron: '0 9 * * *'")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    pool.fill(CODE)
    pool.blur()
    page.evaluate("fetch('/schedules?begun=later')")
    assert text.input_value() == "cron: '0 9 * * *'"
    assert [url for url in asked if "pool=" in url] == [], "what was typed is kept"

"""Forms that cannot be sent at present, and forms that ask for confirmation."""

import pytest
from playwright.sync_api import Browser, Page, expect

from fairlead_testing.fakes.public_data.loads import CHAT, CODE
from fairlead_testing.running.browser_site import RunningSite, signed_in

pytestmark = pytest.mark.browser

RATIO = {"minReplicas": 0, "maxReplicas": 9}


def test_the_ratio_form_keeps_what_was_typed_while_the_api_is_away(chromium: Browser, site: RunningSite) -> None:
    site.fake.world.spec_changes[CHAT] = {
        "roles": [{"name": "prefill", "replicas": 2, **RATIO}, {"name": "decode", "replicas": 4, **RATIO}]
    }
    context = signed_in(chromium, site, "admin")
    page = context.new_page()
    page.goto(f"{site.url}/pools/{CHAT}")
    page.wait_for_selector("html.scripted")
    form = page.locator("#change-ratio")
    form.locator("summary").click()
    form.locator("[name=band]").fill("0.77")
    site.fake.broken.add("/v1/")
    form.get_by_role("button", name="Plan the change").click()
    expect(form.locator("[data-kept]")).to_contain_text("What you typed is still here")
    assert form.locator("[name=band]").input_value() == "0.77"
    context.close()


def test_a_revocation_that_was_not_sent_asks_again_at_the_next_try(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site, "admin")
    page = context.new_page()
    page.goto(f"{site.url}/settings")
    page.wait_for_selector("html.scripted")
    form = page.locator("form[data-ask]", has_text="Revoke").first
    form.get_by_role("button").click()
    site.fake.broken.add("/v1/")
    page.get_by_role("dialog", name="Revoke the token").get_by_role("button", name="Continue").click()
    expect(form.locator("[data-kept]")).to_contain_text("nothing was sent. Press the button again")
    site.fake.broken.clear()
    form.get_by_role("button").click()
    page.get_by_role("dialog", name="Revoke the token").get_by_role("button", name="Cancel").click()
    page.locator("dialog").wait_for(state="detached")
    assert not any(method == "DELETE" for method, _ in site.fake.requests), "the answer was no"
    context.close()


def test_a_new_schedules_text_stays_when_another_pools_cannot_be_read(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site, "admin")
    page = context.new_page()
    page.goto(f"{site.url}/schedules")
    page.click("summary:has-text('Or write it as YAML')")
    page.wait_for_selector("form[data-once] input[name=pool][data-htmx-powered]")
    text, pool = page.locator("#schedule-spec textarea"), page.locator("form[data-once] input[name=pool]")
    before = text.input_value()
    site.fake.broken.add("/v1/schedules")
    with page.expect_response("**/schedules?*") as answer:
        pool.fill(CODE)
        pool.blur()
    assert answer.value.status == 503
    site.fake.broken.clear()
    assert text.input_value() == before
    with page.expect_response("**/schedules?*"):
        pool.fill(CHAT)
        pool.blur()
    expect(text).to_have_value(before)
    context.close()


def test_the_help_with_keys_has_a_name(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/pools")
    page.wait_for_selector("html.scripted")
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()

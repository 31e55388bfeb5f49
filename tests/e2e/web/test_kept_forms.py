"""Values typed into a form that was not carried out are put back into all fields of that form."""

import pytest
from playwright.sync_api import Browser, Page, expect

from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.browser_site import RunningSite, signed_in
from fairlead_testing.running.every_page import furnish

pytestmark = pytest.mark.browser

PAGES = ("/settings", "/schedules", "/audit", f"/pools/{CHAT}/comments", f"/pools/{CHAT}/simulator")
"""Pages on which forms look alike, have fields of one name, or stand below a form that only reads."""
READ = """(form) => [...form.elements]
  .filter((one) => one.name && !["hidden", "password", "file", "submit"].includes(one.type) && one.name !== "token")
  .map((one) => [one.name, ["checkbox", "radio"].includes(one.type) ? one.checked : one.value])"""
NEW_KEY = "form[action$='/keys/new']"
FORM = "[...document.forms].filter((one) => one.getAttribute('method') === 'post' && !one.matches('.theme-form'))"
SEND = f"""(place) => {{
  const form = {FORM}[place], read = {READ};
  for (const one of form.elements) {{
    if (one.type === "checkbox") one.checked = !one.checked;
    else if (one.type === "time") one.value = "03:17";
    else if (one.type === "number") one.value = Number(one.value) + 1;
    else if (one.tagName === "SELECT") one.selectedIndex = one.options.length - 1;
    else if (one.type === "text" || one.tagName === "TEXTAREA") one.value += "7";
  }}
  form.noValidate = true;
  form.requestSubmit();
  return read(form);
}}"""


@pytest.mark.parametrize("path", PAGES)
def test_each_form_gets_back_what_was_typed_into_it(chromium: Browser, site: RunningSite, path: str) -> None:
    furnish(site.fake, CHAT, INSTANCES[CHAT][1])
    context = signed_in(chromium, site, "admin")
    page = context.new_page()
    page.route("**/-/session", lambda route: route.fulfill(status=401))
    page.route("**/login?*", lambda route: route.fulfill(status=204))  # the page stays
    page.goto(site.url + path)
    page.wait_for_selector("html.scripted")
    filled = [place for place in range(page.evaluate(f"{FORM}.length")) if page.evaluate(f"(place) => ({READ})({FORM}[place])", place)]
    assert filled
    for place in filled:
        with page.expect_response("**/login?*"):
            typed = page.evaluate(SEND, place)
        page.goto(site.url + path)
        page.wait_for_selector("html.scripted")
        page.wait_for_selector("[data-kept]", state="attached")
        assert page.evaluate(f"(place) => ({READ})({FORM}[place])", place) == typed, f"form {place} of {path}"
    context.close()


KEPT = "JSON.parse(sessionStorage.getItem('fairlead-kept-form'))"


def type_name(page: Page, site: RunningSite, path: str, form: str) -> None:
    """Type a name into a form, and send it when the session has ended; the page stays."""
    page.route("**/-/session", lambda route: route.fulfill(status=401))
    page.route("**/login?*", lambda route: route.fulfill(status=204))
    page.goto(site.url + path)
    page.wait_for_selector("html.scripted")
    page.locator(form).locator("[name=name]").fill("team of the night")
    with page.expect_response("**/login?*"):
        page.evaluate("(form) => { const found = document.querySelector(form); found.noValidate = true; found.requestSubmit(); }", form)


def test_what_somebody_else_typed_in_this_tab_or_yesterday_does_not_come_back(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site, "operator")
    page = context.new_page()
    for change in ({"who": "Account of somebody else"}, {"at": 0}):
        type_name(page, site, "/keys", NEW_KEY)
        page.evaluate(f"(change) => sessionStorage.setItem('fairlead-kept-form', JSON.stringify({{ ...{KEPT}, ...change }}))", change)
        page.goto(f"{site.url}/keys")
        page.wait_for_function("() => !sessionStorage.getItem('fairlead-kept-form')")
        assert page.locator(f"{NEW_KEY} [name=name]").input_value() == "", change
    context.close()


def test_the_address_of_a_webhook_is_not_kept_as_it_is_a_secret(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site, "admin")
    page = context.new_page()
    type_name(page, site, "/notices", "form[action*='/notices/new']")
    names = [name for name, _ in page.evaluate(KEPT)["values"]]
    assert "name" in names
    assert "url" not in names
    context.close()


def test_only_what_was_typed_counts_as_changed_when_a_key_was_changed_meanwhile(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site, "operator")
    page = context.new_page()
    page.goto(f"{site.url}/keys")
    path = str(page.locator("a", has_text="Edit").first.get_attribute("href"))
    form = "form:has([name='former.name'])"
    former = "(form) => document.querySelector(form).elements['former.name']"
    page.goto(site.url + path)
    opened = page.evaluate(f"{former}.value", form)
    type_name(page, site, path, form)
    other = context.new_page()
    other.goto(site.url + path)
    other.wait_for_selector("html.scripted")
    other.locator(form).locator("[name=name]").fill("changed-meanwhile")
    other.locator(form).get_by_role("button", name="Save").click()
    other.wait_for_url(f"{site.url}/keys")
    page.goto(site.url + path)
    page.wait_for_selector("[data-kept]")
    assert page.evaluate(f"{former}.value", form) == opened
    context.close()


@pytest.mark.parametrize("sent_again", ["by the button", "by a reload"])
def test_a_form_that_failed_twice_is_filled_again_and_one_sent_again_with_success_is_not(
    chromium: Browser, site: RunningSite, sent_again: str
) -> None:
    context = signed_in(chromium, site, "admin")
    page = context.new_page()
    field = 'document.querySelector("form:has([name=kind][value=slo]) input:not([type=hidden])")'
    for mends in (False, True):
        site.fake.broken.clear()
        page.goto(f"{site.url}/pools/{CHAT}")
        page.wait_for_selector("html.scripted")
        site.fake.broken.add("/plans")
        page.evaluate(f"() => {{ {field}.value = '37'; {field}.form.noValidate = true; {field}.form.requestSubmit(); }}")
        again = page.get_by_role("button", name="Send it again")
        again.wait_for()
        page.wait_for_function(f"() => {KEPT}.why === 'failed'")
        if mends:
            site.fake.broken.clear()
        with page.expect_navigation():
            again.click() if sent_again == "by the button" else page.evaluate("() => location.reload()")
        site.fake.broken.clear()
        page.wait_for_selector("html.scripted")
        page.goto(f"{site.url}/pools/{CHAT}")
        page.wait_for_function("() => !sessionStorage.getItem('fairlead-kept-form')")
        assert (page.evaluate(f"() => {field}.value") == "37") is not mends
    context.close()


def create_key(page: Page, site: RunningSite, *, broken: bool = False) -> None:
    """Send the form for a new key, which the API answers with 503 if it is `broken`."""
    page.goto(f"{site.url}/keys")
    page.wait_for_selector("html.scripted")
    if broken:
        site.fake.broken.add("/v1/gateway-keys")
    form = page.locator(NEW_KEY)
    form.locator("[name=name]").fill("team of the night")
    form.get_by_role("button", name="Create key").click()


def test_a_form_whose_answer_was_an_error_page_is_filled_again_on_the_way_back(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site, "operator")
    page = context.new_page()
    create_key(page, site, broken=True)
    page.get_by_role("link", name="Back to the form").wait_for()
    site.fake.broken.clear()
    page.get_by_role("link", name="Back to the form").click()
    form = page.locator(NEW_KEY)
    expect(form.locator("[data-kept]")).to_contain_text("What you typed is here again")
    assert form.locator("[name=name]").input_value() == "team of the night"
    context.close()


def test_a_form_that_was_answered_is_not_filled_again(chromium: Browser, site: RunningSite) -> None:
    context = signed_in(chromium, site, "operator")
    page = context.new_page()
    create_key(page, site)
    page.get_by_role("heading", name="Key team of the night created").wait_for()
    page.wait_for_function("() => !sessionStorage.getItem('fairlead-kept-form')")
    page.goto(f"{site.url}/keys")
    page.wait_for_selector("html.scripted")
    assert page.locator("[data-kept]").count() == 0
    assert page.locator(f"{NEW_KEY} [name=name]").input_value() == ""
    context.close()

"""Every form of every page in a real browser: another site cannot send it, and its contents are never run."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.browser_site import RunningSite, running_site, session_cookie, signed_in, wait_until
from fairlead_testing.running.every_page import addresses, furnish
from fairlead_web.text.addresses import pool_path

pytestmark = pytest.mark.browser

INSTANCE = INSTANCES[CHAT][1]
EVIL = "http://evil.example/"
MARKUP = """"'>`</textarea></title><img src=x onerror="window.ran=1"><svg onload="window.ran=1"><script>window.ran=1</script>javascript:alert(1)"""
FORMS = """() => {
  const address = (one, written) => new URL(written ?? location.href, location.href).href;
  const fields = (form) => [...new FormData(form)].map(([name, value]) => [name, typeof value === "string" ? value : ""]);
  const names = (form) => [...form.elements].map((one) => one.name).filter(Boolean);
  const found = [...document.forms].map((form) => ({
    action: address(form, form.getAttribute("action")), method: (form.getAttribute("method") ?? "get").toLowerCase(),
    multipart: form.enctype.includes("multipart"), names: [...new Set(names(form))], fields: fields(form),
  }));
  for (const one of document.querySelectorAll("[hx-post], [hx-put], [hx-patch], [hx-delete], [formaction]")) {
    const form = one.closest("form"), written = ["hx-post", "hx-put", "hx-patch", "hx-delete", "formaction"].map((name) => one.getAttribute(name));
    const csrf = document.querySelector("[name=csrf]")?.value ?? "";
    found.push({action: address(one, written.find(Boolean)), method: "post", multipart: false,
      names: form ? [...new Set(names(form))] : ["csrf"], fields: form ? fields(form) : [["csrf", csrf]]});
  }
  return found;
}"""
SEND = """([form, fields]) => {
  const made = document.createElement("form");
  made.action = form.action; made.method = form.method; made.enctype = form.multipart ? "multipart/form-data" : made.enctype;
  for (const [name, value] of fields) {
    const one = document.createElement("input");
    one.type = "hidden"; one.name = name; one.value = value; made.append(one);
  }
  document.body.append(made);
  HTMLFormElement.prototype.submit.call(made);
}"""
RAN = "() => Boolean(window.ran || document.querySelector('[onerror], [onload], script:not([src]):not([type]):not([nonce])'))"


class Seen(NamedTuple):
    site: RunningSite
    context: BrowserContext
    forms: set[tuple[Any, ...]]
    """Forms that were tested on an earlier page; most pages have the same ones at their top."""


@pytest.fixture(scope="module")
def seen(chromium: Browser) -> Iterator[Seen]:
    with running_site(clusters=True) as site:
        furnish(site.fake, CHAT, INSTANCE)
        context = signed_in(chromium, site, "admin")
        # sent along from everywhere, as by a browser that knows no SameSite: the server itself must refuse
        context.add_cookies(
            [{"name": session_cookie(site.url), "value": "admin-token", "url": site.url, "sameSite": "None", "secure": True}]
        )
        context.route(EVIL + "**", lambda route: route.fulfill(content_type="text/html", body="<body>evil</body>"))
        yield Seen(site, context, set())
        context.close()


def new_forms(page: Page, seen: Seen) -> list[dict[str, Any]]:
    """Return the page's forms that no page had before; forms are equal if their fields and their path are."""
    found = []
    for form in page.evaluate(FORMS):
        kind = (urlsplit(form["action"]).path, form["method"], tuple(sorted(form["names"])))
        if kind not in seen.forms and form["action"].startswith(seen.site.url):
            seen.forms.add(kind)
            found.append(form)
    return found


def writes(site: RunningSite) -> list[tuple[str, str]]:
    return [(method, path) for method, path in site.fake.requests if method != "GET"]


def sends_from_elsewhere(page: Page, form: dict[str, Any], site: RunningSite) -> None:
    """Send the form from another site with all its values, including this person's token."""
    page.goto(EVIL)
    before = writes(site)
    with page.expect_request(lambda one: one.method == "POST") as sent, page.expect_navigation(wait_until="load"):
        page.evaluate(SEND, [form, form["fields"]])
    answer = sent.value.response()
    assert answer is not None and answer.status == 403, f"{form['action']}: {answer}"
    assert writes(site) == before, f"{form['action']} was sent by another site"


def fills_with_markup(page: Page, path: str, form: dict[str, Any], site: RunningSite) -> None:
    """Send the form as this person, with markup in every field."""
    page.goto(site.url + path)
    token = dict(form["fields"]).get("csrf", "")
    fields = [[name, token if name == "csrf" else MARKUP] for name in form["names"]]
    with page.expect_navigation(wait_until="load"):
        page.evaluate(SEND, [form, fields])
    assert page.url.startswith(site.url), f"{form['action']} led to {page.url}"
    assert not page.evaluate(RAN), f"{form['action']}: {json.dumps(form['names'])}"


OFTEN = {"/login", "/keys", "/notices", "/pools/new", "/simulator", f"{pool_path(CHAT)}/edit"}
"""Pages that are tested in every run; all others only at night."""
PAGES = ["/login", *(one for one in addresses(CHAT, INSTANCE) if one != "/docs")]


def test_the_pages_of_every_run_exist() -> None:
    assert set(PAGES) >= OFTEN


@pytest.mark.parametrize("path", [one if one in OFTEN else pytest.param(one, marks=pytest.mark.nightly) for one in PAGES])
def test_no_form_of_a_page_can_be_sent_by_another_site_or_runs_what_it_is_filled_with(path: str, seen: Seen) -> None:
    page = seen.context.new_page()
    try:
        page.goto(seen.site.url + path)
        wait_until(page, "document.readyState === 'complete'")
        assert not page.evaluate(RAN), "of what earlier forms stored"
        for form in new_forms(page, seen):
            if form["method"] == "post" and path != "/login":
                sends_from_elsewhere(page, form, seen.site)
            if not urlsplit(form["action"]).path.endswith("/logout"):
                fills_with_markup(page, path, form, seen.site)
    finally:
        page.close()

"""Signing in by an identity provider as people do it: a real browser, a certified OpenID provider, a real Postgres."""

from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from fairlead_testing.running.api import SECRETS
from fairlead_testing.running.browser_site import findings_in_both_themes, session_cookie, sticking_out
from fairlead_testing.running.identity_provider import SECRET, running_host, running_provider, sign_in_at_provider
from fairlead_testing.running.postgres import fresh_database, shared_server
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.ports import free_port

pytestmark = pytest.mark.browser

GROUPS = {"ann": ["platform", "everyone"], "mia": ["ml-team", "everyone"], "tom": ["everyone"]}
RIGHTS = "admin:platform,operator@team-a:ml-team,viewer@team-a:ml-team"


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    """Yield the address of API and web UI, which use a provider that knows GROUPS."""
    with ExitStack() as stack:
        database = stack.enter_context(fresh_database(stack.enter_context(shared_server())))
        port = free_port()
        issuer = stack.enter_context(running_provider(f"http://127.0.0.1:{port}/login/oidc/answer", GROUPS))
        environment = {
            "FAIRLEAD_AUTH_MODE": "oidc",
            "FAIRLEAD_OIDC_ISSUER": issuer,
            "FAIRLEAD_OIDC_CLIENT_ID": "fairlead",
            "FAIRLEAD_OIDC_CLIENT_SECRET": SECRET,
            "FAIRLEAD_OIDC_SCOPES": "openid email groups",
            "FAIRLEAD_OIDC_GROUPS": RIGHTS,
        }
        yield stack.enter_context(running_host(database, port, environment))


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    opened = chromium.new_context(viewport={"width": 1280, "height": 900})
    opened.set_default_timeout(PATIENCE_SECONDS * 1000)
    yield opened
    opened.close()


def whoami(context: BrowserContext, host: str) -> dict[str, object]:
    token = next(one.get("value", "") for one in context.cookies(host) if one.get("name") == session_cookie(host))
    headers = {"authorization": f"Bearer {token}"}
    found: dict[str, object] = httpx.get(f"{host}/v1/whoami", headers=headers, timeout=PATIENCE_SECONDS, trust_env=False).json()
    return found


def to_provider(page: Page, host: str, path: str = "/") -> None:
    page.goto(f"{host}{path}")
    page.get_by_role("link", name="Sign in with 127.0.0.1").click()


def test_somebody_of_a_group_signs_in_and_gets_where_they_wanted_with_the_groups_role(context: BrowserContext, host: str) -> None:
    page = context.new_page()
    to_provider(page, host, "/audit?action=login")
    sign_in_at_provider(page, "ann")
    page.wait_for_url(f"{host}/audit?action=login")
    assert "ann@example.com" in page.inner_text("main"), "the sign-in itself is in the audit log"
    who = whoami(context, host)
    assert (who["subject"], who["role"], who["source"], who["groups"]) == ("ann@example.com", "admin", "oidc", GROUPS["ann"])
    assert [one.get("name") for one in context.cookies(host) if "attempt" in one.get("name", "")] == [], "the attempt is over"


def test_a_role_of_one_namespace_holds_there_alone(context: BrowserContext, host: str) -> None:
    page = context.new_page()
    to_provider(page, host)
    sign_in_at_provider(page, "mia")
    page.wait_for_url(f"{host}/")
    assert (whoami(context, host)["role"], whoami(context, host)["namespaces"]) == ("none", {"team-a": "operator"})


def test_somebody_without_a_role_is_told_whom_to_name_when_they_ask_for_one(context: BrowserContext, host: str) -> None:
    page = context.new_page()
    to_provider(page, host)
    sign_in_at_provider(page, "tom")
    page.wait_for_url(f"{host}/")
    assert whoami(context, host)["role"] == "none"
    assert "tom@example.com has role none; this needs viewer." in page.inner_text("main")
    page.goto(f"{host}/settings")
    assert "Groups: everyone." in page.inner_text("main")
    assert "Part of this page is missing" not in page.inner_text("main")


def test_somebody_whom_the_provider_does_not_verify_is_not_signed_in(context: BrowserContext, host: str) -> None:
    page = context.new_page()
    to_provider(page, host, "/pools")
    sign_in_at_provider(page, "unverified")
    page.wait_for_url(f"{host}/login/oidc/answer?*")
    assert "does not say that unverified@example.com is verified" in page.inner_text("[role=alert]")
    assert [one for one in context.cookies(host) if one.get("name") == session_cookie(host)] == []
    headers = {"authorization": f"Bearer {SECRETS['admin']}"}
    answer = httpx.get(f"{host}/v1/audit", params={"action": "login"}, headers=headers, timeout=PATIENCE_SECONDS, trust_env=False)
    entries = answer.json()["items"]
    assert (entries[0]["result"], "unverified@example.com" in entries[0]["reason"]) == ("denied", True)


def test_who_turns_back_at_the_provider_is_told_so_and_may_begin_again(context: BrowserContext, host: str) -> None:
    page = context.new_page()
    to_provider(page, host, "/pools")
    page.get_by_role("link", name="Cancel").click()
    page.wait_for_url(f"{host}/login/oidc/answer?*")
    assert "The identity provider reports access_denied" in page.inner_text("[role=alert]")
    page.get_by_role("link", name="Sign in with 127.0.0.1").click()
    sign_in_at_provider(page, "ann")
    page.wait_for_url(f"{host}/pools")


def test_what_one_browser_brings_back_is_of_no_use_in_another(context: BrowserContext, chromium: Browser, host: str) -> None:
    page = context.new_page()
    brought: list[str] = []
    page.on("request", lambda request: brought.append(request.url) if "/login/oidc/answer?" in request.url else None)
    to_provider(page, host)
    sign_in_at_provider(page, "ann")
    page.wait_for_url(f"{host}/")
    other = chromium.new_context()
    other.set_default_timeout(PATIENCE_SECONDS * 1000)
    victim = other.new_page()
    victim.goto(brought[0])
    assert "begun in another browser" in victim.inner_text("[role=alert]")
    victim.goto(f"{host}/login/oidc")  # an attempt of their own does not take the other's code
    victim.goto(brought[0])
    assert "another attempt" in victim.inner_text("[role=alert]")
    assert [one for one in other.cookies(host) if one.get("name") == session_cookie(host)] == []
    other.close()


def test_the_login_page_offers_the_provider_first_and_is_accessible(context: BrowserContext, host: str) -> None:
    page = context.new_page()
    page.goto(f"{host}/login")
    assert findings_in_both_themes(page) == []
    assert sticking_out(page) == []
    page.get_by_text("Sign in another way").click()
    page.fill("input[name=token]", SECRETS["viewer"])
    page.keyboard.press("Enter")
    page.wait_for_url(f"{host}/")
    assert whoami(context, host)["subject"] == "test-viewer", "tokens stay good beside it"

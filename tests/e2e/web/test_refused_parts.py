"""An open page whose regions are refused says so, and is not shown as live."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Page

from fairlead_client.resources.access import AccessRole
from fairlead_testing.fakes.public_api import pools
from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.browser_site import RunningSite, signed_in
from fairlead_testing.running.people import until_at

pytestmark = pytest.mark.browser

GONE = "#away:has-text('is gone, or no longer visible to you')"


@pytest.fixture
def page(chromium: Browser, site: RunningSite) -> Iterator[Page]:
    """Yield a page that may log refused requests to its console."""
    context = signed_in(chromium, site)
    yield context.new_page()
    context.close()


def push_pool(site: RunningSite) -> None:
    site.push("pools", [site.fake.world.pool(CHAT)])


@contextmanager
def without_the_pool(page: Page, site: RunningSite, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Yield the pool's open page once it says that the pool is gone."""
    page.goto(f"{site.url}/pools/{CHAT}")
    page.wait_for_selector("#live-pill[data-state=live]")
    with monkeypatch.context() as deleted:
        deleted.setattr(pools, "INSTANCES", {})
        push_pool(site)
        page.wait_for_selector(GONE)
        yield


def test_a_page_of_a_deleted_pool_says_so_until_the_pool_is_there_again(
    page: Page, site: RunningSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    with without_the_pool(page, site, monkeypatch):
        assert page.inner_text("#live-pill").strip() == "Not live"
        push_pool(site)
        with page.expect_navigation():
            page.click("#away a")
        assert "No such pool" in page.inner_text("main")
    with without_the_pool(page, site, monkeypatch):
        pass
    push_pool(site)
    page.wait_for_selector("#away", state="detached")
    page.wait_for_selector("#live-pill[data-state=live]")


def test_a_page_that_polls_says_that_it_is_no_longer_visible(page: Page, site: RunningSite) -> None:
    site.fake.live.limit = 0
    page.goto(f"{site.url}/pools/{CHAT}")
    page.wait_for_selector("#live-pill[data-state=polling]")
    known = site.fake.tokens["operator-token"]
    site.fake.tokens["operator-token"] = replace(known, role=AccessRole.NONE)
    page.wait_for_selector(GONE)
    assert page.get_attribute("#live-pill", "data-state") == "gone"
    site.fake.tokens["operator-token"] = known
    page.wait_for_selector("#live-pill[data-state=polling]")
    assert page.locator("#away").count() == 0


def test_a_page_whose_parts_fail_grows_old_however_many_events_still_come(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/pools/{CHAT}")
    page.wait_for_selector("#live-pill[data-state=live]")
    site.fake.broken.add(f"/v1/pools/{CHAT}")
    push_pool(site)
    page.wait_for_selector("#live-pill[data-state=reconnecting]")
    push_pool(site)
    page.wait_for_selector("#away:has-text('The control API does not answer.')")
    assert page.get_attribute("#live-pill", "data-state") == "reconnecting"
    site.fake.broken.clear()
    push_pool(site)
    page.wait_for_selector("#live-pill[data-state=live]")
    assert page.locator("#away").count() == 0


def test_a_session_that_ended_leads_from_a_lost_stream_to_the_login(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/pools/{CHAT}")
    page.wait_for_selector("#live-pill[data-state=live]")
    del site.fake.tokens["operator-token"]
    site.loop.call_soon_threadsafe(site.fake.end_streams)
    until_at(page, "/login?")

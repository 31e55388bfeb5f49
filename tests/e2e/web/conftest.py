"""A real browser against the web UI in a real server, over the fake public API."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from fairlead_testing.running.browser_site import RunningSite, running_site, signed_in, watch_troubles


@pytest.fixture
def site() -> Iterator[RunningSite]:
    with running_site() as found:
        yield found


@pytest.fixture
def page(chromium: Browser, site: RunningSite) -> Iterator[Page]:
    """Yield an operator's page; fail on console errors, script errors, CSP violations and requests to other origins."""
    context = signed_in(chromium, site)
    opened = context.new_page()
    troubles = watch_troubles(opened, site.url)
    yield opened
    context.close()
    assert troubles == []

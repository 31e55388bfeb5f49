"""A real browser for all tests of pages."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from fairlead_testing.running.browser_site import CHROMIUM_ARGUMENTS, HEADLESS_CHROMIUM


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for each file: Playwright's event loop would be in the way of asyncio in the files after it."""
    if not HEADLESS_CHROMIUM.exists():
        pytest.fail(
            f"{HEADLESS_CHROMIUM} is missing: run scripts/ensure-browser.sh (apt-get install chromium) and try again", pytrace=False
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(HEADLESS_CHROMIUM), args=list(CHROMIUM_ARGUMENTS))
        yield browser
        browser.close()

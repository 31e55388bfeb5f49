"""A real browser for all tests of pages."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from fairlead_testing.running.browser_site import CHROMIUM_ARGUMENTS, HEADLESS_CHROMIUM


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Yield one browser for each file; across files, Playwright's event loop would interfere with asyncio."""
    if not HEADLESS_CHROMIUM.exists():
        pytest.fail(
            f"{HEADLESS_CHROMIUM} is missing: run scripts/ensure-browser.sh (apt-get install chromium) and try again", pytrace=False
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(HEADLESS_CHROMIUM), args=list(CHROMIUM_ARGUMENTS))
        yield browser
        browser.close()

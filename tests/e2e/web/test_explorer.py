"""The API's explorer in a browser: drawn under the pages' content policy, and a request from it is answered."""

from playwright.sync_api import Page

from fairlead_testing.running.browser_site import RunningSite, findings, wait_until

ITS_OWN = ("heading-order:", "landmark-main-is-top-level:", "landmark-no-duplicate-main:", "landmark-unique:")
"""Rules that the vendored explorer's landmarks and headings break: it has a `main` of its own within the page's."""


def test_the_explorer_is_drawn_and_sends_a_request_as_the_person(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/docs")
    page.click("#explorer .opblock-tag[data-tag=search]")
    page.click("#explorer .opblock-get .opblock-summary-control")
    page.click("#explorer .try-out__btn")
    page.fill("#explorer tr[data-param-name=q] input", "chat")
    page.click("#explorer button.execute")
    wait_until(page, "document.querySelector('#explorer .live-responses-table tbody .response-col_status')?.textContent.startsWith('200')")
    assert "/v1/search?q=chat" in page.locator("#explorer .request-url").inner_text()
    assert ("GET", "/v1/search") in site.fake.requests
    assert [one for one in findings(page) if not one.startswith(ITS_OWN)] == []

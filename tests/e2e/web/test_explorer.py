"""The API's explorer in a browser: drawn under the pages' content policy, and a request from it is answered."""

from playwright.sync_api import Page, expect

from fairlead_testing.running.browser_site import RunningSite, wait_until


def test_the_explorer_is_drawn_and_sends_a_request_as_the_person(page: Page, site: RunningSite) -> None:
    page.goto(f"{site.url}/docs")
    wait_until(page, "document.querySelectorAll('#explorer .opblock-tag').length > 5")
    page.fill("#explorer .operation-filter-input", "search")
    page.click("#explorer .opblock-tag[data-tag=search]")
    page.click("#explorer .opblock-get .opblock-summary-control")
    page.click("#explorer .try-out__btn")
    page.fill("#explorer tr[data-param-name=q] input", "chat")
    page.click("#explorer button.execute")
    expect(page.locator("#explorer .responses-table.live-responses-table .response-col_status")).to_contain_text("200")
    expect(page.locator("#explorer .request-url")).to_contain_text("/v1/search?q=chat")
    assert ("GET", "/v1/search") in site.fake.requests

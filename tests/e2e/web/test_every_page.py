"""Every page, in both themes and both widths: no script trouble, nothing leaves the origin, nothing
inaccessible, nothing sticks out.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from fairlead_client.resources.plans import PlanKind
from fairlead_testing.fakes.public_data.loads import CHAT, HOSTILE, INSTANCES
from fairlead_testing.running.browser_site import RunningSite, running_site, signed_in, wait_until, watch_troubles
from fairlead_web.addresses import session_path

pytestmark = pytest.mark.browser

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
INSTANCE = INSTANCES[CHAT][1]
# What nobody can reach: content wider than a box that hides it (an ellipsis whose whole text is a title
# apart), and on a wide screen a table whose last column is outside its panel. Boxes for the eyes of screen
# readers only are one pixel wide.
CUT_OFF = """() => {
  const found = [];
  for (const one of document.querySelectorAll("main *, header *")) {
    const style = getComputedStyle(one);
    if (one.clientWidth <= 1 || one.closest("svg, input, .visually-hidden") || !["hidden", "clip"].includes(style.overflowX)) continue;
    if (style.textOverflow === "ellipsis" && (one.title || one.closest("[title]"))) continue;
    if (one.scrollWidth > one.clientWidth + 1) found.push(`${one.tagName}.${one.className}: ${one.scrollWidth} in ${one.clientWidth}`);
  }
  for (const row of document.querySelectorAll(".panel thead tr")) {
    const panel = row.closest(".panel").getBoundingClientRect(), last = row.lastElementChild.getBoundingClientRect();
    if (innerWidth < 1280 || row.closest(".scroll-x") || last.right <= panel.right + 1) continue;
    found.push(`the column "${row.lastElementChild.textContent}" ends at ${last.right} of ${panel.right}`);
  }
  return found;
}"""
PAGES = (
    "/",
    "/pools",
    "/pools/default/chat",
    "/pools/default/chat/heatmap?metric=ttft_p95&sort=max",
    "/pools/default/chat/heatmap?view=table",
    "/pools/default/chat/instances",
    f"/pools/default/chat/instances/{INSTANCE}",
    "/pools/default/chat/spec",
    "/pools/default/chat/ring",
    "/pools/default/chat/predictor",
    "/pools/default/chat/scaling",
    "/pools/default/chat/ring?add=1&anchors=80",
    "/sessions",
    session_path(CHAT, HOSTILE),
    "/migrations",
    "/migrations?pool=default/nowhere",
    "/migrations/m-0005",
    "/reroutes",
    "/reroutes/q-0003",
    "/decisions",
    "/decisions/d-0004",
    "/rejections",
    "/slo",
    "/audit",
    "/audit/56",
    "/settings",
    "/help",
    "/plans/p-0001",
    "/plans/p-0002",
    "/plans/p-0003",
    "/plans/p-0004",
)


@pytest.fixture(scope="module")
def shared_site() -> Iterator[RunningSite]:
    with running_site() as site:
        site.fake.book.make(CHAT, 7, "ada")
        site.fake.book.make(CHAT, 0, "ada")
        site.fake.book.plan(CHAT, PlanKind.SLO, {"slo": {"ttft": "3s"}}, "ada")
        site.fake.book.plan(CHAT, PlanKind.CORDON, {"fairlead.dev/cordoned": "true"}, "ada", instance=INSTANCE)
        yield site


@pytest.fixture(scope="module", params=["light", "dark"])
def themed(request: pytest.FixtureRequest, chromium: Browser, shared_site: RunningSite) -> Iterator[tuple[Page, list[str]]]:
    context = signed_in(chromium, shared_site, "admin")
    context.add_cookies([{"name": "fairlead-theme", "value": request.param, "url": shared_site.url}])
    page = context.new_page()
    yield page, watch_troubles(page, shared_site.url)
    context.close()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_runs_clean_reads_well_and_fits(path: str, themed: tuple[Page, list[str]], shared_site: RunningSite) -> None:
    page, troubles = themed
    troubles.clear()
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(shared_site.url + path)
    wait_until(page, "document.documentElement.classList.contains('scripted')")
    if "/heatmap" in path:
        page.wait_for_selector("[data-heatmap][data-ready]")
    assert page.locator("h1").count() == 1
    assert findings(page) == []
    assert page.evaluate(CUT_OFF) == []
    assert page.evaluate("document.querySelectorAll('*').length") <= 2500
    page.set_viewport_size({"width": 380, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    assert page.evaluate(CUT_OFF) == []
    assert troubles == []


def test_pages_without_a_session_read_well_too(chromium: Browser, shared_site: RunningSite) -> None:
    context = chromium.new_context(viewport={"width": 380, "height": 800})
    page = context.new_page()
    for path in ("/login", "/login?token=flt_x", "/migrations/none"):
        page.goto(shared_site.url + path)
        assert findings(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 380
    context.close()


def test_a_small_picture_stays_in_its_frame_and_the_current_section_in_view(
    themed: tuple[Page, list[str]], shared_site: RunningSite
) -> None:
    page, _ = themed
    page.set_viewport_size({"width": 380, "height": 800})
    page.goto(f"{shared_site.url}/pools")
    inside = """one => {
      const frame = one.parentElement.getBoundingClientRect(), picture = one.getBoundingClientRect();
      return picture.left >= frame.left && picture.right <= frame.right;
    }"""
    assert page.locator(".minimap.small img").first.evaluate(inside)
    page.goto(f"{shared_site.url}/audit")
    wait_until(page, "document.documentElement.classList.contains('scripted')")
    assert page.locator(".sections [aria-current]").evaluate("one => one.getBoundingClientRect().right <= innerWidth")


def test_empty_lists_say_why_and_what_to_do(chromium: Browser) -> None:
    with running_site() as site:
        site.fake.world.pools_known = []
        context = signed_in(chromium, site)
        page = context.new_page()
        for path in ("/", "/pools", "/slo"):
            page.goto(site.url + path)
            assert "kubectl apply -f" in page.inner_text(".empty")
            assert findings(page) == []
        context.close()


def findings(page: Page) -> list[str]:
    """Serious and critical findings of axe, one line each."""
    page.evaluate(AXE)
    found = page.evaluate(
        """async () => (await axe.run(document, {resultTypes: ['violations']})).violations
            .filter(one => ['serious', 'critical'].includes(one.impact))
            .map(one => `${one.id}: ${one.nodes.slice(0, 3).map(node => node.html + ' ' + node.failureSummary).join(' | ')}`)"""
    )
    return [str(line) for line in found]

"""Pages of a pool whose name, and whose instances' names, are as long as the definition allows.

No element overflows, and names that begin alike can be told apart.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from fairlead_testing.fakes.public_data import decisions, loads, moves, pools, records, scaling, sessions, world
from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES, SLO_TTFT
from fairlead_testing.running.browser_site import RunningSite, findings, running_site, signed_in, sticking_out, wait_until
from fairlead_web.text.addresses import instance_path, pool_path

pytestmark = pytest.mark.browser

NAME = "llama-4-maverick-prod-eu-west-1-latency-class-a-blue"
POOL = f"default/{NAME}"
NAMES = [one.replace("chat", NAME) for one in INSTANCES[CHAT]]
PAGES = (
    "/",
    "/pools",
    pool_path(POOL),
    f"{pool_path(POOL)}/instances",
    f"{pool_path(POOL)}/heatmap",
    f"{pool_path(POOL)}/migrations",
    f"{pool_path(POOL)}/ring?add=1",
    instance_path(POOL, NAMES[1]),
    f"{instance_path(POOL, NAMES[1])}/explanation",
    "/sessions",
    "/migrations",
    "/migrations/m-0001",
    "/decisions",
    "/decisions/d-0004",
)
# Links to instances with what of each is to be seen: letters that are neither beyond the window nor cut off by a box
# around them. A table that is scrolled by itself has more to see.
SEEN = """() => [...document.querySelectorAll("main a[href*='/instances/']")].flatMap((link) => {
  const whole = link.textContent.trim();
  if (!link.offsetWidth || link.closest(".scroll-x, .scroll-y") || !whole.startsWith("NAME")) return [];
  const words = document.createTreeWalker(link, NodeFilter.SHOW_TEXT), letter = document.createRange();
  let seen = "";
  while (words.nextNode()) {
    let right = innerWidth;
    for (let box = words.currentNode.parentElement; box; box = box.parentElement) {
      if (["hidden", "clip"].includes(getComputedStyle(box).overflowX)) right = Math.min(right, box.getBoundingClientRect().right);
    }
    for (let at = 0; at < words.currentNode.length; at += 1) {
      letter.setStart(words.currentNode, at);
      letter.setEnd(words.currentNode, at + 1);
      if (letter.getBoundingClientRect().right <= right + 1) seen += words.currentNode.data[at];
    }
  }
  return [[whole, seen.trim()]];
})""".replace("NAME", NAME)


@pytest.fixture(scope="module")
def long_site() -> Iterator[RunningSite]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (decisions, loads, moves, pools, records, scaling, sessions, world):
            patch.setattr(module, "CHAT", POOL)
        patch.setitem(INSTANCES, POOL, NAMES)
        patch.setitem(SLO_TTFT, POOL, SLO_TTFT[CHAT])
        with running_site() as site:
            yield site


@pytest.fixture(scope="module")
def page(chromium: Browser, long_site: RunningSite) -> Iterator[Page]:
    context = signed_in(chromium, long_site, "admin")
    yield context.new_page()
    context.close()


def opened(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(address)
    wait_until(page, "document.documentElement.classList.contains('scripted')")
    if "/heatmap" in address:
        page.wait_for_selector("[data-heatmap][data-ready]")


@pytest.mark.parametrize("path", PAGES)
def test_long_names_fit_a_phone_and_are_told_apart_there(path: str, page: Page, long_site: RunningSite) -> None:
    opened(page, long_site.url + path, 380)
    found = page.evaluate(SEEN)
    told = {seen: whole for whole, seen in found}
    assert [(whole, seen) for whole, seen in found if told[seen] != whole or not seen] == []
    assert findings(page) == []
    assert sticking_out(page) == []


def test_long_names_beside_a_heatmap_are_told_apart_and_whole_for_screen_readers(page: Page, long_site: RunningSite) -> None:
    opened(page, f"{long_site.url}{pool_path(POOL)}/heatmap", 1280)
    rows = page.locator("[aria-labelledby=h-ranked] tr")
    for name in NAMES:
        assert rows.get_by_role("link", name=name, exact=True).count() == 1
        assert page.locator(f".heatmap-labels .name[title='{name}']").inner_text() == name
    told = {seen: whole for whole, seen in page.evaluate(SEEN)}
    assert set(told.values()) >= set(NAMES)
    panel = page.locator("[aria-labelledby=h-ranked]")
    assert panel.evaluate("one => one.scrollWidth <= one.clientWidth"), "the numbers are in sight"


def test_a_drain_is_in_sight_beside_long_names(page: Page, long_site: RunningSite) -> None:
    opened(page, f"{long_site.url}{pool_path(POOL)}/instances", 1280)
    panel = page.locator("#results")
    assert panel.evaluate("one => one.scrollWidth <= one.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280

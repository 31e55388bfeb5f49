"""No page cuts text, as a number without its last digits is another number, and shortens names only where room lacks.

Values have six digits, there are two roles, and names are as long as the definition allows.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from fairlead_testing.fakes.public_data import decisions, loads, moves, pools, records, scaling, sessions, world
from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES, SLO_TTFT
from fairlead_testing.running.browser_site import RunningSite, running_site, signed_in, wait_until
from fairlead_testing.running.every_page import addresses, furnish

pytestmark = pytest.mark.browser

WIDTHS = (320, 768, 1280, 1920)
NAME = "llama-4-maverick-prod-eu-west-1-latency-class-a-blue"
POOL = f"default/{NAME}"
NAMES = [one.replace("chat", NAME) for one in INSTANCES[CHAT]]
# Whole numbers have six digits, on the page and in what its tables and figures show of tokens.
SIX_DIGITS = """() => {
  const words = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const counted = ".num, .value, dd, td, figcaption strong, .badge, .notice strong";
  while (words.nextNode()) {
    const node = words.currentNode;
    if (!node.parentElement.closest(counted) || node.parentElement.closest("time, code, pre, a.mono, .mono, .name, form, svg")) continue;
    node.data = node.data.replace(/(^|\\s)\\d{1,3}(,\\d{3})?(?=\\s|$)/, "$1385,561");
  }
}"""
# Each piece of text, letter by letter where one end is beyond a box around it that hides what sticks out. What scrolls
# by itself has more to see. A name with its whole in a title may give way, but for its last letters.
CUT = """() => {
  const found = [], words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange();
  while (words.nextNode()) {
    const node = words.currentNode, owner = node.parentElement;
    if (!node.data.trim() || !owner.checkVisibility({visibilityProperty: true})) continue;
    if (owner.closest(".visually-hidden, svg, script, style, option, textarea, .skip")) continue;
    if (owner.matches(".name > span:first-child") || owner.closest("table.cards thead")) continue;
    range.selectNodeContents(node);
    for (const seen of range.getClientRects()) {
      if (seen.width < 1) continue;
      let cut = seen.right > innerWidth + 1 && !scrolls(owner) ? "the window" : null;
      for (let box = owner; box !== document.body && !cut; box = box.parentElement) {
        const style = getComputedStyle(box), edge = box.getBoundingClientRect();
        if (["auto", "scroll"].includes(style.overflowX) || ["auto", "scroll"].includes(style.overflowY)) break;
        if (style.overflowX !== "visible" && (seen.right > edge.right + 1 || seen.left < edge.left - 1)) cut = box.className || box.tagName;
        else if (style.overflowY !== "visible" && (seen.bottom > edge.bottom + 3 || seen.top < edge.top - 3)) cut = `${box.className}, in height`;
        const whole = box.title || box.closest("[title]"), number = /^[\\d.,]+/.test(node.data.trim());
        if (style.textOverflow === "ellipsis" && whole && !number) cut = null;
      }
      if (cut) { found.push(`"${node.data.trim().slice(0, 60)}" by ${cut}`); break; }
    }
  }
  const pen = document.createElement("canvas").getContext("2d");
  for (const box of document.querySelectorAll("input[placeholder]")) {
    const style = getComputedStyle(box), room = box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    pen.font = style.font;
    if (!box.value && box.checkVisibility() && pen.measureText(box.placeholder).width > room + 1) found.push(`placeholder "${box.placeholder}"`);
  }
  return [...new Set(found)];
  function scrolls(one) {
    for (let box = one; box; box = box.parentElement) if (["auto", "scroll"].includes(getComputedStyle(box).overflowX)) return true;
    return false;
  }
}"""
# Two pieces of text of which one lies on the other, by more than lines of one paragraph ever do.
OVERLAID = """() => {
  const words = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT), range = document.createRange(), seen = [];
  while (words.nextNode()) {
    const node = words.currentNode, owner = node.parentElement;
    if (!node.data.trim() || !owner.checkVisibility({visibilityProperty: true, opacityProperty: true})) continue;
    if (owner.closest(".visually-hidden, svg, script, style, option, textarea, select, .chart-plot, [data-heatmap], .name, table.cards thead")) continue;
    range.selectNodeContents(node);
    for (const one of range.getClientRects()) {
      const left = visible(one, owner);
      if (left.right - left.left > 1) seen.push([left, node.data.trim().slice(0, 40)]);
    }
  }
  seen.sort((one, other) => one[0].top - other[0].top);
  return [...new Set(seen.flatMap(([one, mine], place) => {
    const found = [];
    for (let next = place + 1; next < seen.length && seen[next][0].top < one.bottom; next++) {
      const [other, theirs] = seen[next];
      const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const high = Math.min(one.bottom, other.bottom) - other.top;
      if (wide > 3 && high > Math.min(one.bottom - one.top, other.bottom - other.top) * 0.5) found.push(`"${mine}" and "${theirs}"`);
    }
    return found;
  }))];
  function visible({left, right, top, bottom}, owner) {
    for (let box = owner; box; box = box.parentElement) {
      const {overflowX, position} = getComputedStyle(box), edge = box.getBoundingClientRect();
      if (position === "sticky") right = left; // it is to lie on what scrolls
      if (overflowX === "visible") continue;
      [left, right, top, bottom] = [Math.max(left, edge.left), Math.min(right, edge.right), Math.max(top, edge.top), Math.min(bottom, edge.bottom)];
    }
    return {left, right, top, bottom};
  }
}"""
# Shortened names whose box has room to their right: what lies beside them on their line leaves more than is hidden.
SHORTENED = """() => [...document.querySelectorAll(".name > span:first-child")].flatMap((head) => {
  if (!head.checkVisibility() || head.scrollHeight <= head.clientHeight + 4) return [];
  const name = head.parentElement, hidden = whole(head) - head.clientWidth;
  let box = name.parentElement;
  while (["inline", "inline-flex", "contents"].includes(getComputedStyle(box).display)) box = box.parentElement;
  const range = document.createRange(), style = getComputedStyle(box);
  range.selectNodeContents(box);
  const free = box.getBoundingClientRect().right - parseFloat(style.paddingRight) - range.getBoundingClientRect().right;
  return free > hidden + 16 ? [`${name.title}: ${Math.round(free)} px free, ${Math.round(hidden)} px hidden`] : [];
  function whole(one) {
    const probe = one.cloneNode(true);
    probe.setAttribute("class", "nowrap");
    Object.assign(probe.style, {position: "absolute", display: "inline", whiteSpace: "nowrap", maxInlineSize: "none"});
    one.parentElement.append(probe);
    const wide = probe.getBoundingClientRect().width;
    probe.remove();
    return wide;
  }
})"""


@pytest.fixture(scope="module")
def long_site() -> Iterator[RunningSite]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (decisions, loads, moves, pools, records, scaling, sessions, world):
            patch.setattr(module, "CHAT", POOL)
        patch.setitem(INSTANCES, POOL, NAMES)
        patch.setitem(SLO_TTFT, POOL, SLO_TTFT[CHAT])
        with running_site(clusters=True) as site:
            site.fake.world.roles_wanted = {POOL: {"prefill": 3, "decode": 5}}
            furnish(site.fake, POOL, NAMES[1])
            yield site


@pytest.fixture(scope="module")
def page(chromium: Browser, long_site: RunningSite) -> Iterator[Page]:
    context = signed_in(chromium, long_site, "admin")
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("path", addresses(POOL, NAMES[1]), ids=[one.split(".")[0] for one in addresses(CHAT, "instance")])
def test_no_text_is_cut_at_any_width(path: str, page: Page, long_site: RunningSite) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(long_site.url + path)
    wait_until(page, "document.documentElement.classList.contains('scripted')")
    if page.locator("[data-heatmap]").count():
        page.wait_for_selector("[data-heatmap][data-ready]")
        page.wait_for_selector("#explanation .why-figures")
    page.evaluate(SIX_DIGITS)
    assert_whole(page)


@pytest.mark.parametrize("path", ["/", f"/pools/{POOL}", f"/pools/{POOL}/slo", f"/pools/{POOL}/instances/{NAMES[1]}"])
def test_no_text_is_cut_while_figures_are_behind(path: str, page: Page, long_site: RunningSite) -> None:
    """Then each number over a range is shown with the time until which it is counted."""
    long_site.fake.world.behind = dict.fromkeys(INSTANCES, 75.0)
    try:
        page.goto(long_site.url + path)
        page.get_by_text("counted until").first.wait_for()
        assert_whole(page)
    finally:
        long_site.fake.world.behind = {}


def assert_whole(page: Page) -> None:
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        wait_until(page, f"innerWidth === {width}")
        assert page.evaluate(CUT) == [], f"{width} px wide"
        assert page.evaluate(SHORTENED) == [], f"{width} px wide"
        assert page.evaluate(OVERLAID) == [], f"{width} px wide"

"""No page cuts a number: digits that are missing make another one of it."""

import pytest
from playwright.sync_api import Page

from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.browser_site import RunningSite, wait_until
from fairlead_web.text.addresses import instance_path, pool_path

pytestmark = pytest.mark.browser

PAGES = ("/pools", "/keys", f"{pool_path(CHAT)}/heatmap", instance_path(CHAT, INSTANCES[CHAT][0]))
# Six digits with their unit, and a role before each name, where a pool of two roles has them.
LONGEST = """() => {
  for (const cell of document.querySelectorAll(".heat-ranks td.num > .nowrap")) cell.textContent = "385,561 tokens";
  for (const name of document.querySelectorAll(".heat-ranks tbody th")) name.insertAdjacentHTML("beforeend", ' <span class="muted">prefill</span>');
  for (const value of document.querySelectorAll(".stats .value")) if (/^[\\d,]+$/.test(value.textContent.trim())) value.textContent = "385,561";
}"""
# Numbers that end beyond a box around them which hides what sticks out. What is scrolled by itself has more to see.
CUT = """() => [...document.querySelectorAll("main .num, main .value, main dd, main button")].flatMap((cell) => {
  if (!cell.offsetWidth || cell.closest("thead, .scroll-x, .scroll-y, .heatmap-box, .visually-hidden")) return [];
  const range = document.createRange();
  range.selectNodeContents(cell);
  const seen = range.getBoundingClientRect();
  for (let box = cell; box && box !== document.body; box = box.parentElement) {
    const overflow = getComputedStyle(box).overflowX;
    if (["auto", "scroll"].includes(overflow)) return [];
    if (overflow !== "visible" && seen.right > box.getBoundingClientRect().right + 1) return [cell.textContent.trim().replace(/\\s+/g, " ")];
  }
  return seen.right > innerWidth + 1 ? [cell.textContent.trim()] : [];
})"""


@pytest.mark.parametrize("path", PAGES)
def test_no_number_is_cut_at_any_width(page: Page, site: RunningSite, path: str) -> None:
    for width in (320, 768, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{site.url}{path}")
        wait_until(page, "document.documentElement.classList.contains('scripted')")
        page.evaluate(LONGEST)
        assert page.evaluate(CUT) == [], f"{width} px wide"

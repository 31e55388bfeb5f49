"""Somebody who does a job at a page without a mouse. What is activated is counted."""

import time
from contextlib import suppress
from dataclasses import dataclass

from playwright.sync_api import ElementHandle, Locator, Page
from playwright.sync_api import Error as PlaywrightError

from fairlead_testing.waiting import PATIENCE_SECONDS

LONGEST_WAY = 400
"""Most presses of Tab from the start of a page, or of its content, to anything on it."""

_ANSWERED_MS = 20_000
"""How long an answer to what was pressed is waited for before it is pressed again."""

_BETWEEN = """(target) => {
  const now = document.activeElement, after = Node.DOCUMENT_POSITION_FOLLOWING;
  return [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")].filter((one) =>
    one.tabIndex >= 0 && !one.disabled && one.checkVisibility({ visibilityProperty: true })
    && now.compareDocumentPosition(one) & after && one.compareDocumentPosition(target) & after).length;
}"""
"""About how many presses of Tab are sure not to go past the target."""

FOCUS_SEEN = """() => {
  const one = document.activeElement, box = one.getBoundingClientRect(), style = getComputedStyle(one);
  const at = document.elementFromPoint(box.left + Math.min(box.width / 2, 20), box.top + box.height / 2);
  const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 || style.boxShadow !== "none";
  return one !== document.body && ring && box.height > 0 && (one.contains(at) || Boolean(at?.contains(one)));
}"""
"""Whether the focus is seen, and what has it is not covered."""


def come_to(page: Page, wanted: Locator, pressed: Locator | None = None) -> None:
    """Waits for what a link or a sent form leads to; asks again, by what the page offers, while the system is too busy.
    `pressed` is what was pressed, which has to be pressed again where the form is out of sight. Raises AssertionError
    with what the page says when it refuses.
    """
    refusals = "main :is(.field-problem, .notice.bad:not(#away), .error-body)"
    again = page.get_by_role("button", name="Send it again").or_(page.get_by_role("link", name="Try again"))
    again = again.or_(page.locator("form:has(> [data-kept]) button"))
    if pressed is not None:
        again = again.or_(page.locator("#main:has(> [data-kept])").locator(pressed))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        wanted.or_(page.locator(refusals)).first.wait_for()
        if wanted.count():
            return
        try:
            wanted.or_(again).first.wait_for(timeout=_ANSWERED_MS)  # a page may have come in part
        except PlaywrightError:
            raise AssertionError(page.inner_text("main")) from None
        assert time.monotonic() < deadline, page.inner_text("main")
        with suppress(PlaywrightError):  # it may be busy, or the page is just being replaced
            page.evaluate("css => { for (const one of document.querySelectorAll(css)) one.dataset.read = 'yes'; }", refusals)
            again.last.click(timeout=_ANSWERED_MS)
            wanted.or_(page.locator(f"{refusals}:not([data-read])")).first.wait_for(timeout=_ANSWERED_MS)


def until_at(page: Page, part: str) -> None:
    """Waits for a page with `part` in its address, also where one navigation takes the place of another."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while part not in page.url:
        assert time.monotonic() < deadline, page.url
        page.wait_for_timeout(25)
    page.wait_for_load_state()


@dataclass
class Person:
    """Goes by Tab, by arrow keys within a list of links, by the link that skips to the content where that is shorter,
    and sees where the focus is.
    """

    page: Page
    count: int = 0
    pressed: Locator | None = None

    def on(self, what: Locator) -> None:
        self._go_to(what)
        self.count += 1
        self.pressed = what.first
        self.page.keyboard.press("Enter")

    def sees(self, wanted: Locator) -> None:
        come_to(self.page, wanted, self.pressed)

    def tick(self, what: Locator) -> None:
        self._go_to(what)
        self.count += 1
        self.page.keyboard.press("Space")

    def write(self, where: Locator, text: str) -> None:
        self._go_to(where)
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.type(text)

    def newest_cell(self, surface: Locator) -> None:
        self._go_to(surface)
        self.count += 1
        for key in ("Home", "End", "Enter"):
            self.page.keyboard.press(key)

    def _go_to(self, what: Locator) -> None:
        self.sees(what.first)
        stop = what.first.evaluate_handle("one => one.closest('[data-arrows]')?.querySelector('a[tabindex=\"0\"]') ?? one").as_element()
        assert stop is not None
        self._tab_to(stop, what)
        for _ in range(LONGEST_WAY):
            if what.first.evaluate("one => one === document.activeElement || !one.closest('[data-arrows]')"):
                break
            self.page.keyboard.press("ArrowDown")
        assert what.first.evaluate("one => one === document.activeElement"), f"no way by arrow keys to {what}"

    def _tab_to(self, target: ElementHandle, what: Locator) -> None:
        if target.evaluate("one => document.activeElement === document.body && Boolean(one.closest('main'))"):
            self.page.keyboard.press("Tab")
            assert self.page.evaluate("document.activeElement.matches('a.skip')"), "the first Tab leads to the link to the content"
            self.page.keyboard.press("Enter")
        for _ in range(target.evaluate(_BETWEEN) - 1):
            self.page.keyboard.press("Tab")
        for _ in range(LONGEST_WAY):
            if target.evaluate("one => one === document.activeElement"):
                break
            self.page.keyboard.press("Tab")
        for _ in range(2):  # what came by itself may have moved the page below it
            if self.page.evaluate(FOCUS_SEEN):
                break
            self.page.keyboard.press("Shift+Tab")
            self.page.keyboard.press("Tab")
        assert target.evaluate("one => one === document.activeElement"), f"no way by Tab to {what}"
        assert self.page.evaluate(FOCUS_SEEN), f"the focus on {what} is not seen"

"""A person who works at a page without a mouse. The presses of keys are counted."""

import time
from contextlib import suppress
from dataclasses import dataclass

from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Locator, Page

from fairlead_testing.waiting import PATIENCE_SECONDS

LONGEST_WAY = 400
"""The maximum number of presses of Tab from the start of a page, or of its content, to anything on the page."""

_ANSWERED_MS = 20_000
"""The milliseconds for which the person waits for the page's answer before pressing the key again."""

_BETWEEN = """(target) => {
  const now = document.activeElement, after = Node.DOCUMENT_POSITION_FOLLOWING;
  return [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")].filter((one) =>
    one.tabIndex >= 0 && !one.disabled && one.checkVisibility({ visibilityProperty: true })
    && now.compareDocumentPosition(one) & after && one.compareDocumentPosition(target) & after).length;
}"""
"""A script that counts the focusable elements between the focus and the target.

This many presses of Tab do not pass the target.
"""

FOCUS_SEEN = """() => {
  const one = document.activeElement, box = one.getBoundingClientRect(), style = getComputedStyle(one);
  const at = document.elementFromPoint(box.left + Math.min(box.width / 2, 20), box.top + box.height / 2);
  const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 || style.boxShadow !== "none";
  return one !== document.body && ring && box.height > 0 && (one.contains(at) || Boolean(at?.contains(one)));
}"""
"""Whether the focused element has a visible focus ring and is not covered."""


def come_to(page: Page, wanted: Locator, pressed: Locator | None = None) -> None:
    """Wait for the page to which a link or a sent form leads. While the system is too busy, retry with the page's own
    controls.

    `pressed` is the control that was pressed; it is pressed again if its form is out of sight. Raises AssertionError
    with the page's message if the page refuses.
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
    """Wait for a page with `part` in its address, even if another navigation interrupts the first one."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while part not in page.url:
        assert time.monotonic() < deadline, page.url
        page.wait_for_timeout(25)
    page.wait_for_load_state()


@dataclass
class Person:
    """Moves by Tab, by arrow keys within a list of links, and by the skip link to the content if that way is shorter.

    It checks that the focus is visible.
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
        target = what.first
        self.sees(target)
        if not target.evaluate("one => Boolean(one.closest('[data-arrows]'))"):
            self._tab_to(target)
            return
        self._tab_to(target.locator("xpath=ancestor::*[@data-arrows]//a[@tabindex='0']").first)
        for _ in range(LONGEST_WAY):
            if target.evaluate("one => one === document.activeElement"):
                return
            self.page.keyboard.press("ArrowDown")
        raise AssertionError(f"no way by arrow keys to {what}")

    def _tab_to(self, target: Locator) -> None:
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
        assert target.evaluate("one => one === document.activeElement"), f"no way by Tab to {target}"
        assert self.page.evaluate(FOCUS_SEEN), f"the focus on {target} is not seen"

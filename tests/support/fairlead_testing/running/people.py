"""Somebody who does a job at a page without a mouse. What is activated is counted."""

from dataclasses import dataclass

from playwright.sync_api import Locator, Page

LONGEST_WAY = 400
"""Most presses of Tab from the start of a page, or of its content, to anything on it."""

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


def come_to(page: Page, wanted: Locator) -> None:
    """Waits for what a link or a sent form leads to; asks again, by what the page offers, while the system is too busy.
    Raises AssertionError with what the page says when it refuses.
    """
    refused = page.locator("main :is(.field-problem, .notice.bad, .error-body)")
    again = page.get_by_role("button", name="Send it again").or_(page.get_by_role("link", name="Try again"))
    wanted.or_(refused).first.wait_for()
    while not wanted.count():
        assert again.count(), page.inner_text("main")
        with page.expect_navigation():
            again.click()
        wanted.or_(refused).first.wait_for()


@dataclass
class Person:
    """Goes by Tab, by the link that skips to the content where that is shorter, and sees where the focus is."""

    page: Page
    count: int = 0

    def on(self, what: Locator) -> None:
        self._go_to(what)
        self.count += 1
        self.page.keyboard.press("Enter")

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
        come_to(self.page, target)
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
        assert target.evaluate("one => one === document.activeElement"), f"no way by Tab to {what}"
        assert self.page.evaluate(FOCUS_SEEN), f"the focus on {what} is not seen"

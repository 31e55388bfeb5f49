"""Lists that a page reads completely or up to a limit, and pages of a list that is already read."""

import pytest

from fairlead_client.resources.pages import Page
from fairlead_web.text.paging import first_of, part_of


class Numbers:
    """The numbers up to `count`, 100 to a page as the API gives them; `cursors` are the cursors of the calls."""

    def __init__(self, count: int, total: int | None = None) -> None:
        self._count = count
        self._total = total
        self.cursors: list[str | None] = []

    async def listed(self, cursor: str | None) -> Page[int]:
        self.cursors.append(cursor)
        until = min(int(cursor or 0) + 100, self._count)
        following = str(until) if until < self._count else None
        return Page(items=list(range(int(cursor or 0), until)), next_cursor=following, total=self._total)


@pytest.mark.parametrize(
    ("count", "most", "calls", "words"),
    [
        (0, 200, 1, ""),
        (50, 200, 1, ""),
        (200, 200, 2, ""),
        (260, 200, 2, "the first 200 of 260 pools"),
        (260, 150, 2, "the first 150 of 260 pools"),
        (180, 150, 2, "the first 150 of 180 pools"),
        (1_260, None, 13, ""),
    ],
)
async def test_a_list_is_read_no_further_than_is_taken_and_its_cut_is_told(count: int, most: int | None, calls: int, words: str) -> None:
    numbers = Numbers(count, total=count)
    taken = await first_of(numbers.listed, most)
    assert taken.items == list(range(count))[:most]
    assert (len(numbers.cursors), taken.cut_words("pools")) == (calls, words)


async def test_a_cut_list_that_nobody_counted_tells_what_of_it_is_known() -> None:
    assert (await first_of(Numbers(1_260).listed, 1_000)).cut_words("pools") == "the first 1,000 pools"


def test_pages_of_a_known_list_follow_each_other_and_end() -> None:
    seen, cursor, letters = "", None, list("abcdefgh")
    for expected in ("3", "6", None):
        page = part_of(letters, cursor, 3)
        seen, cursor = seen + "".join(page.items), page.next_cursor
        assert (page.total, cursor) == (8, expected)
    assert seen == "abcdefgh"


@pytest.mark.parametrize("cursor", ["8", "900", "-3", "WyJhIl0", "9" * 5_000])
def test_a_cursor_that_is_of_no_page_begins_at_the_first(cursor: str) -> None:
    assert part_of("abcdefgh", cursor, 3).items == ["a", "b", "c"]

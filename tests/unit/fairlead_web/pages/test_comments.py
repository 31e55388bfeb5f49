"""Comments on pages: written on a range or a plan, shown beside them as text, and deleted by their author."""

import re

from fairlead_testing.fakes.public_data.loads import CHAT, HOSTILE
from fairlead_testing.running.web_client import Visitor, visitor

PAGE = f"/pools/{CHAT}/comments"
RANGE = "?from=now-30m&to=now"


def texts(one: Visitor) -> list[str]:
    return [comment.text for comment in one.fake.comments.comments]


async def test_a_comment_on_the_shown_range_is_written_shown_in_it_and_marked_beside_the_audit_log() -> None:
    async with visitor("viewer") as viewer:
        assert f'href="{PAGE}?from=now-1h&amp;to=now"' in (await viewer.http.get(f"/pools/{CHAT}")).text
        answer = await viewer.submit(PAGE + RANGE, PAGE + RANGE, text="two\nlines")
        assert (answer.status_code, answer.headers["location"]) == (303, PAGE + RANGE)
        made = viewer.fake.comments.comments[-1]
        assert (made.text, made.author, (made.end - made.start).total_seconds()) == ("two\nlines", "viewer-person", 1800.0)
        for path in (PAGE, f"/pools/{CHAT}/audit", "/audit"):
            page = (await viewer.http.get(path)).text
            assert "<span>two<br>lines</span>" in page, path
            assert "&lt;img src=x" in page and HOSTILE not in page
        assert "two<br>lines" not in (await viewer.http.get(f"{PAGE}?from=now-3h&to=now-2h")).text


async def test_a_comment_on_a_plan_stands_on_its_page() -> None:
    async with visitor("operator") as operator:
        operator.fake.book.make(CHAT, 7, "ada")
        assert f'href="{PAGE}?plan=p-0001"' in (await operator.http.get("/plans/p-0001")).text
        await operator.submit(f"{PAGE}?plan=p-0001", f"{PAGE}?plan=p-0001", text="agreed")
        assert operator.fake.comments.comments[-1].plan == "p-0001"
        assert "<span>agreed</span>" in (await operator.http.get("/plans/p-0001")).text
        assert "agreed" in (await operator.http.get(f"{PAGE}?plan=p-0001")).text


async def test_only_its_author_and_admins_have_a_button_that_deletes_it() -> None:
    for role, may in (("viewer", False), ("operator", True), ("admin", True)):
        async with visitor(role) as one:
            assert ('name="delete" value="comment-0"' in (await one.http.get(PAGE)).text) is may
            answer = await one.submit(PAGE, PAGE, delete="comment-0")
            assert (answer.status_code, texts(one) == []) == ((303, True) if may else (403, False))


async def test_a_refused_comment_keeps_what_was_typed() -> None:
    async with visitor("viewer") as viewer:
        answer = await viewer.submit(PAGE, PAGE, text="x" * 1001)
    assert answer.status_code == 422
    assert "write 1 to 1,000 characters" in answer.text and re.search(r"x{1001}</textarea>", answer.text)

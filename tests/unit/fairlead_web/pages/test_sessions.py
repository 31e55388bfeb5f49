"""A session's page."""

from fairlead_testing.fakes.public_data.loads import CHAT, HOSTILE
from fairlead_testing.fakes.public_data.sessions import sessions
from fairlead_testing.running.web_client import NOW, visitor
from fairlead_web.text.addresses import session_path

SHARED = "Several conversations use this name"


async def test_the_page_of_a_name_that_several_conversations_use_says_so_and_other_pages_do_not() -> None:
    async with visitor() as visit:
        (shared,) = [one for one in sessions(NOW) if one.shared_at is not None]
        page = (await visit.http.get(session_path(shared.pool, shared.session))).text
        assert SHARED in page
        assert "nobody" in page
        assert SHARED not in (await visit.http.get(session_path(CHAT, HOSTILE))).text


async def test_a_decision_that_went_by_another_session_than_its_client_named_says_so() -> None:
    async with visitor() as visit:
        page = (await visit.http.get("/decisions/d-0004")).text
        assert "several conversations share that name" in page
        assert "default_user_id" in page
        assert "share that name" not in (await visit.http.get("/decisions/d-0003")).text

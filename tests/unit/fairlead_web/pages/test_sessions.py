"""Who holds a session, in the list and on its page."""

import re
from dataclasses import replace
from datetime import timedelta

from fairlead_testing.running.web_client import visitor
from fairlead_web.addresses import session_path


async def test_a_session_of_a_gone_instance_is_held_by_nobody() -> None:
    async with visitor() as one:
        listed = one.fake.world.sessions()
        listed[0] = replace(listed[0], instance_gone_at=one.fake.world.now - timedelta(minutes=2))
        index = (await one.http.get("/sessions")).text
        page = (await one.http.get(session_path(listed[0].pool, listed[0].session))).text
    rows = re.findall(r"<tr data-key=.*?</tr>", index, re.DOTALL)
    assert [">gone<" in row for row in rows[:2]] == [True, False]
    assert re.search(rf"Held by</dt>.*?nobody.*?{listed[0].instance} is gone", page, re.DOTALL)
    newest = re.findall(r"<td data-label=\"Until\".*?</td>", page, re.DOTALL)[0]
    assert ">gone<" in newest
    assert ">now<" not in newest

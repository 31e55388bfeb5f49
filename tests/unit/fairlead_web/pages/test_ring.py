"""The ring's page."""

import html
import re

import pytest

from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.web_client import visitor
from fairlead_web.pages import ring


async def test_shares_are_told_with_what_the_policy_makes_of_them() -> None:
    async with visitor() as viewer:
        page = (await viewer.http.get("/pools/default/chat/ring")).text
        assert all(name in page for name in INSTANCES[CHAT])
        assert "places every request by the ring" in page
        assert "Keys that would move" not in page


async def test_of_many_instances_a_page_lists_some_and_leads_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "SHOWN_ROWS", 3)
    async with visitor() as viewer:
        listed: list[str] = []
        for row in ("", "?row=4", "?row=7"):
            page = (await viewer.http.get(f"/pools/default/chat/ring{row}")).text
            assert ("Larger shares" in page, "Smaller shares" in page) == (row != "", row != "?row=7")
            listed += re.findall(r'data-label="Instance">\s*<a[^>]*>([^<]+)</a>', page)
        assert sorted(listed) == sorted(INSTANCES[CHAT])


async def test_a_change_is_asked_about_by_the_address() -> None:
    async with visitor() as viewer:
        page = (await viewer.http.get("/pools/default/chat/ring?add=1")).text
        assert "Sessions that would move" in page
        assert "new-1" in page


@pytest.mark.parametrize(
    ("query", "words"), [("add=some", "is not a whole number"), ("add=999", "write 0 to 256"), ("remove=nobody", "on the ring")]
)
async def test_a_question_that_cannot_be_asked_keeps_the_ring_and_says_why(query: str, words: str) -> None:
    async with visitor() as viewer:
        answer = await viewer.http.get(f"/pools/default/chat/ring?{query}")
        assert answer.status_code == 422
        assert words in answer.text
        assert "Share of the keys" in answer.text


async def test_another_weight_of_an_instance_is_planned_beside_its_share() -> None:
    name = INSTANCES[CHAT][0]
    async with visitor("operator") as viewer:
        page = (await viewer.http.get(f"/pools/default/chat/ring?instance={name}")).text
        assert f"Plan another weight of {name}" in page
        refused = await viewer.submit("/pools/default/chat/ring/plans", instance=name, weight="heavy")
        assert (refused.status_code, "Write a number such as 0.5" in refused.text) == (422, True)
        assert f'<option value="{name}" selected>' in refused.text
        made = await viewer.submit("/pools/default/chat/ring/plans", instance=name, weight="0.5")
        assert made.status_code == 303
        shown = (await viewer.http.get(made.headers["location"])).text
        assert "metadata.annotations.fairlead.dev/weight" in shown
        asked = "add=2&anchors=80&row=1"
        page = html.unescape((await viewer.http.get(f"/pools/default/chat/ring?{asked}")).text)
        assert f"/pools/default/chat/ring?{asked}&instance={name}#weight" in page
        form = re.search(r'method="post" data-once action="([^"]+)"', page)
        assert form
        refused = await viewer.submit(form[1], instance=name, weight="heavy")
        assert 'name="add" type="number" inputmode="numeric" min="0" max="256" value="2"' in " ".join(refused.text.split())
    async with visitor("viewer") as viewer:
        assert "This needs the role operator" in (await viewer.http.get("/pools/default/chat/ring")).text

"""The page of a tree: it says which parts it leaves out, and stays small however large a tree is."""

import re
from dataclasses import replace

import pytest

from fairlead_testing.fakes.public_data import trees
from fairlead_testing.running.web_client import NOW, visitor
from fairlead_web.drawing.timelines import DRAWN
from fairlead_web.pages.tree import TURNS

PAGE = "/trees/default/chat/conversation-0001"
MOST_ELEMENTS = 2500


async def test_the_tree_of_a_keys_sessions_has_the_keys_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as visit:
        made = trees.tree("default/chat", "conversation-0001", NOW)
        assert "of the key" not in (await visit.http.get(PAGE)).text
        monkeypatch.setattr(trees, "tree", lambda *_: replace(made, key="team <a>"))
        assert "of the key team &lt;a&gt;" in (await visit.http.get(PAGE)).text


async def test_a_tree_of_many_turns_says_what_is_left_out_and_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor("viewer") as viewer:
        whole = (await viewer.http.get(PAGE)).text
        monkeypatch.setattr(trees, "TURNS", 100)
        many = " ".join((await viewer.http.get(PAGE)).text.split())
    assert "Drawn:" not in whole
    assert f"Drawn: {DRAWN} of 400 turns, the newest" in many
    assert f"the newest {TURNS}<" in many
    assert len(re.findall(r"<[a-z]", many)) <= MOST_ELEMENTS


async def test_a_session_without_recorded_requests_has_a_page_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor("viewer") as viewer:
        bare = replace(trees.tree("default/chat", "s", NOW), sessions=[], sessions_in_all=0, tasks=[], turns=[])
        monkeypatch.setattr(trees, "tree", lambda *_: bare)
        answer = await viewer.http.get(PAGE)
    assert answer.status_code == 200
    assert "No request of this session is recorded" in answer.text and "FAIRLEAD_RECORD_TRAFFIC" in answer.text
    assert "<table" not in answer.text, "no table without a row"


async def test_where_a_session_came_from_stands_apart_from_where_it_is() -> None:
    async with visitor("viewer") as viewer:
        page = (await viewer.http.get(PAGE)).text
    assert re.search(r"</a> <span class=\"muted\">from ", page)


async def test_a_list_of_tasks_says_how_many_of_them_it_shows() -> None:
    async with visitor("viewer") as viewer:
        page = " ".join((await viewer.http.get("/pools/default/chat/tasks")).text.split())
    tasks = page[page.index('id="tasks"') : page.index('id="thinking"')]
    assert f"the {tasks.count('<tr') - 1} with the newest turns" in tasks

"""Data for the frame of a page is fetched at the same time as the page's content."""

import asyncio
import gc
from typing import Any

import pytest

from fairlead_client.client import ControlApi
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.problems import Problem
from fairlead_testing.running.web_client import visitor
from fairlead_testing.waiting import PATIENCE_SECONDS


async def test_the_frame_is_asked_for_while_the_content_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pools, whoami, sessions = ControlApi.pools, ControlApi.whoami, ControlApi.sessions
    asked = {"pools": asyncio.Event(), "whoami": asyncio.Event()}

    async def note_pools(self: ControlApi, **given: Any) -> Any:
        asked["pools"].set()
        return await pools(self, **given)

    async def note_whoami(self: ControlApi) -> Any:
        asked["whoami"].set()
        return await whoami(self)

    async def after_them(self: ControlApi, query: Any) -> Any:
        async with asyncio.timeout(PATIENCE_SECONDS):
            for one in asked.values():
                await one.wait()
        return await sessions(self, query)

    monkeypatch.setattr(ControlApi, "pools", note_pools)
    monkeypatch.setattr(ControlApi, "whoami", note_whoami)
    monkeypatch.setattr(ControlApi, "sessions", after_them)
    async with visitor() as one:
        assert (await one.http.get("/sessions")).status_code == 200


async def test_a_page_without_content_leaves_no_question_open(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: left.append(context))

    async def fails(self: ControlApi, **_: Any) -> Any:
        raise ApiProblem(Problem(type="about:blank", title="Away", status=503, detail="The database does not answer."))

    monkeypatch.setattr(ControlApi, "pools", fails)
    async with visitor() as one:
        assert (await one.http.get("/pools/team/none/heatmap")).status_code == 404
        assert (await one.http.get("/pools/team/none/heatmap.png")).status_code == 404
        await asyncio.sleep(0)
        gc.collect()
        assert asyncio.all_tasks() == {asyncio.current_task()}
    assert left == []


async def test_what_is_found_while_somebody_types_asks_for_no_frame() -> None:
    async with visitor() as one:
        one.fake.requests.clear()
        answer = await one.http.get("/search?q=chat", headers={"fairlead-regions": "found"})
        assert (answer.status_code, "chat" in answer.text) == (200, True)
        asked = [path for _, path in one.fake.requests]
        assert asked == ["/v1/whoami", "/v1/search", "/v1/pools"], "who asks, as regions are shared, what is found, and whose pages are"

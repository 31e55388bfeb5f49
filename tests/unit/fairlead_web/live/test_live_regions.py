"""Regions that a page fetches again while somebody looks at it: rendered once for all, for signed-in people only."""

import asyncio
import re
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from html import unescape

import pytest

from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.web_client import NOW, visitor
from fairlead_web.text.addresses import instance_path, session_path


async def test_a_region_is_rendered_once_for_all_who_look_at_it() -> None:
    async with visitor() as operator:
        operator.fake.requests.clear()
        asks = [operator.http.get("/", headers={"fairlead-regions": "totals"}) for _ in range(10)]
        bodies = {answer.text for answer in await asyncio.gather(*asks)}
        assert len(bodies) == 1
        asked = Counter(path for _, path in operator.fake.requests)
        assert asked["/v1/pools"] == 1
        assert asked["/v1/whoami"] == 10, "everyone is known to the API before they are given a shared answer"


async def test_a_shared_region_is_for_people_with_a_session_only() -> None:
    async with visitor() as operator:
        assert (await operator.http.get("/", headers={"fairlead-regions": "totals"})).status_code == 200
        operator.fake.tokens.pop("operator-token")
        refused = await operator.http.get("/", headers={"fairlead-regions": "totals", "hx-request": "true"})
        assert refused.status_code == 401
        assert "stat" not in refused.text


async def test_an_open_page_keeps_its_range_while_its_pool_grows_older(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of a young pool shows its life so far; parts that come later are of the range that its charts have."""
    async with visitor() as operator:
        known, ages = operator.fake.world.pool, [10]
        monkeypatch.setattr(operator.fake.world, "pool", lambda pool: replace(known(pool), created_at=NOW - timedelta(minutes=ages[-1])))
        page = (await operator.http.get(f"/pools/{CHAT}")).text
        ages.append(40)
        live = re.search(r'data-live-stream hidden\s+data-page="([^"]+)"', page)
        assert live is not None
        later = (await operator.http.get(unescape(live[1]), headers={"fairlead-regions": "status"})).text
        assert "Last 15 min" in page
        assert "Last 15 min" in later


async def test_a_range_that_does_not_move_is_not_called_live() -> None:
    async with visitor() as operator:
        fixed = (await operator.http.get("/migrations?from=2026-11-21T08:00:00Z&to=2026-11-21T09:00:00Z")).text
        assert "Fixed range" in fixed
        assert "live-pill" not in fixed
        assert "live-pill" in (await operator.http.get("/migrations?from=now-6h")).text


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/", {"starts", "permalink", "range-steps"}),
        ("/sessions", {"results"}),
        ("/rejections", {"results"}),
        (f"/pools/{CHAT}/heatmap", {"permalink", "range-steps"}),
        (f"/pools/{CHAT}", {"mix", "routing", "present"}),
        (instance_path(CHAT, INSTANCES[CHAT][1]), {"why", "held", "known", "moves", "chosen"}),
    ],
)
async def test_what_a_live_page_says_of_the_present_is_told_anew_as_time_passes(path: str, parts: set[str]) -> None:
    async with visitor() as operator:
        page = (await operator.http.get(path)).text
        topics = dict(re.findall(r'<[^>]*\bid="([^"]+)"[^>]*data-live-refresh="([^"]*)"', page))
        assert {name for name in parts if "tick" in topics.get(name, "").split()} == parts
        told = (await operator.http.get(path, headers={"fairlead-regions": " ".join(parts)})).text
        assert set(re.findall(r'<hx-partial hx-target="#([^"]+)"', told)) == parts
        assert "Not available now" not in told


async def test_a_sessions_holder_its_homes_and_its_migrations_come_from_one_reading() -> None:
    async with visitor() as operator:
        world = operator.fake.world
        session = next(one for one in world.sessions() if one.pool == CHAT and one.instance and "img" not in one.session)
        path = session_path(CHAT, session.session)
        page = (await operator.http.get(path)).text
        topics = dict(re.findall(r'<[^>]*\bid="([^"]+)"[^>]*data-live-refresh="([^"]*)"', page))
        assert topics["held"] == topics["holders"] == topics["migrations"] == "migrations tick"
        target = next(one for one in INSTANCES[CHAT] if one != session.instance)
        moved = replace(session, instance=target, bound_at=NOW, migrations=session.migrations + 1, version=session.version + 1)
        world._sessions[world._sessions.index(session)] = moved
        told = (await operator.http.get(path, headers={"fairlead-regions": "held holders migrations"})).text
        held, holders = (told.split(f'hx-target="#{name}"')[1].split("</hx-partial>")[0] for name in ("held", "holders"))
        assert f"{target}</a>" in held
        assert f"binding version {moved.version}" in held
        assert "now</span>" in holders


async def test_forms_are_told_what_is_in_force_apart_from_their_fields() -> None:
    async with visitor() as operator:
        operator.fake.world.desired[CHAT] = 10
        told = (await operator.http.get(f"/pools/{CHAT}", headers={"fairlead-regions": "present"})).text
        assert '<data data-name="replicas" value="10">' in told
        assert "csrf" not in told
        assert '<p data-form="change-scale">' in told
        assert "data-form=" not in (await operator.http.get(f"/pools/{CHAT}")).text, "with the page they come in its fields"

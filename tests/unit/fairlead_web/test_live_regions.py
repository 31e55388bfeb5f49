"""Regions that a page fetches again while somebody looks at it: rendered once for all, for signed-in people only."""

import asyncio
from collections import Counter

from fairlead_testing.running.web_client import visitor


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


async def test_a_range_that_does_not_move_is_not_called_live() -> None:
    async with visitor() as operator:
        fixed = (await operator.http.get("/migrations?from=2026-11-21T08:00:00Z&to=2026-11-21T09:00:00Z")).text
        assert "Fixed range" in fixed
        assert "live-pill" not in fixed
        assert "live-pill" in (await operator.http.get("/migrations?from=now-6h")).text

"""The list of a pool's instances, and the page of one."""

import re

from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.web_client import visitor


async def test_instances_of_two_roles_can_be_sorted_by_them_and_a_decode_instance_says_where_its_decisions_are() -> None:
    async with visitor() as one:
        assert "sort=role" not in (await one.http.get("/pools/default/chat/instances")).text
        one.fake.world.roles_wanted[CHAT] = {"prefill": 2, "decode": 6}
        rows = (await one.http.get("/pools/default/chat/instances?sort=role")).text
        assert re.findall(r'data-label="Role">(\w+)<', rows) == ["prefill"] * 2 + ["decode"] * 6
        page = (await one.http.get(f"/pools/default/chat/instances/{INSTANCES[CHAT][7]}?from=now-2d&to=now-1d")).text
        assert "listed at the instance that computes the prompt" in " ".join(page.split())

"""The list of a pool's instances, and the page of one."""

import re
from dataclasses import replace

from fairlead_client.resources.instances import CacheKnowledge
from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.web_client import visitor
from fairlead_web.pages.instances import cache_row


async def test_instances_of_two_roles_can_be_sorted_by_them_and_a_decode_instance_says_where_its_decisions_are() -> None:
    async with visitor() as one:
        assert "sort=role" not in (await one.http.get("/pools/default/chat/instances")).text
        one.fake.world.roles_wanted[CHAT] = {"prefill": 2, "decode": 6}
        rows = (await one.http.get("/pools/default/chat/instances?sort=role")).text
        assert re.findall(r'data-label="Role">(\w+)<', rows) == ["prefill"] * 2 + ["decode"] * 6
        page = (await one.http.get(f"/pools/default/chat/instances/{INSTANCES[CHAT][7]}?from=now-2d&to=now-1d")).text
        assert "listed at the instance that computes the prompt" in " ".join(page.split())


def test_a_cache_is_told_in_words_with_why_and_how_often_it_was_known_exactly() -> None:
    heard = CacheKnowledge(
        router="r",
        state="current",
        blocks=5,
        lag_seconds=0.01,
        gaps=1,
        batches_lost=3,
        restarts=0,
        answered=4,
        exact=3,
        believed_tokens=90,
        cached_tokens=100,
        wrong_tokens=10,
    )
    row = cache_row(heard)
    assert (row.word, row.why) == ("by KV events", "All that it published was heard. Batches were missing 1 time, 3 of them for good.")
    assert (row.exact_share, row.off_share, row.is_followed) == (0.75, 0.1, True)
    silent = cache_row(replace(heard, state="silent", gaps=0, answered=0, cached_tokens=0))
    assert (silent.word, silent.why) == ("by own history", "It publishes no KV events.")
    assert (silent.exact_share, silent.off_share, silent.is_followed) == (None, None, False)
    assert cache_row(replace(heard, state="from a newer router", gaps=0)).word == "from a newer router"


async def test_each_instance_of_the_list_can_be_drained_by_those_who_may() -> None:
    name = INSTANCES[CHAT][1]
    async with visitor() as operator:
        page = (await operator.http.get("/pools/default/chat/instances")).text
        assert f'aria-label="Drain {name}"' in page
        assert f'formaction="/pools/default/chat/instances/{name}/plans"' in page
    async with visitor("viewer") as one:
        assert "Drain…" not in (await one.http.get("/pools/default/chat/instances")).text

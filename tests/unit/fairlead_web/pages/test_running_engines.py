"""The pages of a pool whose engines run already: they offer nothing that nobody here can do."""

from collections.abc import AsyncIterator

import pytest

from fairlead_testing.fakes.public_data.loads import CHAT, CODE, INSTANCES
from fairlead_testing.running.web_client import Visitor, visitor

FILE = "/srv/fairlead/pool.yaml"


@pytest.fixture
async def one() -> AsyncIterator[Visitor]:
    async with visitor("admin") as made:
        made.fake.world.engines_files[CHAT] = FILE
        yield made


async def test_a_pools_page_names_the_file_and_leaves_out_what_needs_instances_made(one: Visitor) -> None:
    page = (await one.http.get("/pools/default/chat")).text
    assert FILE in page
    for present in ("change-policy", "change-slo", "change-early-rejection", "change-ring"):
        assert f'id="{present}"' in page
    for absent in ('id="change-scale"', 'id="change-scaling"', 'id="change-rollout"', 'id="h-rollout"', "/pools/default/chat/scaling"):
        assert absent not in page
    other = (await one.http.get(f"/pools/{CODE}")).text
    assert 'id="h-rollout"' in other, "another pool has all of it"


async def test_an_instances_page_promises_no_successor(one: Visitor) -> None:
    page = " ".join((await one.http.get(f"/pools/default/chat/instances/{INSTANCES[CHAT][0]}")).text.split())
    assert "Drain…" in page
    assert "goes on running" in page
    for absent in ("Drain and replace", "not replaced", " restart"):
        assert absent not in page


async def test_a_schedule_is_offered_to_other_pools_only(one: Visitor) -> None:
    form = (await one.http.get("/schedules")).text.partition("New schedule")[2]
    assert f'<option value="{CODE}">' in form
    assert f'<option value="{CHAT}">' not in form
    one.fake.world.engines_files[CODE] = FILE
    page = (await one.http.get("/schedules")).text
    assert "New schedule" not in page

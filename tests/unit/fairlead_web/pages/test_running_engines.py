"""The pages of a pool whose engines were started by others: they offer no action that Fairlead cannot do."""

import re
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


async def test_an_engine_is_added_and_taken_out_by_plans(one: Visitor) -> None:
    name = INSTANCES[CHAT][0]
    added = {"url": "http://10.0.0.9:8000", "name": "engine-9", "weight": "2"}
    for path, form, named in (
        ("/pools/default/chat/plans", added, ("engine-9", "http://10.0.0.9:8000")),
        (f"/pools/default/chat/instances/{name}/plans", {}, (name, f"http://{name}:8000")),
    ):
        made = await one.submit(path, kind="engines", **form)
        changes = (await one.http.get(made.headers["location"])).text.partition("What changes")[2].partition("What it does")[0]
        assert [words for words in named if words not in changes] == []
    refused = await one.submit("/pools/default/chat/plans", kind="engines", action="add", url="10.0.0.9")
    assert refused.status_code == 422
    assert "write http://HOST:PORT" in refused.text
    assert 'value="10.0.0.9"' in refused.text


async def test_an_engine_is_taken_out_from_its_page_and_its_row_of_the_list(one: Visitor) -> None:
    for path in (f"/instances/{INSTANCES[CHAT][0]}", "/instances"):
        page = (await one.http.get(f"/pools/{CHAT}{path}")).text
        assert "Remove…" in page
        assert f"/pools/{CHAT}/instances/{INSTANCES[CHAT][0]}/plans" in page
        assert "Remove…" not in (await one.http.get(f"/pools/{CODE}{path.replace(INSTANCES[CHAT][0], INSTANCES[CODE][0])}")).text


async def test_the_page_of_a_pool_with_very_many_engines_stays_small(one: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(INSTANCES, CHAT, [f"{'inference-engine-' * 3}{number:03}" for number in range(500)])
    for path in ("", "/instances"):
        page = (await one.http.get(f"/pools/{CHAT}{path}")).text
        assert len(re.findall(r"<[a-z]", page)) <= 2_500


async def test_an_instances_page_promises_no_successor(one: Visitor) -> None:
    page = " ".join((await one.http.get(f"/pools/default/chat/instances/{INSTANCES[CHAT][0]}")).text.split())
    assert "Drain…" in page
    assert "goes on running" in page
    for absent in ("Drain and replace", "not replaced", " restart"):
        assert absent not in page


async def test_a_page_of_a_pool_that_adopted_pods_names_their_labels_and_leaves_the_same_out() -> None:
    async with visitor("admin") as one:
        one.fake.world.selectors[CHAT] = "app=vllm"
        page = (await one.http.get("/pools/default/chat")).text
        assert "app=vllm" in page
        for absent in ('id="change-scale"', 'id="change-scaling"', 'id="h-rollout"', 'id="change-engines"'):
            assert absent not in page
        instance = " ".join((await one.http.get(f"/pools/default/chat/instances/{INSTANCES[CHAT][0]}")).text.split())
        assert "goes on running" in instance
        assert "Drain and replace" not in instance
        one.fake.world.scale_targets[CHAT] = "Deployment vllm"
        page = (await one.http.get("/pools/default/chat")).text
        assert "Deployment vllm" in page
        for present in ('id="change-scale"', 'id="change-scaling"'):
            assert present in page
        for absent in ('id="h-rollout"', 'id="change-rollout"', 'id="change-ratio"'):
            assert absent not in page


async def test_a_schedule_is_offered_to_other_pools_only(one: Visitor) -> None:
    form = (await one.http.get("/schedules")).text.partition("New schedule")[2]
    assert f'<option value="{CODE}">' in form
    assert f'<option value="{CHAT}">' not in form
    one.fake.world.engines_files[CODE] = FILE
    page = (await one.http.get("/schedules")).text
    assert "New schedule" not in page

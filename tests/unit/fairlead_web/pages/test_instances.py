"""The list of a pool's instances, and the page of one."""

import re
from dataclasses import replace

import pytest

from fairlead.instances import InstanceState
from fairlead_client.resources.figures import FiguresByInstance, InstanceFigures
from fairlead_client.resources.instances import CacheKnowledge
from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.web_client import NOW, Visitor, visitor
from fairlead_web.pages.instances import cache_row

LIST = "/pools/default/chat/instances"


def grown(one: Visitor, monkeypatch: pytest.MonkeyPatch, count: int = 256) -> list[str]:
    """Return the names of a pool's many instances.

    Number 200 is lost, number 230 has most to prefill, and each is on a node of its own.
    """
    serving = replace(one.fake.world.instances(CHAT)[0], state=InstanceState.SERVING, reason="Ready", pending_prefill_tokens=7)
    found = [replace(serving, id=f"chat-{number:03}", node=f"node-{number // 10}") for number in range(count)]
    if count > 230:
        found[200] = replace(found[200], state=InstanceState.LOST, reason="PodFailed", node="far-node")
        found[230] = replace(found[230], pending_prefill_tokens=90_000, node="far-node")
    monkeypatch.setattr(one.fake.world, "instances", lambda pool: found)
    return [each.id for each in found]


def rows(page: str) -> list[str]:
    return re.findall(r'<tr data-key="([^"]+)"', page)


def told(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


async def test_a_lost_instance_beyond_the_first_hundred_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as one:
        grown(one, monkeypatch)
        lost = (await one.http.get(f"{LIST}?state=Lost")).text
        assert rows(lost) == ["chat-200"]
        assert "1 of 256 instances" in told(lost)
        assert rows((await one.http.get(f"{LIST}?q=far-node")).text) == ["chat-200", "chat-230"]
        nothing = (await one.http.get(f"{LIST}?q=no-such-node")).text
        assert "No instance matches" in nothing
        assert "0 of 256 instances" in told(nothing)


async def test_the_hottest_of_all_instances_is_the_first_and_a_chip_counts_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as one:
        grown(one, monkeypatch)
        page = (await one.http.get(f"{LIST}?sort=pending")).text
        assert rows(page)[0] == "chat-230"
        assert "256 instances" in told(page)
        assert "Lost 1 Serving 255" in told(page)


async def test_a_list_of_many_instances_goes_on_page_by_page_with_its_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as one:
        names, address, seen = grown(one, monkeypatch), f"{LIST}?state=Serving&sort=state", list[list[str]]()
        for _ in range(3):
            page = (await one.http.get(address)).text
            seen.append(rows(page))
            assert f"{len(seen[-1])} of 255 shown" in told(page)
            following = re.search(r'href="([^"]+)" rel="next"', page)
            address = following[1].replace("&amp;", "&") if following else ""
        assert [len(each) for each in seen] == [100, 100, 55]
        assert [name for each in seen for name in each] == [name for name in names if name != "chat-200"]
        assert address == ""
        assert rows((await one.http.get(f"{LIST}?cursor=WyJjaGF0Il0")).text) == names[:100], "a cursor of an older page"


async def test_the_fullest_page_of_instances_keeps_to_its_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor("admin") as one:
        grown(one, monkeypatch)
        one.fake.requests.clear()
        page = (await one.http.get(LIST)).text
        assert len(rows(page)) == 100
        assert len(re.findall(r"<[a-z]", page)) <= 2_500
        assert [path for _, path in one.fake.requests].count("/v1/pools/default/chat") == 1
        assert "/v1/pools/default/chat/instances" not in [path for _, path in one.fake.requests], "the pool's answer has them"


async def test_the_list_has_the_figures_of_its_range_and_the_instance_page_the_same() -> None:
    async with visitor() as one:
        for start in ("now-15m", "now-6h", "now-2d"):
            one.fake.requests.clear()
            page = (await one.http.get(f"{LIST}?from={start}&to=now")).text
            asked = [path for _, path in one.fake.requests]
            assert asked.count("/v1/pools/default/chat/instance-figures") == 1, "one read for all rows"
            assert not any(path.endswith("/figures") for path in asked)
            for name in INSTANCES[CHAT][:2]:
                row = page[page.index(f'data-key="{name}"') :].partition("</tr>")[0]
                alone = told((await one.http.get(f"{LIST}/{name}?from={start}&to=now")).text)
                requests = re.search(r"Requests ([\d,]+) sent to it", alone)
                assert requests and f"sent: {requests[1]}" in row
        assert "last 5 min" not in told(page)


async def test_the_slowest_instance_of_the_range_comes_first_and_one_without_requests_last(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as one:
        grown(one, monkeypatch, count=3)
        now = NOW
        in_time = {"chat-001": 90, "chat-002": 10}
        found = FiguresByInstance(
            pool="default/chat",
            start=now,
            end=now,
            instances={
                name: InstanceFigures(start=now, end=now, sent=100, first_tokens=100, ttft_in_time=good, prompt_tokens=100, hit_tokens=good)
                for name, good in in_time.items()
            },
        )
        monkeypatch.setattr(one.fake.world, "figures_by_instance", lambda pool, start, end: found)
        assert rows((await one.http.get(f"{LIST}?sort=ttft")).text) == ["chat-002", "chat-001", "chat-000"]
        assert rows((await one.http.get(f"{LIST}?sort=hits")).text) == ["chat-001", "chat-002", "chat-000"]


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
    assert (row.word, row.why) == ("by KV events", "All its KV events were received. Batches were missing 1 time, 3 of them for good.")
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


async def test_an_engine_that_makes_no_progress_is_told_on_its_page_and_on_no_other() -> None:
    async with visitor() as one:
        stalled = (await one.http.get(f"/pools/default/chat/instances/{INSTANCES[CHAT][3]}")).text
        assert "<strong>EngineStalled</strong>" in stalled
        assert "by 2 routers, for 42" in " ".join(stalled.split())
        assert "EngineStalled" not in (await one.http.get(f"/pools/default/chat/instances/{INSTANCES[CHAT][4]}")).text

"""Other clusters, seen from this one: each has its own token, none delays the others, none is forgotten."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead.errors import InvalidInput
from fairlead_client.client import ControlApi
from fairlead_process.environment import read
from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.fakes.public_data.world import World
from fairlead_web.live import clusters
from fairlead_web.live.clusters import (
    LARGEST_ANSWER,
    MOST_POOLS,
    UNSIGNED,
    ClusterAddress,
    Clusters,
    ClusterSettings,
    odd,
    read_clusters,
)
from fairlead_web.pages.clusters import row_of

START = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
BERLIN = ClusterAddress(name="berlin", url="https://berlin.example.com", api="https://berlin.example.com")
TOKYO = ClusterAddress(name="tokyo", url="https://tokyo.example.com/fairlead", api="http://api.tokyo:8080")


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def looking(
    tmp_path: Path, clock: Clock, transports: dict[str, httpx.AsyncBaseTransport], tokens: tuple[str, ...] = ("berlin", "tokyo")
) -> Clusters:
    """Return clusters whose addresses lead to these transports."""
    for name in tokens:
        (tmp_path / name).write_text("viewer-token\n")
    settings = ClusterSettings(clusters=(BERLIN, TOKYO), tokens_dir=str(tmp_path))
    return Clusters(settings, clock, lambda url: ControlApi(url, transport=transports[url]))


def fake(clock: Callable[[], datetime]) -> tuple[FakePublicApi, httpx.ASGITransport]:
    api = FakePublicApi(World(now=START), clock=clock)
    return api, httpx.ASGITransport(api.app)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("berlin", "berlin=https://"),
        ("Berlin=https://a", "lower-case"),
        ("a=https://x,a=https://y", "write each name once"),
        ("a=ftp://x", "cannot be used"),
        ("a=https://me:secret@x", "cannot be used"),
        ("a=https://x?token=secret", "cannot be used"),
        ("a=https://", "cannot be used"),
        ("a=https://x https://y https://z", "cannot be used"),
    ],
)
def test_clusters_that_cannot_be_used_end_the_start_with_one_line_without_a_secret(text: str, wrong: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(ClusterSettings, {"FAIRLEAD_CLUSTERS": text})
    assert str(refused.value).startswith("FAIRLEAD_CLUSTERS: ")
    assert wrong in str(refused.value)
    assert "secret" not in str(refused.value)


def test_names_and_addresses_are_read_in_their_order() -> None:
    assert read_clusters("berlin=https://berlin.example.com, tokyo=https://tokyo.example.com/fairlead/ http://api.tokyo:8080") == (
        BERLIN,
        TOKYO,
    )


async def test_each_cluster_is_asked_with_its_own_token_and_the_answers_stand_beside_each_other(tmp_path: Path) -> None:
    clock = Clock()
    (one, at_one), (other, at_other) = fake(clock), fake(clock)
    other.world.pools_known = ["research/code"]
    found = await looking(tmp_path, clock, {BERLIN.api: at_one, TOKYO.api: at_other}).look()
    assert [(view.name, view.trouble, view.at) for view in found] == [("berlin", "", START), ("tokyo", "", START)]
    assert [len(view.pools) for view in found] == [2, 1]
    assert found[0].advice
    assert {path for _, path in one.requests} == {"/v1/pools", "/v1/advice"}


async def test_a_cluster_that_does_not_answer_holds_no_page_and_is_told_once_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "PATIENCE_SECONDS", 0.01)
    clock, answers = Clock(), asyncio.Event()
    _, at_one = fake(clock)

    class Slow(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await answers.wait()
            return await at_one.handle_async_request(request)

    seen = looking(tmp_path, clock, {BERLIN.api: Slow(), TOKYO.api: Slow()})
    assert [view.trouble for view in await seen.look()] == ["it has not answered within 0.01 s"] * 2
    monkeypatch.setattr(clusters, "PATIENCE_SECONDS", 60.0)
    answers.set()
    assert [(view.trouble, len(view.pools)) for view in await seen.look()] == [("", 2), ("", 2)]
    await seen.close()


async def test_what_was_known_last_is_kept_with_its_time_while_a_cluster_is_away_or_refuses(tmp_path: Path) -> None:
    clock = Clock()
    api, at_one = fake(clock)
    _, at_other = fake(clock)
    seen = looking(tmp_path, clock, {BERLIN.api: at_one, TOKYO.api: at_other})
    await seen.look()
    changes: dict[str, Callable[[], object]] = {
        "it answers 503": partial(api.broken.add, "/v1/pools"),
        "it refuses the token (401)": partial((tmp_path / "berlin").write_text, "another"),
        "contains no usable token": partial((tmp_path / "berlin").write_text, "two words"),
        UNSIGNED: (tmp_path / "berlin").unlink,
    }
    for trouble, change in changes.items():
        api.broken.clear()
        change()
        clock.now += timedelta(minutes=1)
        berlin, tokyo = await seen.look()
        assert trouble in berlin.trouble
        assert (berlin.at, len(berlin.pools)) == (START, 2), "the last answer and its time"
        assert (tokyo.trouble, tokyo.at) == ("", clock.now)


async def test_another_version_is_said_as_such_and_its_findings_are_not_known_rather_than_none(tmp_path: Path) -> None:
    clock = Clock()
    _, at_one = fake(clock)

    class NewFindings(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.url.path.endswith("/advice"):
                return httpx.Response(200, json={"items": [{"cause": "not-invented-yet"}]})
            return await at_one.handle_async_request(request)

    def older(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"items": [{"name": "chat"}], "next_cursor": None})

    found = await looking(tmp_path, clock, {BERLIN.api: NewFindings(), TOKYO.api: httpx.MockTransport(older)}).look()
    assert (found[0].trouble, found[0].advice, len(found[0].pools)) == ("", None, 2)
    assert "cannot be read" in found[1].trouble


async def test_looks_of_many_people_share_an_answer_for_five_seconds(tmp_path: Path) -> None:
    clock = Clock()
    api, at_one = fake(clock)
    _, at_other = fake(clock)
    seen = looking(tmp_path, clock, {BERLIN.api: at_one, TOKYO.api: at_other})
    for _ in range(4):
        await asyncio.gather(*(seen.look() for _ in range(5)))
        clock.now += timedelta(seconds=1)
    assert [path for _, path in api.requests].count("/v1/pools") == 1
    clock.now += timedelta(seconds=1)
    await seen.look()
    assert [path for _, path in api.requests].count("/v1/pools") == 2


class Endless(httpx.AsyncByteStream):
    sent = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self.sent < 1000 * 1024 * 1024:
            self.sent += 1024 * 1024
            yield b" " * (1024 * 1024)


async def test_a_cluster_whose_answer_does_not_end_is_a_trouble_and_costs_two_megabytes(tmp_path: Path) -> None:
    clock, endless = Clock(), Endless()
    _, at_other = fake(clock)
    flood = httpx.MockTransport(lambda request: httpx.Response(200, stream=endless))
    (tmp_path / "berlin").write_text("viewer-token")
    (tmp_path / "tokyo").write_text("viewer-token")
    settings = ClusterSettings(clusters=(BERLIN, TOKYO), tokens_dir=str(tmp_path))
    transports = {BERLIN.api: flood, TOKYO.api: at_other}
    seen = Clusters(settings, clock, lambda url: clusters.CONNECT(url, transport=transports[url]))
    berlin, tokyo = await seen.look()
    assert "answers with more than 2097152 bytes" in berlin.trouble
    assert (tokyo.trouble, len(tokyo.pools)) == ("", 2)
    assert endless.sent <= 2 * (LARGEST_ANSWER + 1024 * 1024), "two questions"


async def pools_of(at: httpx.AsyncBaseTransport) -> dict[str, Any]:
    async with httpx.AsyncClient(transport=at, base_url="http://api", headers={"authorization": "Bearer viewer-token"}) as http:
        return dict((await http.get("/v1/pools")).json())


@pytest.mark.parametrize(
    "value", [10**400, -(10**30), 1e300, "x" * 100_000, "0001-01-01T00:00:00+14:00", "2026-01-01T00:00:00", None, [], {}]
)
async def test_a_value_that_cannot_be_shown_is_a_trouble_and_the_page_has_the_rest(tmp_path: Path, value: object) -> None:
    """Each field of a pool has the value once. Whatever fits its type is judged, and the previous pools stay."""
    clock = Clock()
    _, at_one = fake(clock)
    document = await pools_of(at_one)
    changed: list[str] = []

    def hostile(request: httpx.Request) -> httpx.Response:
        items = [{**one, changed[-1]: value} for one in document["items"]]
        return httpx.Response(200, json={**document, "items": items} if request.url.path.endswith("/pools") else {"items": []})

    for name in document["items"][0]:
        changed.append(name)
        seen = looking(tmp_path, clock, {BERLIN.api: httpx.MockTransport(hostile), TOKYO.api: at_one})
        berlin, tokyo = await seen.look()
        assert (tokyo.trouble, len(tokyo.pools)) == ("", 2)
        for one in berlin.pools:
            assert odd(one) is None, name
        assert row_of(berlin)
        assert len(berlin.trouble) < 300


async def test_more_pools_than_were_asked_for_are_not_shown(tmp_path: Path) -> None:
    clock = Clock()
    _, at_one = fake(clock)
    document = await pools_of(at_one)
    many = {"items": document["items"][:1] * (MOST_POOLS + 5), "next_cursor": None}
    at = httpx.MockTransport(lambda request: httpx.Response(200, json=many))
    berlin, _ = await looking(tmp_path, clock, {BERLIN.api: at, TOKYO.api: at_one}).look()
    assert (len(berlin.pools), berlin.more) == (MOST_POOLS, True)

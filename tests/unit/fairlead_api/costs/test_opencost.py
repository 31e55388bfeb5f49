"""Allocations of OpenCost become costs of instances; all other answers are refused in one line."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import httpx
import pytest

from fairlead_api.costs.opencost import OpenCost, PodCosts
from fairlead_api.infra.errors import Unavailable
from fairlead_testing.running.opencost import allocation

NINE = datetime(2026, 11, 30, 9, tzinfo=UTC)


async def _asked(answer: Any, status: int = 200) -> PodCosts:
    content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    transport = httpx.MockTransport(lambda _: httpx.Response(status, content=content))
    return await OpenCost("http://opencost.test", transport).costs(NINE, NINE + timedelta(hours=1))


def _sets(*allocations: dict[str, Any]) -> dict[str, Any]:
    return {"code": 200, "status": "success", "data": [{one["name"]: one for one in allocations}]}


async def test_a_pod_costs_what_its_allocation_says() -> None:
    found = await _asked(_sets(allocation(NINE, "default", "chat-0", 1.234567)))
    assert {hour: dict(costs) for hour, costs in found.items()} == {NINE: {("default", "chat-0"): 1_234_567}}


async def test_the_pods_of_an_instance_with_several_nodes_are_one_cost() -> None:
    of_group = {"fairlead_dev_group_of": "chat", "leaderworkerset_sigs_k8s_io_name": "chat-7"}
    pods = [allocation(NINE, "default", name, 1.0, **of_group) for name in ("chat-7-0", "chat-7-0-1")]
    assert dict((await _asked(_sets(*pods)))[NINE]) == {("default", "chat-7-0"): 2_000_000}


async def test_hours_are_the_same_in_every_zone() -> None:
    one = allocation(NINE, "default", "chat-0", 1.0)
    one["window"]["start"] = NINE.astimezone(timezone(timedelta(hours=5, minutes=30))).isoformat()
    assert list(await _asked(_sets(one))) == [NINE]


@pytest.mark.parametrize("minutes", [-60, 1, 37, 60])
async def test_costs_of_a_time_that_was_not_requested_are_left_out(minutes: int) -> None:
    assert not await _asked(_sets(allocation(NINE + timedelta(minutes=minutes), "default", "chat-0", 1.0)))


@pytest.mark.parametrize("cost", [None, -1.0, 1e12])
async def test_an_impossible_cost_is_none(cost: float | None) -> None:
    assert not await _asked(_sets(allocation(NINE, "default", "chat-0", cost)))


async def test_what_is_of_no_pod_costs_no_instance() -> None:
    idle = {**allocation(NINE, "", "", 5.0), "name": "__idle__", "properties": None}
    assert not await _asked(_sets(idle))
    assert not await _asked({"code": 200, "data": [None, {}]})


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (b"<html>", 200, "OpenCost's answer is not a list of allocations"),
        ({"code": 200, "data": "none"}, 200, "OpenCost's answer is not a list of allocations"),
        (b'{"data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 200, "OpenCost's answer is not a list of allocations"),
        (b"Invalid 'window' parameter", 400, "OpenCost answers 400 at /allocation/compute; see FAIRLEAD_OPENCOST_URL"),
        (b"", 302, "OpenCost answers 302"),
    ],
)
async def test_another_answer_is_refused_in_one_line(answer: Any, status: int, words: str) -> None:
    with pytest.raises(Unavailable, match=words) as refused:
        await _asked(answer, status)
    assert "\n" not in str(refused.value)


async def test_the_question_is_of_whole_hours_by_pod() -> None:
    asked = list[httpx.Request]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={"data": []})

    await OpenCost("http://opencost.test", httpx.MockTransport(answer)).costs(NINE, NINE + timedelta(minutes=90))
    (request,) = asked
    assert dict(request.url.params) == {
        "window": "2026-11-30T09:00:00Z,2026-11-30T10:30:00Z",
        "step": "1h",
        "aggregate": "namespace,pod",
        "includeAggregatedMetadata": "true",
    }

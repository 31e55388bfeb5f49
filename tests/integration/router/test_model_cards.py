"""Engines' lists of models, and the further names by which they serve a model."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.tables import PoolKey
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until


def _card(name: str, length: int = 32768, parent: str | None = None, **more: Any) -> dict[str, Any]:
    root = "/models/mock" if parent is None else f"/adapters/{name}"
    return {
        "id": name,
        "object": "model",
        "created": 7,
        "owned_by": "vllm",
        "root": root,
        "parent": parent,
        "max_model_len": length,
        **more,
    }


async def _ready(world: World, *cards: list[Any], keys: tuple[GatewayKeyFacts, ...] = (), **table: Any) -> RunningRouter:
    for engine, told in zip(await world.start_engines(len(cards)), cards, strict=True):
        engine.cards = told
    world.api.state.set_gateway_keys(*keys)
    world.api.state.set_table(replace(world.table(policy="round-robin", engine_type="vllm"), **table))
    running = await world.start_router()
    await until(lambda: running.router.informing.synced and len(running.pool.engines.cards) == len(cards))
    return running


async def test_models_are_listed_with_what_their_engines_say_of_them(world: World) -> None:
    adapter = _card("sql-lora", parent="mock")
    running = await _ready(
        world, [_card("mock", 32768, kind="fp8"), adapter], [_card("mock", 8192, kind="fp8"), adapter], adapters=("sql-lora",)
    )
    models = {one["id"]: one for one in (await running.client.get("/v1/models")).json()["data"]}
    assert models["mock"] == _card("mock", 8192, kind="fp8")
    assert models["sql-lora"] == {**_card("sql-lora"), "root": "/adapters/sql-lora", "parent": "mock"}
    assert models["default/chat"] == {**_card("mock", 8192, kind="fp8"), "id": "default/chat", "root": "mock"}
    assert (await running.client.get("/v1/models/mock")).json() == models["mock"]


async def test_a_second_served_name_is_the_same_model_with_the_same_prefixes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [_card("mock"), _card("gpt-4"), _card("sql-lora", parent="mock")]
    running = await _ready(world, cards, cards)
    submitted: list[RoutingRequest] = []
    submit = running.pool.scheduler.submit

    def heard(request: RoutingRequest, now: float) -> tuple[Dispatch | Refusal, ...]:
        submitted.append(request)
        answers: tuple[Dispatch | Refusal, ...] = submit(request, now)
        return answers

    monkeypatch.setattr(running.pool.scheduler, "submit", heard)
    for name in ("mock", "gpt-4", "default/chat"):
        assert (await running.ask(model=name, text="the same long prompt " * 1000)).status_code == 200
    assert (await running.client.post("/tokenize", json={"model": "gpt-4", "prompt": "x"})).status_code == 200
    assert len({request.blocks for request in submitted}) == 1
    assert sorted(request["body"]["model"] for engine in world.engines for request in engine.seen) == ["gpt-4", "gpt-4", "mock", "mock"]
    assert (await running.ask(model="sql-lora")).status_code == 404, "an adapter that the pool does not declare"
    assert [one["id"] for one in (await running.client.get("/v1/models")).json()["data"]] == ["gpt-4", "mock", "default/chat"]


async def test_a_key_for_the_model_opens_its_aliases_and_no_other_key_does(world: World) -> None:
    keys = [GatewayKeyFacts(id=name, digest=sha256(f"secret-of-{name}".encode()).hexdigest(), models=(name,)) for name in ("mock", "other")]
    running = await _ready(world, [_card("mock"), _card("gpt-4")], keys=tuple(keys))
    opened = [await running.ask(model="gpt-4", headers={"authorization": f"Bearer secret-of-{name}"}) for name in ("mock", "other")]
    assert [answer.status_code for answer in opened] == [200, 404]


async def test_no_engine_takes_the_name_of_another_pools_model(world: World) -> None:
    running = await _ready(world, [_card("mock"), _card("llama"), _card("default/zeta")])
    world.api.state.set_table(replace(world.table(pool=PoolKey(namespace="default", name="zeta")), model="llama"))
    await until(lambda: len(running.router.pools) == 2)
    for name in ("llama", "default/zeta"):
        assert (await running.ask(model=name)).headers["x-fairlead-pool"] == "default/zeta"


async def test_a_pool_whose_model_changes_has_no_aliases_of_the_old_one(world: World) -> None:
    running = await _ready(world, [_card("mock"), _card("gpt-4")])
    assert running.pool.engines.aliases == {"gpt-4"}
    table = running.pool.table
    world.api.state.set_table(replace(table, model="new", version=table.version + 1))
    await until(lambda: running.pool.table.model == "new")
    assert (await running.ask(model="gpt-4")).status_code == 404

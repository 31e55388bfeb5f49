"""LoRA adapters: names at a pool's engines whose caches share no block with the model's."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

ADAPTERS = ("sql-lora", "org/fr-lora")


async def adapted(world: World, policy: str = "round-robin", *keys: GatewayKeyFacts) -> RunningRouter:
    await world.start_engines(2)
    world.api.state.set_gateway_keys(*keys)
    world.api.state.set_table(replace(world.table(policy=policy, engine_type="vllm"), adapters=ADAPTERS))
    running = await world.start_router(gateway_keys_required=bool(keys))
    await until(lambda: running.router.informing.synced)
    return running


def models_seen(world: World) -> list[str]:
    return [request["body"]["model"] for engine in world.engines for request in engine.seen]


async def test_an_adapter_is_asked_for_by_its_own_name_on_every_path_and_the_pool_means_its_model(world: World) -> None:
    running = await adapted(world)
    for name in ("sql-lora", "org/fr-lora", "mock", "default/chat"):
        assert (await running.ask(model=name)).headers["x-fairlead-pool"] == "default/chat"
    assert sorted(models_seen(world)) == ["mock", "mock", "org/fr-lora", "sql-lora"]
    for engine in world.engines:
        engine.seen.clear()
    assert (await running.client.post("/tokenize", json={"model": "sql-lora", "prompt": "x"})).status_code == 200
    assert (
        await running.client.post(
            "/v1/messages", json={"model": "sql-lora", "messages": [{"role": "user", "content": "x"}], "max_tokens": 3}
        )
    ).status_code == 200
    assert models_seen(world) == ["sql-lora", "sql-lora"]
    assert (await running.ask(model="other-lora")).status_code == 404


async def test_models_are_listed_with_their_adapters_as_vllm_lists_them(world: World) -> None:
    running = await adapted(world)
    models = {one["id"]: one for one in (await running.client.get("/v1/models")).json()["data"]}
    assert list(models) == ["mock", "org/fr-lora", "sql-lora", "default/chat"]
    assert (models["sql-lora"]["parent"], "parent" in models["mock"]) == ("mock", False)
    assert (await running.client.get("/v1/models/org/fr-lora")).json()["parent"] == "mock"


async def test_the_same_prompt_for_another_adapter_is_no_cached_prefix(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    running = await adapted(world)
    submitted: list[RoutingRequest] = []
    scheduler, submit = running.pool.scheduler, running.pool.scheduler.submit

    def heard(request: RoutingRequest, now: float) -> tuple[Dispatch | Refusal, ...]:
        submitted.append(request)
        answers: tuple[Dispatch | Refusal, ...] = submit(request, now)
        return answers

    monkeypatch.setattr(scheduler, "submit", heard)
    for name in ("mock", "default/chat", "sql-lora", "sql-lora", "org/fr-lora"):
        assert (await running.ask(model=name, text="the same long prompt " * 1000)).status_code == 200
    of_model, of_pool, of_adapter, again, of_other = (request.blocks for request in submitted)
    assert of_model == of_pool and of_adapter == again and len(of_model) == len(of_adapter) > 1
    assert not {*of_model} & {*of_adapter} and not {*of_adapter} & {*of_other}


async def test_a_key_for_models_opens_an_adapter_only_if_it_names_it(world: World) -> None:
    secrets = {"of-the-model-0123456789": ("mock",), "of-an-adapter-0123456789": ("sql-lora",), "of-all-0123456789": ()}
    keys = [
        GatewayKeyFacts(id=secret[:10], digest=sha256(secret.encode()).hexdigest(), models=models) for secret, models in secrets.items()
    ]
    running = await adapted(world, "round-robin", *keys)
    opened = {
        secret: [
            (await running.ask(model=name, headers={"authorization": f"Bearer {secret}"})).status_code
            for name in ("mock", "default/chat", "sql-lora", "org/fr-lora")
        ]
        for secret in secrets
    }
    assert list(opened.values()) == [[200, 200, 404, 404], [404, 404, 200, 404], [200, 200, 200, 200]]
    listed = await running.client.get("/v1/models", headers={"authorization": "Bearer of-an-adapter-0123456789"})
    assert [one["id"] for one in listed.json()["data"]] == ["sql-lora"]


async def test_a_key_opens_no_adapter_by_a_field_or_header_that_only_engines_read(world: World) -> None:
    secrets = {"of-the-model-0123456789": ("mock",), "of-both-0123456789": ("mock", "sql-lora"), "of-all-0123456789": ()}
    keys = [
        GatewayKeyFacts(id=secret[:10], digest=sha256(secret.encode()).hexdigest(), models=models) for secret, models in secrets.items()
    ]
    running = await adapted(world, "round-robin", *keys)
    chat = {"model": "mock", "messages": [{"role": "user", "content": "x"}]}
    opened: dict[str, list[int]] = {}
    for secret in secrets:
        shown = {"authorization": f"Bearer {secret}"}
        named = ["sql-lora", ["sql-lora"], ["", None, "org/fr-lora"], None, ""]
        answers = [await running.client.post("/v1/chat/completions", json={**chat, "lora_path": one}, headers=shown) for one in named]
        opened[secret] = [answer.status_code for answer in answers]
        naming = {**shown, "X-Amzn-SageMaker-Adapter-Identifier": "sql-lora"}
        for path in ("/invocations", "/v1/chat/completions", "/tokenize"):
            answer = await running.client.post(path, json=chat, headers=naming)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_field"), "vLLM puts it in the place of `model`"
    assert list(opened.values()) == [[404, 404, 404, 200, 200], [200, 200, 404, 200, 200], [200] * 5]
    assert len(models_seen(world)) == sum(statuses.count(200) for statuses in opened.values())

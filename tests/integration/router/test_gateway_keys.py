"""Gateway keys at a router: received from the control API, checked for every request, kept while the API is away."""

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.tables import PoolKey, PriorityClass
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

OTHER = PoolKey(namespace="default", name="other")


def key(name: str, **more: Any) -> GatewayKeyFacts:
    return GatewayKeyFacts(id=name, digest=sha256(secret(name).encode()).hexdigest(), **more)


def secret(name: str) -> str:
    return f"flk_the-secret-of-{name}-0123456789"


def shows(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret(name)}"}


async def guarded(world: World, *keys: GatewayKeyFacts, policy: str = "round-robin") -> RunningRouter:
    await world.start_engines(2)
    world.api.state.set_gateway_keys(*keys)
    world.api.state.set_table(world.table(policy=policy))
    running = await world.start_router(gateway_keys_required=True)
    await until(lambda: running.router.informing.synced)
    return running


async def test_a_key_over_its_limit_is_told_when_to_come_again_while_others_are_unharmed(world: World) -> None:
    running = await guarded(world, key("quick", requests_per_minute=3), key("calm", requests_per_minute=1000))
    begun = monotonic()
    answers = await asyncio.gather(
        *(running.ask(headers=shows("quick")) for _ in range(12)), *(running.ask(headers=shows("calm")) for _ in range(12))
    )
    quick, calm = answers[:12], answers[12:]
    assert {answer.status_code for answer in calm} == {200}
    refused = [answer for answer in quick if answer.status_code != 200]
    assert 12 - len(refused) <= 3 + (monotonic() - begun) / 20, "three at once, and one more each 20 s"
    for answer in refused:
        assert answer.status_code == 429
        assert answer.json()["error"]["code"] == answer.headers["x-fairlead-rejection"] == "rejected-key-requests"
        assert 1 <= int(answer.headers["retry-after"]) <= 20
    assert running.router.metrics.key_refusals == {"rejected-key-requests": len(refused)}


async def test_wrong_expired_and_revoked_keys_are_401_in_the_clients_protocol(world: World) -> None:
    running = await guarded(world, key("good"), key("old", expires_at=1.0))
    assert (await running.ask(headers=shows("good"))).status_code == 200
    for headers, said in (({}, "is needed"), (shows("wrong"), "not known"), (shows("old"), "has expired")):
        answer = await running.ask(headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        assert said in answer.json()["error"]["message"]
    body = {"model": "mock", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
    anthropic = await running.client.post("/v1/messages", json=body, headers={"x-api-key": secret("old")})
    assert (anthropic.status_code, anthropic.json()["error"]["type"]) == (401, "authentication_error")
    world.api.state.set_gateway_keys()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await running.ask(headers=shows("good"))).status_code == 200:
            await asyncio.sleep(0.01)
    page = (await running.admin.get("/metrics")).text
    assert 'fairlead_router_key_refusals_total{reason="key-expired"} 2.0' in page


async def test_a_key_sees_and_uses_only_what_it_opens(world: World) -> None:
    running = await guarded(world, key("all"), key("narrow", pools=("default/chat",)), key("model", models=("elsewhere",)))
    world.api.state.set_table(world.table(pool=OTHER, model="elsewhere"))
    await until(lambda: len(running.router.pools) == 2)

    async def models(name: str) -> list[str]:
        return [model["id"] for model in (await running.client.get("/v1/models", headers=shows(name))).json()["data"]]

    assert await models("all") == ["elsewhere", "mock", "default/chat", "default/other"]
    assert await models("narrow") == ["mock", "default/chat"]
    assert await models("model") == ["elsewhere", "default/other"]
    assert (await running.client.get("/v1/models/elsewhere", headers=shows("narrow"))).status_code == 404
    assert (await running.ask(headers=shows("narrow"))).status_code == 200
    assert (await running.ask(headers=shows("model"), model="default/other")).status_code == 200
    for name, model in (("narrow", "elsewhere"), ("narrow", "default/other"), ("model", "mock")):
        answer = await running.ask(headers=shows(name), model=model)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
        assert "known: " + ("mock" if name == "narrow" else "elsewhere") in answer.json()["error"]["message"]
    tokenized = await running.client.post("/tokenize", json={"model": "elsewhere", "prompt": "x"}, headers=shows("narrow"))
    assert tokenized.status_code == 404
    assert running.router.metrics.key_refusals == {"key-out-of-scope": 4}
    assert (await running.ask(headers=shows("narrow"), model="nowhere")).status_code == 404
    assert running.router.metrics.key_refusals == {"key-out-of-scope": 4}, "what nobody serves is not the key's fault"


async def test_two_keys_whose_clients_send_one_name_have_a_session_each(world: World) -> None:
    one, other = "1f2e3d4c5b6a7988", "8897a6b5c4d3e2f1"
    running = await guarded(world, key(one), key(other), policy="ear")
    for name in (one, other, one):
        sent = {"x-session-id": "chat-1", "x-fairlead-parent": "main", "x-fairlead-task": "fix"}
        assert (await running.ask(headers=shows(name) | sent, text=f"I am {name}")).status_code == 200
    sessions = {f"chat-1@{one}", f"chat-1@{other}"}
    reported = world.api.state
    await until(lambda: sum(used.requests for used in reported.stored("usage")) == len(reported.stored("traffic")) == 3)
    await until(lambda: {change.session for change in reported.stored("bindings")} == sessions)
    assert {used.session: used.key for used in reported.stored("usage")} == {f"chat-1@{one}": one, f"chat-1@{other}": other}
    turns = reported.stored("traffic")
    assert {(turn.name, turn.parent, turn.task) for turn in turns} == {
        (f"chat-1@{name}", f"main@{name}", f"fix@{name}") for name in (one, other)
    }


async def test_a_keys_priority_class_is_the_most_that_its_requests_may_claim(world: World) -> None:
    running = await guarded(world, key("batch", priority_class="batch"), key("plain"))
    answer = await running.ask(headers=shows("batch"))
    assert "x-fairlead-priority-class" not in answer.headers, "a pool without classes has none to tell"
    classes = (PriorityClass(name="interactive", priority=1), PriorityClass(name="batch", priority=-1))
    world.api.state.set_table(replace(world.table(), version=2, priority_classes=classes))
    await until(lambda: all(pool.classes.are_declared for pool in running.router.pools.all()))

    async def got(name: str, asked: str) -> str:
        headers = {**shows(name), "x-gateway-inference-objective": asked}
        return str((await running.ask(headers=headers)).headers["x-fairlead-priority-class"])

    assert await got("batch", "interactive") == "batch"
    assert await got("plain", "interactive") == "default"
    assert await got("plain", "batch") == "batch"
    page = (await running.admin.get("/metrics")).text
    assert 'fairlead_router_class_submitted_total{pool="default/chat",priority_class="batch"} 2.0' in page


@pytest.mark.parametrize("passes", [False, True])
async def test_engines_get_the_priority_of_a_keys_class_only_where_the_pool_says_so(world: World, passes: bool) -> None:
    running = await guarded(world, key("batch", priority_class="batch"), key("plain"))
    table = world.table()
    engine, classes = replace(table.engine, pass_priority=passes), (PriorityClass(name="batch", priority=-7),)
    world.api.state.set_table(replace(table, version=2, engine=engine, priority_classes=classes))
    await until(lambda: all(pool.classes.are_declared for pool in running.router.pools.all()))
    for name in ("batch", "plain"):
        for written in ({}, {"priority": -1000}):
            await running.ask(headers=shows(name), **written)  # type: ignore[arg-type]  # a field of the body
    sent = [request["body"].get("priority") for one in world.engines for request in one.seen if "messages" in request["body"]]
    assert Counter(sent) == Counter([7, 7, 0, None] if passes else [None, -1000, None, -1000])
    await running.ask(headers={**shows("batch"), "x-vllm-priority": "-1000"})
    heard = [request["headers"].get("x-vllm-priority") for one in world.engines for request in one.seen]
    assert Counter(heard) == Counter([None] * 5 if passes else [None] * 4 + ["-1000"]), "vLLM prefers the header to the field"
    for headers in ({}, {"x-vllm-priority": "-1000"}):
        message = {"model": "mock", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
        await running.client.post("/v1/messages", json=message, headers={"x-script": "", **shows("batch"), **headers})
    messages = [request for one in world.engines for request in one.seen if "/v1/messages" in request["line"]]
    heard = [request["headers"].get("x-vllm-priority") for request in messages]
    assert Counter(heard) == Counter(["7", "7"] if passes else [None, "-1000"])


async def test_a_response_of_a_pool_that_a_key_does_not_open_is_not_found(world: World) -> None:
    running = await guarded(world, key("all"), key("elsewhere", pools=("default/other",)))
    assert (await running.client.get("/v1/responses/resp_1-i0", headers=shows("all"))).status_code == 200
    for _ in range(2):
        answer = await running.client.get("/v1/responses/resp_1-i0", headers=shows("elsewhere"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "response_not_found")


async def test_tokens_count_as_the_engine_told_them(world: World) -> None:
    running = await guarded(world, key("t", tokens_per_minute=1000))
    answer = await running.ask(headers=shows("t"), text="word " * 4000)  # the router counts 5,000 tokens, the engine 8 and 3
    assert answer.status_code == 200
    assert (await running.ask(headers=shows("t"))).status_code == 200, "what was counted too much is given back"
    streamed = await running.ask(headers=shows("t"), text="word " * 4000, stream=True)
    assert streamed.status_code == 200
    assert (await running.ask(headers=shows("t"))).status_code == 200, "also of a stream whose client did not ask for usage"
    for engine in world.engines:
        engine.events = ['data: {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]}\n\n']
    assert (await running.ask(headers=shows("t"), text="word " * 4000, stream=True)).status_code == 200
    refused = await running.ask(headers=shows("t"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rejected-key-tokens"), "where the engine tells nothing"
    assert int(refused.headers["retry-after"]) > 60


async def test_a_request_that_no_engine_answered_costs_no_tokens(world: World) -> None:
    running = await guarded(world, key("t", tokens_per_minute=1000))
    for script in ("hang-up", "bad-request"):
        assert (await running.ask(headers=shows("t"), text="word " * 4000, script=script)).status_code in {400, 502}
    world.api.state.set_table(world.table(version=2))
    assert (await running.ask(headers=shows("t"), script="bad-request")).status_code != 429


async def test_the_last_known_keys_hold_while_the_api_is_away_also_after_a_restart(world: World) -> None:
    running = await guarded(world, key("good"), key("soon", requests_per_minute=1))
    await world.api.stop()
    await world.stop_router(running)
    again = await world.start_router(seed=2, gateway_keys_required=True)
    assert (await again.ask(headers=shows("good"))).status_code == 200
    assert (await again.ask(headers=shows("wrong"))).status_code == 401
    kept = (world.directory / "router-0" / "gateway-keys.json").read_bytes()
    assert sha256(secret("good").encode()).hexdigest().encode() in kept
    assert secret("good").encode() not in kept


async def test_a_router_that_knows_no_keys_yet_calls_none_wrong(world: World) -> None:
    await world.api.stop()
    running = await world.start_router(gateway_keys_required=True)
    answer = await running.ask(headers=shows("good"))
    assert (answer.status_code, answer.json()["error"]["code"], answer.headers["retry-after"]) == (503, "keys-not-read", "1")


async def test_keys_are_in_no_log_no_file_and_no_answer(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    running = await guarded(world, key("good", requests_per_minute=2), key("old", expires_at=1.0))
    answers: list[httpx.Response] = []
    for name in ("good", "good", "good", "old", "wrong"):
        for headers in (shows(name), {"x-api-key": secret(name)}):
            answers.append(await running.ask(headers=headers))
            answers.append(await running.ask(headers=headers, model="nowhere"))
    answers += [await running.admin.get("/metrics"), await running.admin.get("/debug/pools")]
    await world.stop_router(running)
    files = b"".join(path.read_bytes() for path in world.directory.rglob("*") if path.is_file())
    said = "\n".join([caplog.text, *(str(vars(record)) for record in caplog.records)])
    told = "".join(f"{answer.headers}{answer.text}" for answer in answers)
    engines = str([engine.seen for engine in world.engines])
    for name in ("good", "old", "wrong"):
        assert secret(name) not in said + told + engines + files.decode("latin-1")
    assert Path(world.directory / "router-0" / "gateway-keys.json").exists()


async def test_what_each_key_was_used_for_is_reported_once(world: World) -> None:
    running = await guarded(world, key("team", pools=("default/chat",), requests_per_minute=5), key("old", expires_at=1.0))
    world.api.state.set_table(world.table(pool=OTHER, model="elsewhere"))
    await until(lambda: len(running.router.pools) == 2)
    for more in ({}, {"stream": True}, {"script": "bad-request"}):
        await running.ask(headers=shows("team"), **more)
    assert (await running.client.get("/v1/models", headers=shows("team"))).status_code == 200
    assert (await running.ask(headers=shows("team"), model="elsewhere")).status_code == 404
    tokenized = await running.client.post("/tokenize", json={"model": "mock", "prompt": "x"}, headers=shows("team"))
    assert tokenized.status_code == 200
    while (await running.ask(headers=shows("team"))).status_code == 200:
        pass  # 12 s of one request each would have to pass before one more is admitted
    for headers in (shows("old"), shows("wrong"), {}):
        assert (await running.ask(headers=headers)).status_code == 401
    await world.stop_router(running)
    sums: dict[tuple[str, str | None], list[int]] = {}
    for one in world.api.state.stored("key_use"):
        assert one.minute % 60 == 0
        counted = sums.setdefault((one.key, one.refusal), [0, 0, 0])
        for place, count in enumerate((one.requests, one.prompt_tokens, one.output_tokens)):
            counted[place] += count
    served = sums.pop(("team", None))
    assert served[0] >= 4
    later = served[0] - 4
    assert served[1:] == [8 + 8 + 8 * later, 3 + 3 + 3 * later]
    assert sums.pop(("team", "rejected-key-requests")) == [1, 0, 0]
    assert sums == {("team", "key-out-of-scope"): [1, 0, 0], ("old", "key-expired"): [1, 0, 0]}

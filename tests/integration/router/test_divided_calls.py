"""Calls computed by a prefill and a decode instance together: the requests to each, the client's answer, and
failures.
"""

import asyncio
from typing import Any

import pytest

from fairlead.instances import InstanceState, Role
from fairlead.reports.rejections import RejectionReason, RejectionRecord
from fairlead.routing.contracts.handovers import ENOUGH
from fairlead.tables import EarlyRejectionFacts, ModelledFacts
from fairlead_testing.worlds.router_worlds import RunningRouter, ScriptedEngine, World, until

ROLES = (Role.PREFILL, Role.PREFILL, Role.DECODE, Role.DECODE)


async def split(world: World, **table: Any) -> tuple[RunningRouter, list[ScriptedEngine]]:
    """Return a router of two prefill (i0, i1) and two decode instances (i2, i3)."""
    running = await world.ready(4, **{"policy": "least-loaded", "roles": ROLES, **table})
    return running, world.engines


def legs(engines: list[ScriptedEngine], first: int = 0) -> list[tuple[str, dict[str, Any]]]:
    return [(engine.name, seen["body"]) for engine in engines[first : first + 2] for seen in engine.seen if seen["body"]]


def at_rest(running: RunningRouter) -> None:
    assert running.busy() == 0
    assert running.scheduler.discrepancies() == ()
    assert running.router.metrics.accounting_errors == 0


async def test_both_legs_keep_integers_beyond_64_bits(world: World) -> None:
    running, engines = await split(world)
    body = b'{"model": "default/chat", "seed": 123456789012345678901234567890, "messages": [{"role": "user", "content": "hi"}], "min_tokens": 1}'
    assert (await running.client.post("/v1/chat/completions", content=body)).status_code == 200
    sent = [request["raw"] for engine in engines for request in engine.seen]
    assert len(sent) == 2
    assert all(b'"seed": 123456789012345678901234567890' in one and b'"model": "mock"' in one for one in sent)


async def test_the_prefill_is_asked_for_one_token_and_the_decode_gets_the_clients_request_with_the_blocks(world: World) -> None:
    running, engines = await split(world)
    answer = await running.ask(
        stream=True, text='héllo \\ "} ', stream_options={"include_usage": True}, logprobs=True, min_tokens=2, headers={"x-session-id": "s"}
    )
    assert answer.status_code == 200
    assert answer.text.endswith("data: [DONE]\n\n")
    ((prefilled_on, prefill),), ((decoded_on, decode),) = legs(engines), legs(engines, 2)
    assert (answer.headers["x-fairlead-instance"], answer.headers["x-fairlead-decode"]) == (prefilled_on, decoded_on)
    asked = prefill.pop("kv_transfer_params")
    assert prefill == {
        "model": "mock", "messages": [{"role": "user", "content": "héllo \\ \"} "}], "max_tokens": 1, "stream": False, "logprobs": True,
    }  # fmt: skip
    assert asked["do_remote_decode"] is True
    blocks = decode.pop("kv_transfer_params")
    assert (blocks["remote_engine_id"], blocks["do_remote_prefill"]) == (prefilled_on, True)
    assert (decode["max_tokens"], decode["stream"], decode["min_tokens"], decode["stream_options"]) == (3, True, 2, {"include_usage": True})
    counters = running.pool.counters
    assert (counters.served, sum(counters.prefill.counts), sum(counters.handover.counts), sum(counters.ttft.counts)) == (1, 1, 1, 1)
    await until(lambda: running.busy() == 0)
    at_rest(running)


@pytest.mark.parametrize(
    ("path", "body", "limit"),
    [
        ("/v1/completions", {"prompt": "hello", "max_tokens": 7}, "max_tokens"),
        ("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 7}, "max_tokens"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_completion_tokens": 7}, "max_completion_tokens"),
        ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 7}, "max_tokens"),
        ("/v1/responses", {"input": "x", "max_output_tokens": 7}, "max_output_tokens"),
        ("/invocations", {"prompt": "x", "max_tokens": 7}, "max_tokens"),
    ],
)
async def test_every_dialect_that_generates_is_divided(world: World, path: str, body: dict[str, Any], limit: str) -> None:
    running, engines = await split(world)
    answer = await running.client.post(path, json={"model": "default/chat", **body})
    assert answer.status_code == 200, answer.text
    ((_, prefill),), ((decoded_on, decode),) = legs(engines), legs(engines, 2)
    assert answer.headers["x-fairlead-decode"] == decoded_on == answer.json()["engine"]
    assert (prefill[limit], prefill["stream"], prefill["model"]) == (1, False, "mock")
    assert (decode[limit], decode["model"]) == (7, "mock")
    assert decode["kv_transfer_params"]["remote_engine_id"] == answer.headers["x-fairlead-instance"]
    at_rest(running)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": ["a", "b"]}),
        ("/v1/completions", {"prompt": [[1], [2]]}),
        ("/v1/completions", {"prompt": "a", "echo": True}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "n": 2}),
        ("/v1/responses", {"input": "x", "previous_response_id": "resp_1"}),
        ("/v1/chat/completions/batch", {"messages": [[{"role": "user", "content": "x"}]]}),
        ("/v1/embeddings", {"input": "x"}),
    ],
)
async def test_what_the_handshake_cannot_name_goes_whole_to_a_decode_instance(world: World, path: str, body: dict[str, Any]) -> None:
    running, engines = await split(world)
    answer = await running.client.post(path, json={"model": "mock", **body})
    assert answer.status_code == 200, answer.text
    assert (answer.headers["x-fairlead-reason"], "x-fairlead-decode" in answer.headers) == ("decode-only", False)
    assert answer.headers["x-fairlead-instance"] in ("i2", "i3")
    assert legs(engines) == []
    ((_, sent),) = legs(engines, 2)
    assert sent == {"model": "mock", **body}
    assert running.pool.counters.decode_only == {"indivisible": 1}
    at_rest(running)


async def test_what_goes_past_the_scheduler_goes_to_a_decode_instance(world: World) -> None:
    running, engines = await split(world)
    for _ in range(4):
        assert (await running.client.post("/tokenize", json={"model": "mock", "prompt": "x"})).status_code == 200
    assert (legs(engines), len(legs(engines, 2))) == ([], 4)


async def test_a_client_may_not_say_itself_where_blocks_are(world: World) -> None:
    running, engines = await split(world)
    answer = await running.ask(kv_transfer_params={"do_remote_prefill": True, "remote_host": "10.0.0.1"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "kv_transfer_params")
    assert (await running.ask(kv_transfer_params=None)).status_code == 200
    assert legs(engines) == []


@pytest.mark.parametrize("script", ["error-500", "hang-up", "busy"])
@pytest.mark.parametrize(("failing", "others"), [((0, 1), "i0"), ((2, 3), "i2")])
async def test_a_failed_leg_is_sent_elsewhere_before_the_first_byte(
    world: World, script: str, failing: tuple[int, int], others: str
) -> None:
    running, engines = await split(world)
    answer = await running.ask(stream=True, script=f"{script}@{others}", text="one")
    again = await running.ask(stream=True, script=f"{script}@{others}", text="two")
    assert (answer.status_code, again.status_code) == (200, 200)
    side = 0 if others == "i0" else 2
    served = {one.headers["x-fairlead-instance" if side == 0 else "x-fairlead-decode"] for one in (answer, again)}
    assert others not in served
    assert running.pool.counters.retries >= 1
    if side:
        assert len(legs(engines)) == 2 + running.pool.counters.retries, "the prompt is computed again: its blocks may have been fetched"
    await until(lambda: running.busy() == 0)
    at_rest(running)


async def test_blocks_that_nobody_can_have_fetched_are_used_again(world: World) -> None:
    running, engines = await split(world)
    await engines[2].stop()
    answers = [await running.ask(text=f"{number}") for number in range(2)]
    assert [one.headers["x-fairlead-decode"] for one in answers] == ["i3", "i3"]
    assert running.pool.counters.retries >= 1
    assert len(legs(engines)) == 2
    at_rest(running)


async def test_without_any_prefill_instance_the_decode_instances_serve(world: World) -> None:
    running, engines = await split(world)
    engines[0].broken = engines[1].broken = True
    answer = await running.ask(stream=True)
    assert (answer.status_code, answer.headers["x-fairlead-reason"]) == (200, "decode-only")
    assert running.pool.counters.decode_only == {"no-prefill": 1}
    draining = {"i0": InstanceState.DRAINING, "i1": InstanceState.DRAINING}
    world.api.state.set_table(world.table(version=2, policy="least-loaded", roles=ROLES, states=draining))
    await until(lambda: running.pool.table.version == 2)
    answer = await running.ask()
    assert (answer.status_code, answer.headers["x-fairlead-instance"][1:] in "23") == (200, True)
    assert "kv_transfer_params" not in legs(engines, 2)[-1][1]
    at_rest(running)


async def test_a_prefill_engine_that_names_no_blocks_costs_a_second_prefill_that_is_counted(world: World) -> None:
    running, engines = await split(world)
    engines[0].hands_on = engines[1].hands_on = False
    assert (await running.ask()).status_code == 200
    assert "kv_transfer_params" not in legs(engines, 2)[0][1]
    assert running.pool.counters.unfetched == 1
    text = (await running.admin.get("/metrics")).text
    assert 'fairlead_router_prefills_without_blocks_total{pool="default/chat"} 1.0' in text
    at_rest(running)


async def test_prefill_engines_that_name_no_blocks_are_asked_no_longer_and_that_is_reported(world: World) -> None:
    running, engines = await split(world)
    engines[0].hands_on = engines[1].hands_on = False
    for number in range(20):
        assert (await running.ask(text=f"text {number}", stream=number % 2 == 0)).status_code == 200
    assert [len(legs([engine])) for engine in engines[:2]] == [ENOUGH, ENOUGH]
    assert len(legs(engines, 2)) == 20
    assert running.pool.counters.decode_only == {"no-prefill": 14}
    troubled = running.pool.engines.troubled()
    assert {(one.instance, one.trouble) for one in troubled} == {("i0", "KvNotHandedOn"), ("i1", "KvNotHandedOn")}
    assert "in its last 3 answers to prefills for other instances, so decode instances compute its prompts;" in troubled[0].words
    at_rest(running)


async def test_prefills_go_to_the_engines_that_hand_over_and_the_others_are_tried_again_after_a_while(world: World) -> None:
    running, engines = await split(world)
    engines[0].hands_on = False
    for number in range(20):
        assert (await running.ask(text=f"text {number}")).status_code == 200
    assert len(legs(engines[:1])) == ENOUGH
    assert len(legs([engines[1]])) == 20 - ENOUGH
    assert running.pool.counters.decode_only == {}
    engines[0].hands_on = True
    running.scheduler.handovers._rests_until["i0"] = running.router.now()
    for number in range(8):
        assert (await running.ask(text=f"later {number}")).status_code == 200
    assert len(legs(engines[:1])) > ENOUGH + 1, "one try, and then it takes its part"
    assert running.pool.engines.troubled() == ()
    at_rest(running)


async def test_what_the_prefill_instance_refuses_is_the_clients_answer(world: World) -> None:
    running, engines = await split(world)
    answer = await running.ask(stream=True, script="bad-request")
    assert (answer.status_code, answer.json()) == (400, {"error": "context too long"})
    assert legs(engines, 2) == []
    assert running.pool.counters.rejected_by_engine == 1
    at_rest(running)


@pytest.mark.parametrize("side", ["prefill", "decode"])
async def test_a_client_that_leaves_takes_either_leg_with_it(world: World, side: str) -> None:
    running, engines = await split(world)
    silent = "i0" if side == "prefill" else "i2"
    engine = engines[0 if side == "prefill" else 2]
    asked = [asyncio.create_task(running.ask(stream=True, script=f"silent@{silent}", text=f"{number}")) for number in range(2)]
    await until(lambda: bool(engine.seen))
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    await until(lambda: engine.disconnects == 1 and running.busy() == 0)
    assert running.pool.counters.cancelled >= 1
    at_rest(running)


async def test_decisions_name_both_instances(world: World) -> None:
    running, _ = await split(world)
    answer = await running.ask(stream=True)
    await until(lambda: running.busy() == 0)
    await until(lambda: any(report.decisions for report in world.api.state.reports.values()))
    records = [one for report in world.api.state.reports.values() for one in report.decisions]
    assert [(one.chosen, one.decode) for one in records] == [(answer.headers["x-fairlead-instance"], answer.headers["x-fairlead-decode"])]


async def test_what_its_decode_instance_can_no_longer_take_is_refused_after_its_prefill(world: World) -> None:
    slow = ModelledFacts(decode_base_seconds=0.2)
    rejection = EarlyRejectionFacts(mode="AfterPrefill")
    running, engines = await split(world, early_rejection=rejection, modelled=slow)
    decoding = [asyncio.create_task(running.ask(stream=True, script=f"silent@i{one}", text=f"{one}")) for one in (2, 3)]
    await until(lambda: bool(engines[2].seen and engines[3].seen))
    for streamed in (True, False):
        answer = await running.ask(stream=streamed, text=f"late {streamed}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "rejected-after-prefill")
        assert int(answer.headers["retry-after"]) >= 1
    assert (len(legs(engines)), len(legs(engines, 2))) == (4, 2), "computed, and not sent on"
    assert running.pool.counters.refused == {"rejected-after-prefill": 2}
    for task in decoding:
        task.cancel()
    await asyncio.gather(*decoding, return_exceptions=True)
    await until(lambda: running.busy() == 0)
    await until(lambda: bool(world.api.state.reports) and sum(one.count for one in rejections(world)) == 2)
    assert {(one.reason, one.status) for one in rejections(world)} == {(RejectionReason.AFTER_PREFILL, 429)}
    assert (await running.ask(stream=True)).status_code == 200
    await until(lambda: running.busy() == 0)
    at_rest(running)


def rejections(world: World) -> list[RejectionRecord]:
    return [one for report in world.api.state.reports.values() for one in report.rejections]

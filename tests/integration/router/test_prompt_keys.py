"""The routing key is the rendered prompt, over real HTTP: a conversation goes to its prefix in any protocol."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlead.routing.contracts.schedulers import Dispatch
from fairlead_router.pools.account import PoolAccount
from fairlead_router.pools.tickets import Ticket
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WORDS = "rules that all must follow " * 300


def _tools(name: str) -> list[tuple[str, str]]:
    return [(f"{name}_{n}", f"{name} does a thing " * 20) for n in range(20)]


def _chat(about: str, system: str = WORDS) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": f"{about}_1", "arguments": '{"city": "Oslo"}'}}
    tools = [{"type": "function", "function": {"name": name, "description": text, "parameters": SCHEMA}} for name, text in _tools(about)]
    return {
        "tools": tools,
        "messages": [
            {"role": "system", "content": system},
            {"role": "user", "content": "Rain?"},
            {"role": "assistant", "content": "One moment.", "reasoning_content": "I ask.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "Rain."},
        ],
    }


def _messages(about: str, system: str = WORDS) -> dict[str, Any]:
    use = {"type": "tool_use", "id": "toolu_1", "name": f"{about}_1", "input": {"city": "Oslo"}}
    return {
        "max_tokens": 9,
        "tools": [{"name": name, "description": text, "input_schema": SCHEMA} for name, text in _tools(about)],
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.37.0d9; cch=0aaa9;"},
            {"type": "text", "text": system, "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [
            {"role": "user", "content": "Rain?"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "I ask."}, {"type": "text", "text": "One moment."}, use]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "Rain."}]},
        ],
    }


def _response(about: str, system: str = WORDS) -> dict[str, Any]:
    return {
        "instructions": system,
        "tools": [{"type": "function", "name": name, "description": text, "parameters": SCHEMA} for name, text in _tools(about)],
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Rain?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "I ask."}]},
            {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "One moment."}]},
            {"type": "function_call", "call_id": "fc_1", "name": f"{about}_1", "arguments": '{"city":"Oslo"}'},
            {"type": "function_call_output", "call_id": "fc_1", "output": "Rain."},
        ],
    }


PROTOCOLS = {"/v1/chat/completions": _chat, "/v1/messages": _messages, "/v1/responses": _response}


async def _ask(running: RunningRouter, path: str, document: dict[str, Any]) -> str:
    """Return the engine that answered."""
    answer = await running.client.post(path, json={"model": "mock", **document})
    assert answer.status_code == 200, answer.text
    await until(lambda: running.busy() == 0)
    return str(json.loads(answer.text)["engine"])


@pytest.mark.parametrize("policy", ["fairlead", "cache-affinity", "dualmap", "min-ttft"])
async def test_one_conversation_goes_to_one_instance_by_every_protocol(world: World, policy: str) -> None:
    running = await world.ready(3, policy=policy, block_tokens=64)
    for about in ("weather", "trains", "stocks", "mail"):
        went = [await _ask(running, path, make(about)) for path, make in PROTOCOLS.items()]
        assert len(set(went)) == 1
        again = [await _ask(running, path, make(about)) for path, make in reversed(PROTOCOLS.items())]
        assert set(again) == set(went)


@pytest.fixture
def tickets(monkeypatch: pytest.MonkeyPatch) -> list[Ticket]:
    """Return the tickets of all requests, in order."""
    kept: list[Ticket] = []
    submit = PoolAccount.submit

    def seen(account: PoolAccount, *given: Any, **named: Any) -> Ticket:
        kept.append(submit(account, *given, **named))
        return kept[-1]

    monkeypatch.setattr(PoolAccount, "submit", seen)
    return kept


def _hits(ticket: Ticket) -> int:
    assert isinstance(ticket.verdict, Dispatch)
    return ticket.verdict.hit_tokens


async def test_equal_texts_with_other_tools_are_no_cached_prefix(world: World, tickets: list[Ticket]) -> None:
    running = await world.ready(3, policy="min-ttft", block_tokens=64)
    for about in ("weather", "trains"):
        await _ask(running, "/v1/chat/completions", _chat(about))
    assert [_hits(ticket) for ticket in tickets] == [0, 0]
    await _ask(running, "/v1/chat/completions", _chat("weather", "Other rules."))
    assert _hits(tickets[-1]) > 1500  # the tools, which come before the system text


async def test_a_salt_is_no_cached_prefix_of_another(world: World, tickets: list[Ticket]) -> None:
    running = await world.ready(1, policy="min-ttft", block_tokens=64)
    for salt in ("a", "b", "a"):
        await _ask(running, "/v1/messages", {**_messages("weather"), "cache_salt": salt})
    assert [_hits(ticket) > 0 for ticket in tickets] == [False, False, True]


async def test_a_word_with_the_tools_of_an_agent_counts_as_many_tokens(world: World, tickets: list[Ticket]) -> None:
    running = await world.ready(1)
    tools = [{"name": name, "description": text * 6, "input_schema": SCHEMA} for name, text in _tools("weather")]
    said = {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    await _ask(running, "/v1/messages", said)
    await _ask(running, "/v1/messages", {**said, "tools": tools})
    plain, agent = (ticket.request.prompt_tokens for ticket in tickets)
    assert plain < 10
    assert agent == pytest.approx(len(json.dumps(tools)) / 4, rel=0.15)

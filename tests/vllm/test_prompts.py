"""A router's view of prompts in every protocol agrees with real vLLM engines.

Their cached tokens, and the total tokens, are predicted exactly.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from fairlead_router.kv_events.prompt_texts import CHAT, MESSAGES, RESPONSES
from fairlead_testing.builders.conversation_forms import FORMS
from fairlead_testing.builders.recorded_clients import RecordedClient, recorded_clients
from fairlead_testing.running.vllm_engine import MODEL, VllmEngine
from fairlead_testing.worlds.real_engines import SECONDS, Live, live_before
from fairlead_testing.worlds.router_worlds import World, until

SMALL_TOKENS = 2_000
"""Tokens of a prompt that fits the two engines of all tests easily."""

Request = tuple[str, Mapping[str, Any]]
"""Path and body."""


async def ask(live: Live, world: World, request: Request) -> tuple[int, int]:
    """Return the tokens of a request's prompt by the engine's count, and by the decision that sent it there."""
    path, body = request
    limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
    kept = {field: given for field, given in body.items() if field not in ("max_completion_tokens", "stream_options", "stream")}
    answer = await live.running.client.post(path, json={**kept, "model": MODEL, limit: 1}, timeout=SECONDS)
    assert answer.status_code == 200, (path, body, answer.text)
    name, reports = answer.headers["x-fairlead-decision"], world.api.state.reports
    await until(lambda: any(one.id == name for report in reports.values() for one in report.decisions), SECONDS)
    [decision] = [one for report in reports.values() for one in report.decisions if one.id == name]
    return prompt_tokens(answer.json()["usage"]), decision.prompt_tokens


async def ask_all(live: Live, world: World, requests: Sequence[Request]) -> list[tuple[int, int]]:
    """Return the counts of `ask` for each request.

    Each is sent once no question for tokens is open and the events of all earlier requests have come.
    """
    told: list[tuple[int, int]] = []
    for request in requests:
        told.append(await ask(live, world, request))
        await until(lambda: not live.running.router.prompt_tokens.asks(live.running.pool), SECONDS)
        for name in live.engines:
            await live.agrees(name)
    return told


@pytest.fixture
def asks_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the router ask engines for every prompt's tokens, even if another prompt has given nearly all of them."""
    monkeypatch.setattr("fairlead_router.gateway.prompt_tokens.KNOWN_ENOUGH", 2.0)


async def assert_known_the_second_time(live: Live, world: World, requests: Sequence[Request]) -> None:
    """Assert that cached tokens are predicted exactly once each prompt's tokens were asked for."""
    counters = live.running.pool.counters
    first_of_all = "/v1/completions", {"prompt": "Begin. " * 60}  # which tells how large the engines' blocks are
    await ask_all(live, world, [first_of_all] * len(live.engines) + [*requests])
    assert set(counters.tokenizing) == {"learnt"} and "unaskable" not in counters.known_prompts
    counters.beliefs.clear()
    counters.known_prompts.clear()
    told = await ask_all(live, world, requests)
    assert [known for _, known in told] == [counted for counted, _ in told]
    assert counters.known_prompts == {"whole": len(requests)}
    believed = counters.beliefs.values()
    assert sum(belief.exact for belief in believed) == sum(belief.requests for belief in believed) == len(requests)
    assert sum(belief.reported_tokens for (_, basis), belief in counters.beliefs.items() if basis == "events") > 0


def prompt_tokens(usage: Mapping[str, Any]) -> int:
    """Return the prompt tokens of a usage in any protocol."""
    if "prompt_tokens" in usage:
        return int(usage["prompt_tokens"])
    return sum(usage.get(field) or 0 for field in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"))


@pytest.mark.usefixtures("asks_for_all")
@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
async def test_every_form_of_a_conversation_is_rendered_as_its_engine_renders_it(live: Live, world: World, path: str) -> None:
    await assert_known_the_second_time(live, world, [(path, body) for body in FORMS[path].values()])


SMALL = [client for client in recorded_clients() if max(each.prompt_tokens for each in client.requests) < SMALL_TOKENS]
LARGE = [client for client in recorded_clients() if client not in SMALL]


@pytest.mark.usefixtures("asks_for_all")
@pytest.mark.parametrize("client", SMALL, ids=lambda client: client.name)
async def test_the_turns_of_an_sdk_with_tools_are_predicted_to_the_token(live: Live, world: World, client: RecordedClient) -> None:
    await assert_known_the_second_time(live, world, [(each.route, each.body) for each in client.requests])


@pytest.fixture(scope="module")
def roomy(engines: dict[str, VllmEngine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, VllmEngine]]:
    """Yield an engine for the prompts of coding agents, whose template takes a system message only at the beginning."""
    folder, tools = tmp_path_factory.mktemp("roomy"), engines["i0"].tools
    template = (tools / "tiny-qwen/chat_template.jinja").read_text(encoding="utf-8")
    refusing = "{%- if message.role == 'system' and not loop.first %}{{ raise_exception('system first') }}{% endif -%}"
    before = "{{- '<|im_start|>' + message.role"
    assert before in template
    (folder / "system-first.jinja").write_text(template.replace(before, refusing + before), encoding="utf-8")
    flags = ("--num-gpu-blocks-override", "3000", "--max-model-len", "65536", "--chat-template", str(folder / "system-first.jinja"))
    engine = VllmEngine(tools=tools, log=folder / "engine.log", name="i0", flags=flags)
    engine.start()
    try:
        engine.wait_ready()
        yield {"i0": engine}
    finally:
        engine.kill()


@pytest.mark.usefixtures("asks_for_all")
@pytest.mark.timeout(3600)
async def test_the_turns_of_coding_agents_are_predicted_to_the_token(world: World, roomy: dict[str, VllmEngine]) -> None:
    live = await live_before(world, roomy)
    requests = [(each.route, each.body) for client in LARGE for each in client.requests]
    assert len(requests) > 12
    await assert_known_the_second_time(live, world, requests)

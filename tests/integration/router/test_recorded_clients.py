"""Recorded conversations of coding agents and SDKs, through a gateway before three engines."""

from collections import defaultdict
from collections.abc import Iterator

import pytest

from fairlead_testing.builders.recorded_clients import RecordedClient, RecordedRequest, recorded_clients
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.running.engine import RunningEngine, engine_starter
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

SPEED = ("--prefill-tokens-per-second", "1000000", "--decode-step-ms", "1", "--kv-cache-tokens", "400000")
LIMITS = {"/v1/responses": "max_output_tokens", "/v1/messages": "max_tokens", "/v1/chat/completions": "max_tokens"}
SHORT_TOKENS = 1_000
"""Tokens of an SDK's conversation whose prefix is too short to return to."""


@pytest.fixture(scope="module")
def engines() -> Iterator[list[RunningEngine]]:
    with engine_starter() as start:
        yield [start(*SPEED) for _ in range(3)]


async def served_by(running: RunningRouter, request: RecordedRequest) -> str:
    """Return the instance that answered a request, sent as its client sent it."""
    limits = {field: 4 for field in ("max_tokens", "max_completion_tokens") if field in request.body} or {LIMITS[request.route]: 4}
    document = {**request.body, "model": "m", **limits}
    answer = await running.client.post(request.path, json=document, headers=dict(request.headers), timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-fairlead-instance"]


@pytest.mark.parametrize("client", recorded_clients(), ids=lambda client: client.name)
async def test_every_request_is_served_and_an_agents_turns_stay_with_one_instance(
    world: World, engines: list[RunningEngine], client: RecordedClient
) -> None:
    world.api.state.set_table(routing_table([f"127.0.0.1:{engine.port}" for engine in engines], model="m", policy="fairlead"))
    running = await world.start_router()
    await until(lambda: bool(running.router.pools.all()), PATIENCE_SECONDS)
    instances = defaultdict[str, list[str]](list)
    for request in client.requests:
        instance = await served_by(running, request)
        if request in client.turns:
            instances[request.headers.get("x-claude-code-agent-id", "main")].append(instance)
    assert sum(map(len, instances.values())) == len(client.turns)
    assert client.turns[0].prompt_tokens < SHORT_TOKENS or all(len(set(seen)) == 1 for seen in instances.values()), instances
    assert running.pool.counters.served == len(client.requests) and running.busy() == 0

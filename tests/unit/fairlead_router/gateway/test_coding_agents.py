"""Coding agents' sessions under every policy: fields that change with each request must not change the placement."""

from dataclasses import replace
from itertools import count
from typing import Any, cast

import orjson
import pytest

from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import SloFacts
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.gateway.prompt_tokens import PromptTokens
from fairlead_router.gateway.routed_requests import RoutedRequests
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.keys import GatewayKeys
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools
from fairlead_router.protocols.answers import Usage
from fairlead_router.protocols.paths import find
from fairlead_router.protocols.requests import parse_request
from fairlead_router.relaying.calls import Calls
from fairlead_router.relaying.held_responses import HeldResponses
from fairlead_testing.builders.routing_tables import routing_table

SESSIONS, TURNS = 6, 4
TOOLS = [{"name": f"tool_{n}", "description": "does a thing " * 30, "input_schema": {"type": "object"}} for n in range(20)]
POLICIES = sorted(set(BUILT_IN.names) - {"static-pd"})


class _Ids:
    def __init__(self) -> None:
        self._numbers = count()

    def next_id(self) -> str:
        return f"r{next(self._numbers)}"


def _turn(session: int, turn: int, billing: str | None) -> dict[str, Any]:
    system = [{"type": "text", "text": f"You work in project {session}. " + "rules " * 1500}]
    if billing is not None:
        system.insert(0, {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch={billing};"})
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": f"task {session} " * 50}]}]
    for n in range(turn):
        use = {"type": "tool_use", "id": f"t{n}", "name": "tool_1", "input": {"path": f"file{n}"}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"line {session} {n} " * 100}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    messages[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}  # moves on with each turn
    return {"model": "mock", "max_tokens": 100, "stream": True, "tools": TOOLS, "system": system, "messages": messages}


def _play(policy: str, *, billed: bool) -> list[tuple[str, int, str]]:
    """Return, for each turn, its instance, the tokens cached there and the reason of the decision."""
    table = replace(routing_table([f"127.0.0.1:{n}" for n in (1, 2, 3)], policy=policy, block_tokens=64), slo=SloFacts(ttft_seconds=3.0))
    now = 1000.0
    pool = Pool(table, PoolScheduler(table, "router-0", 1), RouterMetrics(), now)
    routed = RoutedRequests(
        cast(Pools, None), cast(GatewayKeys, None), cast(Calls, _Ids()), PromptTokens(cast(UpstreamPool, None), lambda: now),
        HeldResponses(), lambda: now,
        trusted=False,
    )  # fmt: skip
    endpoint = find(b"/v1/messages")
    assert endpoint is not None
    sent = []
    for turn in range(TURNS):
        for session in range(SESSIONS):
            now += 0.5
            body = orjson.dumps(_turn(session, turn, f"{turn * SESSIONS + session:05x}" if billed else None))
            request = routed.request(pool, endpoint, parse_request(body, endpoint), [], None, None, now, body_bytes=len(body))
            ticket = pool.account.submit(request, now)
            while ticket.verdict is None:
                now += 0.05
                pool.tick(now)
            verdict = ticket.verdict
            assert isinstance(verdict, Dispatch)
            sent.append((verdict.instance, verdict.hit_tokens, verdict.reason.value))
            pool.account.first_token(ticket, now + 0.1)
            pool.account.complete(ticket, now + 0.2, Usage(20, None, request.prompt_tokens))
    return sent


@pytest.mark.parametrize("policy", POLICIES)
def test_the_line_that_attributes_each_request_changes_no_decision(policy: str) -> None:
    assert _play(policy, billed=True) == _play(policy, billed=False)


@pytest.mark.parametrize("policy", ["fairlead", "cache-affinity", "dualmap", "min-ttft", "dynamo"])
def test_a_session_finds_its_turns_and_all_find_the_tools(policy: str) -> None:
    sent = _play(policy, billed=True)
    homes = [{instance for instance, _, _ in sent[session::SESSIONS]} for session in range(SESSIONS)]
    if policy != "cache-affinity":  # its key may grow, and a session then moves once
        assert all(len(home) == 1 for home in homes)
    later = [hits for _, hits, _ in sent[SESSIONS:]]
    assert min(later) > 2000 or policy == "cache-affinity"
    assert sum(later) / len(later) > 3000

"""A pool in virtual time whose engines report the tokens that they counted: tool traffic, then plain chats."""

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from typing import Any, cast

import orjson
import pytest

from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import EarlyRejectionFacts, SloFacts
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.gateway.prompt_tokens import PromptTokens
from fairlead_router.gateway.routed_requests import RoutedRequests
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.keys import GatewayKeys
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools
from fairlead_router.pools.tickets import Ticket
from fairlead_router.protocols.answers import Usage
from fairlead_router.protocols.paths import find
from fairlead_router.protocols.requests import parse_request
from fairlead_router.relaying.calls import Calls
from fairlead_router.relaying.held_responses import HeldResponses
from fairlead_testing.builders.routing_tables import routing_table

SPEED = 6250.0
WORDS = "It was the best of times, it was the worst of times, "
TOOLS = [{"type": "function", "function": {"name": f"tool-{number}", "description": "d" * 470}} for number in range(100)]
MODES = ("Disabled", "Load", "Predicted", "AfterPrefill")


class _Ids:
    def __init__(self) -> None:
        self._numbers = count()

    def next_id(self) -> str:
        return f"r{next(self._numbers)}"


@dataclass
class LivePool:
    """Three engines that compute prompts one after another, count bytes / 4 of a body, and answer 0.2 s later.

    Tools with which a prompt begins are cached once an engine has computed them.
    """

    mode: str = "Load"
    policy: str = "fairlead"
    now: float = 1000.0
    served: int = 0
    refused: list[Refusal] = field(default_factory=list)
    bytes_per_token: float = 4.0
    _busy_until: dict[str, float] = field(default_factory=dict)
    _cached: dict[str, set[bytes]] = field(default_factory=dict)
    _salt: Any = field(default_factory=count)

    def __post_init__(self) -> None:
        table = routing_table(
            ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"],
            policy=self.policy,
            prefills_in_flight=1,
            early_rejection=EarlyRejectionFacts(mode=self.mode),
            prefill_tokens_per_second=SPEED,
        )
        table = replace(table, slo=SloFacts(ttft_seconds=3.0))
        self.pool = Pool(table, PoolScheduler(table, "router-0", 1), RouterMetrics(), self.now)
        tokens = PromptTokens(cast(UpstreamPool, None), lambda: self.now)
        self._routed = RoutedRequests(
            cast(Pools, None), cast(GatewayKeys, None), cast(Calls, _Ids()), tokens, HeldResponses(), lambda: self.now, trusted=False
        )

    def run(self, clients: int, chats: int, document: dict[str, Any], text_bytes: int = 20_000) -> tuple[int, int]:
        """Return the numbers of requests served and refused when each client sends its chats one after another.

        Each chat has a text of its own.
        """
        served, refused = self.served, len(self.refused)
        events: list[tuple[float, int, str, Any]] = []
        order = count()
        left = [chats] * clients
        waiting: dict[str, int] = {}

        def at(time: float, what: str, about: Any) -> None:
            heappush(events, (time, next(order), what, about))

        for client in range(clients):
            at(self.now + 0.01 * client, "send", client)
        while events:
            self.now, _, what, about = heappop(events)
            if what == "send" and left[about]:
                left[about] -= 1
                ticket, tokens = self._submit(document, text_bytes)
                waiting[ticket.request.id] = about
                at(self.now, "look", (ticket, tokens, orjson.dumps(document)))
            elif what == "look":
                self.pool.tick(self.now)
                self._look(about[0], about[1], about[2], waiting, at)
            elif what == "first":
                self.pool.account.first_token(about[0], self.now)
                at(self.now + 0.2, "end", about)
            elif what == "end":
                ticket, tokens = about
                self.pool.account.complete(ticket, self.now, Usage(20, None, tokens))
                self.served += 1
                at(self.now, "send", waiting.pop(ticket.request.id))
        return self.served - served, len(self.refused) - refused

    def _submit(self, document: dict[str, Any], text_bytes: int) -> tuple[Ticket, int]:
        text = f"{next(self._salt)} {WORDS * (text_bytes // len(WORDS))}"
        body = orjson.dumps({"model": "mock", "stream": True, **document, "messages": [{"role": "user", "content": text}]})
        endpoint = find(b"/v1/chat/completions")
        assert endpoint is not None
        parsed = parse_request(body, endpoint)
        request = self._routed.request(self.pool, endpoint, parsed, [], None, None, self.now, body_bytes=len(body))
        return self.pool.account.submit(request, self.now), int(len(body) / self.bytes_per_token)

    def _look(self, ticket: Ticket, tokens: int, tools: bytes, waiting: dict[str, int], at: Any) -> None:
        verdict = ticket.verdict
        if verdict is None:
            at(self.now + 0.05, "look", (ticket, tokens, tools))
        elif isinstance(verdict, Refusal):
            self.refused.append(verdict)
            at(self.now, "send", waiting.pop(ticket.request.id))
        else:
            assert isinstance(verdict, Dispatch)
            cached = self._cached.setdefault(verdict.instance, set())
            computed = tokens - int(len(tools) / self.bytes_per_token) if tools in cached else tokens
            cached.add(tools)
            done = max(self.now, self._busy_until.get(verdict.instance, 0.0)) + computed / SPEED
            self._busy_until[verdict.instance] = done
            at(done, "first", (ticket, tokens))


def test_plain_chats_are_refused_after_tool_traffic_as_before_it() -> None:
    live = LivePool()
    live.run(1, 300, {})
    before = live.run(9, 6, {})
    assert sum(before) == 54
    assert before[0] >= 45
    assert live.run(1, 480, {"tools": TOOLS}) == (480, 0)
    assert live.run(9, 6, {}) == before


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("document", [{}, {"tools": TOOLS}])
def test_an_idle_pool_serves_single_chats_whatever_it_learned(mode: str, document: dict[str, Any]) -> None:
    live = LivePool(mode)
    live.bytes_per_token = 0.6  # a prompt of 20 kB is of 33,000 tokens, and takes 5 s of the 3 s that the target allows
    assert live.run(1, 30, document) == (30, 0)
    assert live.run(1, 5, {}) == (5, 0)
    live.bytes_per_token = 4.0
    assert live.run(1, 200, {}) == (200, 0)
    assert live.pool.token_sizes.of("/v1/chat/completions") == pytest.approx(4.0, rel=0.1)


def test_counts_that_no_tokenizer_makes_teach_nothing() -> None:
    live = LivePool()
    before = live.run(9, 6, {})
    live.bytes_per_token = 1e-4
    for _ in range(30):
        ticket, _ = live._submit({}, 20_000)
        live.pool.account.complete(ticket, live.now, Usage(1, None, 10**8))
    live.bytes_per_token = 4.0
    live.now += 1.0
    assert live.run(9, 6, {}) == before
    assert live.pool.token_sizes.bytes_per_token == 4.0


def test_what_was_learned_fades_without_traffic_of_its_kind() -> None:
    live = LivePool()
    live.bytes_per_token = 2.0
    live.run(1, 30, {})
    assert live.pool.token_sizes.bytes_per_token == pytest.approx(2.0, rel=0.1)
    live.pool.tick(live.now + 4000)
    assert live.pool.token_sizes.bytes_per_token == 4.0
    assert cast(PoolScheduler, live.pool.scheduler).table.engine.block_tokens == 512

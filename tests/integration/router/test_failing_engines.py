"""Whatever engines do, a client gets one complete answer or one clear error, and the account records which.

Faults are random, over real HTTP, in every protocol, streamed or not.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any

import httpx
import pytest

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead_router.engines.upstream_connections import UpstreamFailure
from fairlead_router.pools.charges import Charge
from fairlead_router.pools.instance_choice import OpinionBudget
from fairlead_router.pools.served_names import ServedNames
from fairlead_router.pools.settling import Settling
from fairlead_testing.worlds.router_worlds import RunningRouter, ScriptedEngine, World, until

SECRET = "flk_the-secret-of-a-team-0123456789"
CASES = 30
TRIES = 3
ERROR = {"message": "KV load failed", "type": "InternalServerError", "code": 500}
USAGE = {"prompt_tokens": 8, "completion_tokens": 3, "input_tokens": 8, "output_tokens": 3}


def _event(document: dict[str, Any]) -> str:
    return (f"event: {document['type']}\n" if "type" in document else "") + f"data: {json.dumps(document)}\n\n"


def _choice(reason: str | None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "finish_reason": reason, **fields}]}


DONE = "data: [DONE]\n\n"
COUNTS = _event({"choices": [], "usage": USAGE})


@dataclass(frozen=True)
class Protocol:
    """What clients of a path send, and what its engines say; without `content` nothing is streamed."""

    path: str
    asks: dict[str, Any]
    whole: dict[str, Any]
    empty: dict[str, Any]
    begins: str = ""
    content: str = ""
    ends: str = ""
    error: str = ""


PROMPT = "word " * 40
CHATTED = [{"role": "user", "content": PROMPT}]
PROTOCOLS = (
    Protocol(
        "/v1/chat/completions",
        {"messages": CHATTED},
        {**_choice("stop", message={"role": "assistant", "content": "tok"}), "usage": USAGE},
        {"choices": []},
        _event(_choice(None, delta={"role": "assistant", "content": ""})),
        _event(_choice(None, delta={"content": "tok"})),
        _event(_choice("stop", delta={})) + COUNTS + DONE,
        _event({"error": ERROR}) + DONE,
    ),
    Protocol(
        "/v1/completions",
        {"prompt": PROMPT},
        {**_choice("length", text="tok"), "usage": USAGE},
        {"choices": [], "usage": USAGE},
        _event(_choice(None, text="")),
        _event(_choice(None, text="tok")),
        _event(_choice("length", text="")) + COUNTS + DONE,
        _event({"error": ERROR}) + DONE,
    ),
    Protocol(
        "/v1/messages",
        {"messages": CHATTED, "max_tokens": 9},
        {"type": "message", "content": [{"type": "text", "text": "tok"}], "stop_reason": "end_turn", "usage": USAGE},
        {"type": "message", "content": []},
        _event({"type": "message_start", "message": {"usage": {"input_tokens": 8}}}),
        _event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "tok"}}),
        _event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}})
        + _event({"type": "message_stop"}),
        _event({"type": "error", "error": {"type": "api_error", "message": "KV load failed"}}),
    ),
    Protocol(
        "/v1/responses",
        {"input": PROMPT},
        {"id": "resp_1", "object": "response", "status": "completed", "output": [{"type": "message"}], "usage": USAGE},
        {"object": "response", "output": []},
        _event({"type": "response.created", "response": {"id": "resp_1"}}),
        _event({"type": "response.output_text.delta", "delta": "tok"}),
        _event({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "usage": USAGE}}),
        _event({"type": "response.failed", "response": {"status": "failed", "error": {"message": "KV load failed"}}}),
    ),
    Protocol(
        "/v1/embeddings",
        {"input": PROMPT},
        {"object": "list", "data": [{"embedding": [0.1, 0.2]}], "usage": {"prompt_tokens": 8}},
        {"object": "list", "data": []},
    ),
)

BROKE = ("500", "error", "empty", "nothing", "cut", "ends early", "hangs up", "page")
"""A request that two engines fail so speaks of itself, unless the second one was lost."""
LOST = ("cut", "hangs up")
REFUSED = ("400", "404")
KINDS = ("good", *BROKE, *REFUSED, "503", "silent", "no model", "breaks", "breaks off")


def _http(body: bytes, status: int = 200, kind: str = "application/json") -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (status, kind.encode(), len(body), body)


def _chunked(text: str, draw: Random, *, ends: bool) -> bytes:
    body, pieces = text.encode(), b""
    while body:
        size = draw.choice((1, 7, 40, 200, 1000))
        pieces += b"%x\r\n%s\r\n" % (len(body[:size]), body[:size])
        body = body[size:]
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n" * ends


def _answer(protocol: Protocol, kind: str, stream: bool, draw: Random) -> tuple[bytes, bool]:
    """Return the bytes that an engine of this kind sends, and whether it then closes the connection."""
    before, whole = protocol.begins + protocol.content, json.dumps(protocol.whole).encode()
    texts = {
        "500": (500, {"error": ERROR}),
        "503": (503, {"error": ERROR}),
        "400": (400, {"error": {"message": "too long: mock", "code": 400}}),
        "404": (404, {"error": {"message": "file 'mock' not found", "code": 404}}),
        "no model": (
            404,
            {"error": {"message": "The model `mock` does not exist.", "type": "NotFoundError", "param": "model", "code": 404}},
        ),
    }
    if kind in texts:
        return _http(json.dumps(texts[kind][1]).encode(), texts[kind][0]), False
    if kind in ("hangs up", "silent"):
        return b"", kind == "hangs up"
    if kind == "page":
        return _http(b"<!doctype html><title>sign in</title>", kind="text/html"), False
    if stream:
        cut = draw.randrange(len(before) - 2)  # a blank line may be cut to one end of a line, which is an end too
        stays = before + protocol.content * draw.randrange(3)
        return {
            "good": (_chunked(before + protocol.ends, draw, ends=True), False),
            "error": (_chunked(draw.choice(("", protocol.begins)) + protocol.error, draw, ends=True), False),
            "empty": (_chunked(protocol.begins, draw, ends=True), False),
            "nothing": (_chunked("", draw, ends=True), False),
            "ends early": (_chunked(before[:cut], draw, ends=True), False),
            "cut": (_chunked(before[:cut], draw, ends=False), True),
            "breaks": (_chunked(stays + protocol.error, draw, ends=True), False),
            "breaks off": (_chunked(stays + protocol.content[: draw.randrange(9)], draw, ends=draw.random() < 0.5), True),
        }[kind]
    cut = draw.randrange(len(whole))
    return {
        "good": (_http(whole), False),
        "error": (_http(json.dumps(draw.choice(({"error": ERROR}, {"object": "error", "message": "x"}, {"detail": "x"}))).encode()), False),
        "empty": (_http(json.dumps(draw.choice((protocol.empty, {}))).encode()), False),
        "nothing": (_http(b""), False),
        "ends early": (_http(whole[:cut]), False),
        "cut": (_http(whole)[: -len(whole)] + whole[:cut], True),
    }[kind]


class Engines:
    """Engines of which each does one thing, and a router that has forgotten what they did before."""

    def __init__(self, world: World, running: RunningRouter, protocol: Protocol, stream: bool, seed: int) -> None:
        self.engines, self.running, self.protocol, self.stream = world.engines, running, protocol, stream
        self.draw = Random(seed)
        self.order: list[str] = []
        self.kinds: dict[str, str] = {}

    def set_up(self) -> None:
        pool, now = self.running.pool, self.running.router.now()
        pool.choice.opinions, pool.choice.names = OpinionBudget(), ServedNames()
        can = [kind for kind in KINDS if self.stream or not kind.startswith("breaks")]
        bad = self.draw.randrange(len(self.engines) + 1)
        kinds = [self.draw.choice(can[1:]) if index < bad else "good" for index in range(len(self.engines))]
        self.draw.shuffle(kinds)
        for engine, kind in zip(self.engines, kinds, strict=True):
            self.running.scheduler.instance_worked(engine.name, now)
            self.kinds[engine.name] = kind
            engine.seen.clear()
            engine.raw, engine.hangs_up_after_raw = _answer(self.protocol, kind, self.stream, self.draw)

    async def ask(self) -> httpx.Response:
        body = {"model": "mock", **self.protocol.asks, **({"stream": True} if self.stream else {})}
        headers = {"x-script": "raw", "authorization": f"Bearer {SECRET}"}
        asking = asyncio.create_task(self.running.client.post(self.protocol.path, json=body, headers=headers))
        given_up: set[str] = set()
        while not asking.done():
            for engine in self.engines:
                if engine.seen and self.kinds[engine.name] == "silent" and engine.name not in given_up:
                    given_up.add(engine.name)
                    _give_up(self.running, engine)
            await asyncio.sleep(0.001)
        asked = [engine for engine in self.engines if engine.seen]
        self.order = [engine.name for engine in sorted(asked, key=lambda engine: engine.seen[0]["number"])]
        return asking.result()

    def tries(self) -> int:
        return sum(len(engine.seen) for engine in self.engines)


def _give_up(running: RunningRouter, engine: ScriptedEngine) -> None:
    """Do as the router does when it has waited for long enough."""
    for call in tuple(running.router.calls._calls):
        if call.connection is not None and call.connection.address == engine.address:
            call.connection.abort(UpstreamFailure("timeout", "it sent nothing"))


def _may_be_an_error(asked: list[str], kinds: list[str], pool: int) -> bool:
    """Return whether a client may get an error after these engines were asked, in this order."""
    if len(asked) in (TRIES, pool):
        return True
    refusals = [kind for kind in kinds if kind in REFUSED]
    return len(kinds) > 1 and (bool(refusals) or (all(kind in BROKE for kind in kinds[-2:]) and kinds[-1] not in LOST))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.path)
async def test_a_client_gets_one_answer_or_one_error_and_the_account_says_which(
    world: World, monkeypatch: pytest.MonkeyPatch, protocol: Protocol, stream: bool
) -> None:
    if stream and not protocol.content:
        pytest.skip("nothing to stream")
    charged: list[tuple[int, int]] = []
    settle = Settling.settle

    def settling(accounts: Settling, charge: Charge, prompt_tokens: int, output_tokens: int, now: float) -> None:
        charged.append((prompt_tokens, output_tokens))
        settle(accounts, charge, prompt_tokens, output_tokens, now)

    monkeypatch.setattr(Settling, "settle", settling)
    world.api.state.set_gateway_keys(GatewayKeyFacts(id="team", digest=sha256(SECRET.encode()).hexdigest(), tokens_per_minute=10**9))
    running = await world.ready(3, policy="round-robin")
    engines = Engines(world, running, protocol, stream, seed=len(protocol.path) + stream)
    counters = running.pool.counters
    for number in range(CASES):
        engines.set_up()
        before = _counted(counters)
        charged.clear()
        answer = await engines.ask()
        await until(lambda: running.busy() == 0)
        kinds = [engines.kinds[name] for name in engines.order]
        case = f"case {number}: {engines.kinds}, asked {engines.order}: {answer.status_code} {answer.text}"
        counted = {name: count - before[name] for name, count in _counted(counters).items() if count != before[name]}
        assert len(engines.order) <= TRIES, case
        # what is lost at once on a connection that was idle may not have reached its engine
        assert engines.tries() - len(engines.order) <= kinds.count("hangs up"), case
        assert sum(counted.values()) == 1, case
        (outcome,) = counted
        assert len(charged) == 1, case
        if answer.status_code >= 400:
            assert not {"good", "breaks", "breaks off"}.intersection(kinds), case
            assert answer.json()["error"]["message"], case
            is_ours = "x-fairlead-rejection" in answer.headers
            assert outcome == ("refused" if is_ours else "rejected_by_engine"), case
            assert is_ours or answer.status_code in (400, 404), case
            assert not (is_ours and set(REFUSED).intersection(kinds)), f"a refusal that nobody contradicts holds; {case}"
            assert charged == [(0, 0)], case
            assert _may_be_an_error(engines.order, kinds, len(world.engines)), case
        elif kinds[-1] == "good":
            assert outcome == "served", case
            assert not {"good", "breaks", "breaks off"}.intersection(kinds[:-1]), case
            whole = (protocol.begins + protocol.content + protocol.ends).replace(COUNTS, "")
            assert answer.text == (whole if stream else json.dumps(protocol.whole)), case
            assert charged == [(8, 0 if protocol.path == "/v1/embeddings" else 3)], case
        else:
            assert kinds[-1] in ("breaks", "breaks off"), case
            assert outcome == "failed", case
            assert answer.text.startswith(protocol.begins + protocol.content), case
            errors = (
                answer.text.count('"error"')
                if protocol.path != "/v1/responses"
                else answer.text.count("event: ") - answer.text.count("event: response.o")
            )
            assert errors >= 1, case
            assert answer.text.count("KV load failed") + answer.text.count("ended early") == 1, case
            assert charged[0][0] > 0, case
            assert charged[0][1] > 0, case
    assert running.router.metrics.accounting_errors == 0
    assert running.scheduler.discrepancies() == ()


def _counted(counters: Any) -> dict[str, int]:
    return {
        "served": counters.served,
        "failed": counters.failed,
        "cancelled": counters.cancelled,
        "rejected_by_engine": counters.rejected_by_engine,
        "refused": sum(counters.refused.values()),
    }


WORDS = b'{"error": {"message": "no way to worker-3.ray.svc:6379 now"}}'
WAYS = {
    "not HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nconte",
    "half an answer": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf",
    "another's credential": b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n",
    "a redirect": b"HTTP/1.1 307 There\r\nlocation: http://10.9.8.7:8000/\r\ncontent-length: 0\r\n\r\n",
    "its own words": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(WORDS), WORDS),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("way", [*WAYS, "nobody listens", "hang-up"])
async def test_clients_read_which_instance_failed_and_never_where_it_is(world: World, way: str, stream: bool) -> None:
    running = await world.ready(count=1)
    engine = world.engines[0]
    engine.raw, engine.hangs_up_after_raw = WAYS.get(way, b""), True
    if way == "nobody listens":
        await engine.stop()
    for path in ("/v1/chat/completions", "/tokenize")[: 1 if way in ("half an answer", "its own words") else 2]:
        body = {"model": "mock", "messages": CHATTED, "prompt": PROMPT, "stream": stream}
        answer = await running.client.post(path, json=body, headers={"x-script": "hang-up" if way == "hang-up" else "raw"})
        assert answer.status_code in (502, 503), answer.text
        told = answer.text + str(answer.headers)
        assert engine.name in answer.text
        for hidden in (engine.address, engine.address.partition(":")[0], engine.address.rpartition(":")[2], "6379", "10.9.8.7", "spec."):
            assert hidden not in told

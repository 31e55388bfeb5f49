"""Charges to keys in virtual time: in whatever order things happen, and however many requests come at once."""

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_router.metrics.endings import CONSEQUENCES, Charged, Ending
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.charges import Charge
from fairlead_router.pools.keys import GatewayKey, GatewayKeys
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.settling import LaterAnswer, Settling
from fairlead_router.pools.tickets import Ticket
from fairlead_router.pools.traffic_recording import TrafficRecording
from fairlead_router.protocols.answers import StreamReader, Usage
from fairlead_router.protocols.refusals import BadRequest
from fairlead_testing.builders.routing_tables import routing_table

SECRET = "flk_a-key-of-a-team"
SHOWN = [(b"x-api-key", SECRET.encode())]
MOST = 10**6


def keys_of(tokens_per_minute: int | None, routers: int = 1, requests_per_minute: int | None = None) -> GatewayKeys:
    keys = GatewayKeys((), RouterMetrics(), required=True)
    keys.know_routers(routers, 0.0)
    digest = sha256(SECRET.encode()).hexdigest()
    facts = GatewayKeyFacts(id="k", digest=digest, tokens_per_minute=tokens_per_minute, requests_per_minute=requests_per_minute)
    keys.replace([facts], 0.0)
    return keys


def the_key(keys: GatewayKeys) -> GatewayKey:
    key = keys.admit(SHOWN, 0.0, counted=False)
    assert key is not None
    return key


def request_of(name: str, prompt_tokens: int, now: float, most_answer: int = 0) -> RoutingRequest:
    return RoutingRequest(
        id=name, arrived_at=now, prompt_tokens=prompt_tokens, blocks=(), first_bytes_hash=0, max_output_tokens=most_answer
    )


def reserved(keys: GatewayKeys, prompt_tokens: int, now: float, most_answer: int = 0) -> Charge | None:
    """Return the charge of a request that passed the limit."""
    try:
        return keys.reserve(the_key(keys), request_of("r", prompt_tokens, now, most_answer), MOST, now)
    except BadRequest:
        return None


def counted(keys: GatewayKeys) -> tuple[int, int, int]:
    uses = [one for one in keys.use.take(0.0, final=True) if one.refusal is None]
    assert all(min(one.requests, one.prompt_tokens, one.output_tokens) >= 0 for one in uses)
    return sum(one.requests for one in uses), sum(one.prompt_tokens for one in uses), sum(one.output_tokens for one in uses)


BURSTS = st.lists(st.tuples(st.floats(0.0, 40.0), st.lists(st.integers(1, 900), max_size=12)), max_size=12)
"""Pairs of the seconds since the burst before and the tokens of the burst's prompts."""


@given(BURSTS, st.integers(60, 3000), st.integers(1, 4), st.integers(0, 200), st.randoms(use_true_random=False))
def test_any_span_of_time_passes_the_limit_and_one_request_at_each_router_whatever_comes_at_once(
    bursts: Sequence[tuple[float, list[int]]], per_minute: int, routers: int, answer: int, random: object
) -> None:
    gateways = [keys_of(per_minute, routers) for _ in range(routers)]
    passed: list[tuple[float, int]] = []
    open_charges: list[tuple[Charge, int]] = []
    now = 0.0
    for pause, prompts in bursts:
        now += pause
        while open_charges and random.random() < 0.5:  # type: ignore[attr-defined]
            ended, prompt = open_charges.pop()
            ended.settle(prompt, answer, now)
        for prompt in prompts:
            charge = reserved(random.choice(gateways), prompt, now, answer)  # type: ignore[attr-defined]
            if charge is not None:
                open_charges.append((charge, prompt))
                passed.append((now, prompt + answer))
    largest = 900 + answer
    burst = max(float(routers), float(per_minute))
    for first, (start, _) in enumerate(passed):
        for last in range(first, len(passed)):
            span = passed[last][0] - start
            taken = sum(tokens for _, tokens in passed[first : last + 1])
            assert taken <= burst + per_minute * span / 60 + routers * largest + 1e-6


def test_a_request_for_several_answers_reserves_and_pays_all_of_them() -> None:
    keys = keys_of(10_000)

    def reserve(answers: int) -> Charge:
        return keys.reserve(the_key(keys), request_of("r", 10, 0.0, 100), MOST, 0.0, answers=answers)

    first = reserve(50)
    second = reserve(50)
    assert the_key(keys).limits.reserve(1, 0, 0.0), "each of the two reserved 5,010 tokens"
    first.settle(10, 50 * 40, 0.0)
    second.settle(10, 50 * 40, 0.0)
    assert the_key(keys).limits.expected_answer(100) == 40, "an answer's length is learnt, not that of all of a request's"
    assert the_key(keys).limits.expected_answer(100, 50) == 2000
    assert the_key(keys).limits.expected_answer(30, 50) == 1500
    assert counted(keys) == (2, 20, 4000)


COMING = st.lists(
    st.tuples(st.floats(0.0, 30.0), st.floats(0.0, 5.0), st.lists(st.tuples(st.integers(1, 900), st.integers(0, 300)), max_size=5)),
    max_size=8,
)
"""Tuples of the seconds since the burst before, the seconds until the bodies are complete, and each prompt's tokens."""


def passed(gateway: GatewayKeys, sizes: Sequence[tuple[int, int]], now: float, reading: float) -> list[tuple[int, int]]:
    """Return the requests, of several at once, that no limit refuses. Their engines fail them, so they cost no
    tokens.
    """
    begun: list[tuple[GatewayKey, tuple[int, int]]] = []
    for size in sizes:
        with suppress(BadRequest):
            key = gateway.admit(SHOWN, now, counted=True)
            assert key is not None
            begun.append((key, size))
    through: list[tuple[int, int]] = []
    charges: list[Charge] = []
    for key, (prompt, answer) in begun:
        with suppress(BadRequest):
            charges.append(gateway.reserve(key, request_of("r", prompt, now, answer), MOST, now + reading))
            through.append((prompt, answer))
    for charge in charges:
        charge.settle(0, 0, now + reading)
    return through


@given(COMING, st.integers(1, 8), st.integers(60, 2000))
def test_a_request_that_one_limit_refuses_takes_nothing_of_any(
    coming: Sequence[tuple[float, float, list[tuple[int, int]]]], requests: int, tokens: int
) -> None:
    gateway, twin = (keys_of(tokens, requests_per_minute=requests) for _ in range(2))
    now = 0.0
    for pause, reading, sizes in coming:
        now += pause
        through = passed(gateway, sizes, now, reading)
        assert passed(twin, through, now, reading) == through, "the twin never hears of those that were refused"
        now += reading
    left = [len(passed(one, [(1, 1)] * 20, now, 0.0)) for one in (gateway, twin)]
    assert left[0] == left[1]


def test_a_prompt_above_the_limit_passes_when_nothing_is_owed_and_then_is_waited_for() -> None:
    keys = keys_of(100)
    charge = reserved(keys, 1000, 0.0)
    assert charge is not None
    charge.settle(1000, 0, 0.0)
    assert reserved(keys, 1, 500.0) is None
    assert reserved(keys, 1000, 541.0) is not None


def test_answers_are_reserved_as_long_as_the_keys_answers_are_and_returned() -> None:
    keys = keys_of(1000)
    first = reserved(keys, 10, 0.0, 5000)
    assert first is not None
    assert reserved(keys, 10, 0.0, 5000) is None, "the first answer may have a minute's worth"
    first.settle(10, 90, 0.0)
    passed = [reserved(keys, 10, 0.0, 5000) for _ in range(12)]
    assert sum(one is not None for one in passed) == 9, "900 are left, and answers have 90"
    assert reserved(keys, 10, 0.0, 1) is None
    for one in passed:
        if one is not None:
            one.settle(0, 0, 0.0)
    assert sum(reserved(keys, 10, 0.0, 1) is not None for _ in range(200)) == 82, "900 are left, and answers have one token"


def test_who_is_refused_for_answers_under_way_is_not_told_to_wait_until_all_of_them_would_be_paid() -> None:
    keys = keys_of(100)
    assert reserved(keys, 10, 0.0, 10**6) is not None
    with pytest.raises(BadRequest) as caught:
        keys.admit(SHOWN, 0.0, counted=True)
    assert dict(caught.value.extra)[b"retry-after"] == b"1"


def test_a_streams_tokens_are_taken_while_they_are_made() -> None:
    keys = keys_of(1000)
    charge = reserved(keys, 100, 0.0)
    assert charge is not None
    charge.generated(850, 0.0)
    assert reserved(keys, 1, 0.0) is not None
    charge.generated(900, 0.0)
    charge.generated(890, 0.0)
    assert reserved(keys, 1, 0.0) is None
    charge.settle(100, 500, 0.0)
    assert reserved(keys, 1, 0.0) is not None
    assert counted(keys) == (3, 100, 500)


def test_an_answer_that_is_made_in_the_background_and_never_read_is_not_for_nothing() -> None:
    keys = keys_of(1000)
    request = request_of("r", 100, 0.0, 400)
    first = keys.reserve(the_key(keys), request, MOST, 0.0, follows=True)
    first.settle(100, 0, 0.0)
    first.settle(0, 0, 0.0)  # it was asked for, and is not ready
    limits = the_key(keys).limits
    second = keys.reserve(the_key(keys), request, MOST, 0.0, follows=True)
    assert limits.reserve(1, 0, 0.0)
    second.settle(0, 0, 0.0)
    assert not limits.reserve(499, 0, 0.0), "what no engine was given is given back whole"
    first.settle(100, 150, 0.0)
    assert counted(keys) == (2, 100, 150)
    assert not limits.reserve(251, 0, 0.0)
    assert limits.reserve(1, 0, 0.0)


def accounts() -> Settling:
    return Settling(RouterMetrics().pool("ns/p"), TrafficRecording(0.0))


def test_a_response_that_is_read_while_it_is_made_gives_back_nothing_that_is_reserved() -> None:
    keys = keys_of(1000)
    charge = reserved(keys, 600, 0.0, 400)
    assert charge is not None
    later = LaterAnswer(accounts(), charge)
    later.feed(b'{"error": {"message": "no such response"}}')
    later.settle(0.0)
    assert reserved(keys, 1, 0.0) is None
    charge.settle(600, 300, 0.0)
    assert reserved(keys, 100, 0.0) is not None
    assert counted(keys) == (2, 600, 300)


@pytest.mark.parametrize("size", [10, 300_000, 2_000_000])
@pytest.mark.parametrize("piece", [1000, 100_000, 10**9])
def test_a_response_that_is_read_later_is_charged_however_long_it_is(size: int, piece: int) -> None:
    keys = keys_of(None)
    charge = reserved(keys, 100, 0.0)
    assert charge is not None
    charge.settle(100, 0, 0.0)
    text = b"a" * size
    document = b'{"id": "resp_1", "output": [{"content": [{"text": "%b"}]}], "usage": {"input_tokens": 100, "output_tokens": 70}}' % text
    later = LaterAnswer(accounts(), charge)
    for start in range(0, len(document), piece):
        later.feed(document[start : start + piece])
    later.settle(0.0)
    assert counted(keys) == (1, 100, 70)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=6))
def test_an_account_that_is_settled_again_charges_only_what_is_more(told: list[tuple[int, int]]) -> None:
    keys = keys_of(10_000)
    charge = reserved(keys, 100, 0.0, 50)
    assert charge is not None
    for prompt, output in told:
        charge.settle(prompt, output, 0.0)
    most = max(prompt for prompt, _ in told), max(output for _, output in told)
    assert counted(keys) == (1, *most)
    rest = reserved(keys, 10_000 - sum(most), 0.0)
    assert rest is not None
    assert reserved(keys, 1, 0.0) is None, "what was taken is what was charged"


# ── a pool's requests, in whatever order things happen to them ──

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ("submit", "send", "stream", "piece", "usage", "last", "tick", "complete", "fail", "late", "decline", "leave", "retry", "stop")
        ),
        st.integers(0, 20),
    ),
    max_size=60,
)
PIECE = b'data: {"choices": [{"delta": {"content": "tok"}}]}\n\n'


def stream_of(ticket: Ticket) -> StreamReader:
    assert ticket.stream is not None
    return ticket.stream


def step(pool: Pool, ticket: Ticket, action: str, now: float) -> None:
    """Apply one event to a request, if it can happen."""
    sent = isinstance(ticket.verdict, Dispatch)
    if action == "send" and sent and not ticket.ended:
        ticket.given = True
    elif action == "stream" and ticket.given and ticket.stream is None:
        ticket.stream = StreamReader()
        pool.account.first_token(ticket, now)
    elif action == "piece" and ticket.stream is not None:
        ticket.stream.feed(PIECE)
    elif action == "usage" and ticket.stream is not None:
        ticket.stream.feed(b'data: {"choices": [], "usage": {"prompt_tokens": 77, "completion_tokens": 42}}\n\n')
    elif action == "last" and ticket.stream is not None:
        ticket.stream.feed(b"data: [DONE]\n\n")
    elif action == "complete" and ticket.given:
        pool.account.complete(ticket, now, Usage(5, None, 60) if ticket.stream is None else ticket.stream.usage())
    elif action == "decline" and ticket.given:
        pool.account.decline(ticket, now)
    elif action == "retry" and sent and not ticket.ended and not ticket.saw_first_token:
        assert isinstance(ticket.verdict, Dispatch)
        pool.account.retry(ticket, ticket.verdict.instance, now, reached=True)
    elif action in ("fail", "late") and sent:
        pool.account.fail(ticket, now, out_of_time=action == "late")
    elif action == "leave":
        pool.account.cancel(ticket, now)


@given(STEPS)
def test_each_request_ends_once_and_costs_what_its_ending_says_whatever_happens_in_whatever_order(
    steps: list[tuple[str, int]],
) -> None:
    table = routing_table(["10.0.0.1:1", "10.0.0.2:1"], policy="least-loaded", prefills_in_flight=1)
    pool = Pool(table, PoolScheduler(table, "router-0", 1), RouterMetrics(), 0.0)
    keys = keys_of(MOST)
    tickets: list[Ticket] = []
    endings: dict[str, Ending] = {}
    now = 0.0
    for number, (action, choice) in enumerate((*steps, *(("leave", place) for place in range(21)))):
        now += 1e-7  # so short that limits refill by less than a token
        if action == "submit":
            request = request_of(str(number), 50 + choice, now, 10)
            tickets.append(pool.account.submit(request, now, keys.reserve(the_key(keys), request, 200, now)))
        elif action == "tick":
            pool.tick(now)
        elif action == "stop":
            pool.account.shut_down(now)
        elif tickets:
            step(pool, tickets[choice % len(tickets)], action, now)
        for ticket in tickets:
            if ticket.ending is not None:
                assert endings.setdefault(ticket.request.id, ticket.ending) is ticket.ending, "it ended once"
    for ticket in tickets:
        pool.account.cancel(ticket, now)
    assert not pool.account.tickets
    assert pool.metrics.accounting_errors == 0
    prompt_tokens = output_tokens = 0
    for ticket in tickets:
        assert ticket.ending is not None
        charged = CONSEQUENCES[ticket.ending].charged
        assert charged is Charged.NOTHING or ticket.given, "what no engine was given costs nothing"
        assert charged is not Charged.NOTHING or not (ticket.given and ticket.ending.value.startswith("left"))
        usage = ticket.usage
        if charged is not Charged.NOTHING:
            prompt_tokens += ticket.request.prompt_tokens if usage is None else usage.prompt_tokens or 0
        if charged is Charged.TOKENS and usage is not None:
            output_tokens += usage.output_tokens
    assert counted(keys) == (len(tickets), prompt_tokens, output_tokens)
    counters = pool.counters
    ended = counters.served + counters.failed + counters.cancelled + counters.rejected_by_engine + sum(counters.refused.values())
    assert ended == counters.submitted == len(tickets)
    limits = the_key(keys).limits
    assert not limits.reserve(MOST - prompt_tokens - output_tokens - 1, 0, now)
    assert not limits.reserve(1, 0, now), "what was taken beyond what was charged is given back"
    assert limits.reserve(1, 0, now), "and no more than that"

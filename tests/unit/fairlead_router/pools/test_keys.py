"""The gateway's keys in virtual time: which requests are admitted, which are refused, and how both are counted."""

from collections import Counter
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.gateway_keys import GatewayKeyFacts, KeyRefusal
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.charges import Charge
from fairlead_router.pools.key_use import KeyUseCounts
from fairlead_router.pools.keys import GatewayKey, GatewayKeys
from fairlead_router.protocols.refusals import BadRequest

SHARED = ("first-key-0123456789", "second-key-0123456789")
TEAM = "flk_a-key-of-a-team"
Headers = list[tuple[bytes, bytes]]


def facts(secret: str = TEAM, **more: Any) -> GatewayKeyFacts:
    return GatewayKeyFacts(id=secret[4:10], digest=sha256(secret.encode()).hexdigest(), **more)


def bearer(secret: str) -> Headers:
    return [(b"authorization", b"Bearer " + secret.encode())]


def gateway(*known: GatewayKeyFacts, required: bool = True) -> tuple[GatewayKeys, RouterMetrics]:
    metrics = RouterMetrics()
    keys = GatewayKeys((), metrics, required=required)
    keys.replace(known, 0.0)
    return keys, metrics


def refused(keys: GatewayKeys, headers: Headers, now: float = 0.0) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        keys.admit(headers, now, counted=True)
    return caught.value


def admitted(keys: GatewayKeys, headers: Headers, now: float = 0.0) -> GatewayKey:
    key = keys.admit(headers, now, counted=True)
    assert key is not None
    return key


def charge(keys: GatewayKeys, key: GatewayKey, prompt_tokens: int, now: float = 0.0, most_answer: int = 0) -> Charge:
    request = RoutingRequest(
        id="r", arrived_at=now, prompt_tokens=prompt_tokens, blocks=(), first_bytes_hash=0, max_output_tokens=most_answer
    )
    return keys.reserve(key, request, 1_000_000, now)


@pytest.mark.parametrize(
    "headers",
    [
        [(b"authorization", b"Bearer first-key-0123456789")],
        [(b"authorization", b"bearer  second-key-0123456789 ")],
        [(b"x-api-key", b"second-key-0123456789")],
        [(b"authorization", b"Bearer of-another-system"), (b"x-api-key", b"first-key-0123456789")],
    ],
)
def test_any_of_the_settings_keys_in_either_header_is_admitted_before_the_api_was_heard(headers: Headers) -> None:
    admitted(GatewayKeys(SHARED, RouterMetrics(), required=False), headers)


@pytest.mark.parametrize(
    ("headers", "said", "reason"),
    [
        ([], "an API key is needed", KeyRefusal.MISSING),
        ([(b"authorization", b"Basic first-key-0123456789")], "an API key is needed", KeyRefusal.MISSING),
        ([(b"authorization", b"Bearer first-key-012345678")], "not known", KeyRefusal.UNKNOWN),
        ([(b"x-api-key", b"")], "not known", KeyRefusal.UNKNOWN),
        ([(b"x-api-key", b"\xff\xfe")], "not known", KeyRefusal.UNKNOWN),
    ],
)
def test_anything_else_is_a_401_that_does_not_repeat_what_was_shown(headers: Headers, said: str, reason: KeyRefusal) -> None:
    metrics = RouterMetrics()
    problem = refused(GatewayKeys(SHARED, metrics, required=False), headers)
    assert said in problem.message
    assert (problem.status, problem.code) == (401, "invalid_api_key")
    assert "first-key" not in problem.message
    assert metrics.key_refusals == {reason.value: 1}


def test_where_no_key_is_required_everybody_is_admitted_as_nobody() -> None:
    keys, metrics = gateway(facts(expires_at=10.0), required=False)
    assert keys.admit([], 0.0, counted=True) is None
    assert keys.admit(bearer("sk-anything"), 0.0, counted=True) is None
    assert keys.admit(bearer(TEAM), 11.0, counted=True) is None, "an expired key is nobody's"
    assert not metrics.key_refusals


def test_where_no_key_is_required_who_shows_one_is_held_to_it() -> None:
    keys, _ = gateway(facts(requests_per_minute=1), required=False)
    assert admitted(keys, bearer(TEAM)).facts.id == "a-key-"
    assert refused(keys, bearer(TEAM)).status == 429


def test_a_key_ends_at_its_second_and_a_revoked_one_with_the_next_list() -> None:
    keys, metrics = gateway(facts(expires_at=100.0), facts("flk_another-one"))
    admitted(keys, bearer(TEAM), 99.9)
    expired = refused(keys, bearer(TEAM), 100.0)
    assert (expired.status, "has expired" in expired.message) == (401, True)
    keys.replace((facts(expires_at=100.0),), 100.0)
    assert refused(keys, bearer("flk_another-one"), 100.0).status == 401
    assert metrics.key_refusals == {"key-expired": 1, "key-unknown": 1}


def test_until_the_list_has_come_a_key_is_not_called_wrong() -> None:
    metrics = RouterMetrics()
    keys = GatewayKeys((), metrics, required=True)
    problem = refused(keys, bearer(TEAM))
    assert (problem.status, problem.code, (b"retry-after", b"1") in problem.extra) == (503, "keys-not-read", True)
    assert refused(keys, []).status == 401, "without a key there is nothing to look up"
    keys.replace((), 0.0)
    assert refused(keys, bearer(TEAM)).status == 401


def test_a_key_over_its_requests_is_told_when_to_come_again_and_others_are_not_touched() -> None:
    keys, metrics = gateway(facts(requests_per_minute=6), facts("flk_another-one", requests_per_minute=6))
    for _ in range(6):
        admitted(keys, bearer(TEAM))
    problem = refused(keys, bearer(TEAM), 0.5)
    assert (problem.status, problem.code) == (429, "rejected-key-requests")
    assert dict(problem.extra)[b"retry-after"] == b"10"
    assert dict(problem.extra)[b"x-fairlead-rejection"] == b"rejected-key-requests"
    for _ in range(6):
        admitted(keys, bearer("flk_another-one"), 0.5)
    admitted(keys, bearer(TEAM), 10.0)
    assert metrics.key_refusals == {"rejected-key-requests": 1}


def test_what_is_not_counted_takes_nothing_from_the_limit() -> None:
    keys, _ = gateway(facts(requests_per_minute=1))
    for _ in range(5):
        keys.admit(bearer(TEAM), 0.0, counted=False)
    admitted(keys, bearer(TEAM))


def test_tokens_are_taken_when_known_and_a_debt_is_waited_for() -> None:
    keys, _ = gateway(facts(tokens_per_minute=600))
    key = admitted(keys, bearer(TEAM))
    charge(keys, key, 500)
    admitted(keys, bearer(TEAM))
    second = charge(keys, key, 700)
    problem = refused(keys, bearer(TEAM))
    assert (problem.status, problem.code, dict(problem.extra)[b"retry-after"]) == (429, "rejected-key-tokens", b"61")
    second.settle(0, 0, 0.0)
    admitted(keys, bearer(TEAM))


def test_a_new_list_leaves_the_limits_of_unchanged_keys_as_they_are() -> None:
    keys, _ = gateway(facts(requests_per_minute=1))
    admitted(keys, bearer(TEAM))
    keys.replace((facts(requests_per_minute=1), facts("flk_another-one")), 1.0)
    assert refused(keys, bearer(TEAM), 1.0).status == 429


def test_a_list_cannot_take_a_key_of_the_settings_away_or_narrow_it() -> None:
    keys = GatewayKeys(SHARED, RouterMetrics(), required=True)
    keys.replace((facts(SHARED[0], pools=("default/other",), requests_per_minute=1),), 0.0)
    assert admitted(keys, bearer(SHARED[0])).facts.pools == ()
    admitted(keys, bearer(SHARED[1]))


def test_a_key_without_a_usable_digest_costs_only_itself() -> None:
    keys, _ = gateway(GatewayKeyFacts(id="odd", digest="not hexadecimal"), facts())
    admitted(keys, bearer(TEAM))


def _served(keys: GatewayKeys, minutes: int) -> int:
    """Return the number of admitted requests when one comes every 0.1 s."""
    served = 0
    for tenth in range(minutes * 600):
        try:
            keys.admit(bearer(TEAM), 1000.0 + tenth / 10, counted=True)
            served += 1
        except BadRequest:
            pass
    return served


@pytest.mark.parametrize("routers", [1, 2, 3])
def test_routers_that_share_a_limit_admit_no_more_than_it_together(routers: int) -> None:
    served = 0
    for _ in range(routers):
        keys, _ = gateway(facts(requests_per_minute=60))
        keys.know_routers(routers, 0.0)
        served += _served(keys, 5)
    assert 60 * 6 - routers <= served <= 60 * 6, "a minute's worth at once, then five more"


def test_a_router_that_comes_or_goes_changes_the_share_of_known_and_new_keys_but_refills_nothing() -> None:
    keys, _ = gateway(facts(requests_per_minute=60))
    for _ in range(60):
        admitted(keys, bearer(TEAM))
    keys.know_routers(2, 0.0)
    assert dict(refused(keys, bearer(TEAM)).extra)[b"retry-after"] == b"2"
    keys.know_routers(2, 1.0)
    keys.know_routers(1, 2.0)
    admitted(keys, bearer(TEAM), 2.0)
    assert dict(refused(keys, bearer(TEAM), 2.0).extra)[b"retry-after"] == b"1"
    keys.know_routers(30, 2.0)
    keys.replace((facts("flk_another-one", requests_per_minute=60),), 2.0)
    for _ in range(2):
        admitted(keys, bearer("flk_another-one"), 2.0)
    assert "60 requests a minute over 30 routers" in refused(keys, bearer("flk_another-one"), 2.0).message


def test_a_share_below_one_request_is_one_at_a_time_and_keeps_its_rate() -> None:
    keys, _ = gateway(facts(requests_per_minute=1))
    keys.know_routers(4, 0.0)
    admitted(keys, bearer(TEAM))
    assert dict(refused(keys, bearer(TEAM)).extra)[b"retry-after"] == b"240"
    admitted(keys, bearer(TEAM), 240.0)


def test_no_router_told_counts_as_this_one() -> None:
    keys, _ = gateway(facts(requests_per_minute=60))
    keys.know_routers(0, 0.0)
    for _ in range(60):
        admitted(keys, bearer(TEAM))


def used(keys: GatewayKeys, now: float) -> dict[tuple[str, int, str | None], tuple[int, int, int]]:
    return {(one.key, one.minute, one.refusal): (one.requests, one.prompt_tokens, one.output_tokens) for one in keys.use.take(now)}


def test_use_is_counted_by_key_minute_and_refusal_and_taken_once() -> None:
    keys, _ = gateway(facts(requests_per_minute=2, expires_at=200.0), facts("flk_another-one"))
    for now in (58.0, 59.0):
        keys.sent_to_pool(admitted(keys, bearer(TEAM), now), now)
    assert refused(keys, bearer(TEAM), 59.0).status == 429
    other = admitted(keys, bearer("flk_another-one"), 61.0)
    keys.out_of_scope(other, 61.0)
    assert refused(keys, bearer(TEAM), 200.0).status == 401
    assert used(keys, 201.0) == {
        ("a-key-", 0, None): (2, 0, 0),
        ("a-key-", 0, "rejected-key-requests"): (1, 0, 0),
        ("anothe", 60, "key-out-of-scope"): (1, 0, 0),
        ("a-key-", 180, "key-expired"): (1, 0, 0),
    }
    assert used(keys, 300.0) == {}


def test_tokens_count_when_the_answer_ends_and_nothing_where_no_engine_worked() -> None:
    keys, _ = gateway(facts(tokens_per_minute=1000))
    key = admitted(keys, bearer(TEAM))
    charge(keys, key, 100, 59.0).settle(90, 30, 61.0)
    charge(keys, key, 100, 61.0).settle(0, 0, 61.0)
    assert used(keys, 62.0) == {("a-key-", 0, None): (1, 0, 0), ("a-key-", 60, None): (1, 90, 30)}


def test_use_is_taken_once_a_second_unless_it_is_the_last_time_or_the_clock_went_back() -> None:
    use = KeyUseCounts()
    use.add("k", 100.0, requests=1)
    assert len(use.take(100.0)) == 1
    use.add("k", 100.1, requests=1)
    assert use.take(100.9) == ()
    assert len(use.take(100.9, final=True)) == 1
    use.add("k", 50.0, requests=1)
    assert len(use.take(50.0)) == 1


def test_the_settings_own_keys_have_no_use() -> None:
    keys = GatewayKeys(SHARED, RouterMetrics(), required=True)
    keys.sent_to_pool(admitted(keys, bearer(SHARED[0])), 0.0)
    assert used(keys, 1.0) == {}


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.floats(0, 400), st.integers(0, 50), st.booleans())))
def test_what_is_taken_adds_up_to_what_was_counted(events: list[tuple[str, float, int, bool]]) -> None:
    use, counted, taken = KeyUseCounts(), Counter[str](), Counter[str]()
    for key, now, tokens, is_taken in events:
        use.add(key, now, prompt_tokens=tokens)
        counted[key] += tokens
        for one in use.take(now) if is_taken else ():
            taken[one.key] += one.prompt_tokens
    for one in use.take(0.0, final=True):
        taken[one.key] += one.prompt_tokens
    assert +taken == +counted


def test_a_key_is_refused_until_its_budget_is_renewed_by_the_apis_clock() -> None:
    keys, metrics = gateway(facts(budget_ends_at=100.0))
    keys.know_clock(5.0)
    problem = refused(keys, bearer(TEAM), 40.0)
    assert (problem.status, problem.code, dict(problem.extra)[b"retry-after"]) == (429, "rejected-key-budget", b"55")
    assert "again in 55 s" in problem.message
    assert metrics.key_refusals == {"rejected-key-budget": 1}
    admitted(keys, bearer(TEAM), 95.0)


def test_a_used_up_budget_gives_no_limit_back() -> None:
    keys, _ = gateway(facts(requests_per_minute=1))
    admitted(keys, bearer(TEAM))
    keys.replace((facts(requests_per_minute=1, budget_ends_at=5.0),), 1.0)
    assert refused(keys, bearer(TEAM), 1.0).code == "rejected-key-budget"
    keys.replace((facts(requests_per_minute=1),), 6.0)
    assert refused(keys, bearer(TEAM), 6.0).code == "rejected-key-requests"

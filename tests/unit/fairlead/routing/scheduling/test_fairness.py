"""Fairness between tenants in the scheduler: whose requests are sent first, and whose are refused."""

from dataclasses import replace

import pytest

from fairlead.instances import InstanceState
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead.tables import EarlyRejectionFacts, PriorityClass, RoutingTable
from fairlead_testing.builders.routing import dispatches, entry, having_seen, refusals, request, table

LOAD = EarlyRejectionFacts(mode="Load")
SECOND = 6250
"""The number of tokens that an instance prefills in a second. The TTFT target is 5 s."""


def of(tenant: str, name: str, tokens: int = SECOND, *, at: float = 0.0, of_class: str = "default") -> RoutingRequest:
    return replace(request(name, tokens, at=at), tenant=tenant, priority_class=of_class)


def fairly(of_table: RoutingTable, fairness: str = "Tenants") -> RoutingTable:
    return replace(of_table, routing=replace(of_table.routing, fairness=fairness))


def scheduler(of_table: RoutingTable, *, held_limit: int = 4096) -> PoolScheduler:
    return having_seen(PoolScheduler(of_table, "router-0", 0, sample_rate=1.0, settings=SchedulerSettings(held_limit=held_limit)))


def pool(rejection: EarlyRejectionFacts | None = None, policy: str = "fairlead", instances: int = 1, **parameters: object) -> PoolScheduler:
    return scheduler(fairly(table(instances, policy=policy, rejection=rejection, parameters=dict(parameters))))


def end(of_pool: PoolScheduler, name: str, now: float) -> list[str]:
    """Give the request its first token and its end; return the requests that are sent then."""
    sent = [*of_pool.first_token(name, now), *of_pool.complete(name, now, 1, None)]
    return [one.request.id for one in dispatches(sent)]


@pytest.mark.parametrize("policy", ["round-robin", "fairlead"])
def test_one_request_behind_a_flood_is_sent_next(policy: str) -> None:
    chat = pool(policy=policy)
    for number in range(8):
        chat.submit(of("flood", f"f{number}"), 0.0)
    chat.submit(of("other", "o", 2 * SECOND), 0.1)
    sent, now = "f0", 0.0
    for _ in range(3):
        now += 1.0
        (sent,) = end(chat, sent, now)
        if sent == "o":
            break
    assert sent == "o"
    assert not chat.discrepancies()


def test_the_one_token_of_what_warms_an_heir_is_no_answer_of_its_tenant() -> None:
    chat = pool()
    chat.submit(of("t", "asked"), 0.0)
    chat.complete("asked", 1.0, 400, None)
    chat.submit(replace(of("t", "warms", at=1.0), warms=True, streamed=False), 1.0)
    chat.complete("warms", 2.0, 1, None)
    assert chat._state.answers.expected("t") == 400
    assert sum(sample.completed for sample in chat.take_records(3.0, final=True).loads) == 1


def test_a_flood_gets_itself_refused_and_nobody_else() -> None:
    chat = pool(rejection=LOAD)
    flood = [refusals(chat.submit(of("flood", f"f{number}"), 0.0)) for number in range(12)]
    assert sum(map(bool, flood)) == 7, "5 s of the 5 s target are taken"
    assert all(one[0].reason is RejectionReason.PREDICTED_TTFT for one in flood if one)
    for number in range(2):
        assert not refusals(chat.submit(of("other", f"o{number}", 2 * SECOND), 0.1))
    (refused,) = refusals(chat.submit(of("other", "o2"), 0.1))
    assert refused.predicted_ttft_seconds is not None
    assert refused.message == (
        f"predicted time to first token {refused.predicted_ttft_seconds:.1f} s exceeds 5.0 s on every instance of pool default/chat; "
        "not counted: up to 4.0 s of prefills that wait now but would be sent after this request"
    )


def test_without_fairness_a_flood_gets_others_refused() -> None:
    chat = scheduler(table(1, policy="fairlead", rejection=LOAD))
    for number in range(12):
        chat.submit(of("flood", f"f{number}"), 0.0)
    assert refusals(chat.submit(of("other", "o0", 2 * SECOND), 0.1))


def test_a_queue_that_a_flood_has_filled_has_room_for_others() -> None:
    chat = pool(policy="round-robin", queue_limit=3)
    flood = [refusals(chat.submit(of("flood", f"f{number}"), 0.0)) for number in range(5)]
    assert [bool(one) for one in flood] == [False, False, False, False, True]
    (refused,) = flood[-1]
    assert (
        refused.message
        == "3 requests already wait for each instance of pool default/chat that could take this one; all of them would be sent before it"
    )
    assert not refusals(chat.submit(of("other", "o"), 0.0))


def test_of_held_requests_those_of_a_flood_give_way() -> None:
    closed = fairly(table([entry("i00", InstanceState.CORDONED)]))
    chat = scheduler(closed, held_limit=4)
    for number in range(4):
        assert not refusals(chat.submit(of("flood", f"f{number}"), 0.0))
    refused = [refusals(chat.submit(of("other", f"o{number}"), 0.0))[0].request.id for number in range(3)]
    assert refused == ["f3", "f2", "o2"]
    assert chat.held().requests == 4
    sent = chat.update_table(replace(closed, version=2, instances=(entry("i00"),)), 1.0)
    assert [one.request.id for one in dispatches(sent)] == ["o0"]
    assert [end(chat, "o0", 2.0), end(chat, "o1", 3.0)] == [["o1"], ["f0"]]


def sized(tenant: str, name: str, body_bytes: int) -> RoutingRequest:
    return replace(of(tenant, name), body_bytes=body_bytes)


def holding(*held: RoutingRequest, limit: int = 4096, held_bytes: int = 1000) -> PoolScheduler:
    """Return a pool that holds these requests, and may hold this many requests and bytes."""
    settings = SchedulerSettings(held_limit=limit, held_bytes=held_bytes)
    made = PoolScheduler(fairly(table([entry("i00", InstanceState.CORDONED)])), "router-0", 0, settings=settings)
    for one in held:
        assert not refusals(made.submit(one, 0.0))
    return made


def refused(chat: PoolScheduler, newcomer: RoutingRequest) -> list[str]:
    return [refusal.request.id for refusal in refusals(chat.submit(newcomer, 0.0))]


def test_for_memory_the_tenant_that_holds_most_of_it_gives_way_however_few_its_requests_are() -> None:
    chat = holding(*(sized("many", f"m{number}", 10) for number in range(9)), sized("large", "l0", 900), sized("large", "l1", 0))
    assert refused(chat, sized("other", "o", 200)) == ["l0"]
    assert chat.held().requests == 11


@pytest.mark.parametrize(("body_bytes", "why"), [(1001, "never fits"), (600, "takes more than what is left to the other")])
def test_a_request_that_would_not_fit_even_so_sends_nobody_away(body_bytes: int, why: str) -> None:
    chat = holding(*(sized("many", f"m{number}", 100) for number in range(9)))
    assert refused(chat, sized("other", "o", body_bytes)) == ["o"], why
    assert chat.held().requests == 9
    assert refused(chat, sized("other", "p", 400)) == ["m8", "m7", "m6"], "and no more than need to go"


def test_those_that_go_for_memory_make_room_among_the_number_too() -> None:
    chat = holding(sized("large", "l0", 900), *(sized("many", f"m{number}", 0) for number in range(3)), limit=4)
    assert refused(chat, sized("other", "o", 200)) == ["l0"]
    assert refused(chat, sized("other", "p", 0)) == ["m2"], "of the number, who has most requests"


def test_of_held_requests_those_of_another_class_stay() -> None:
    closed = fairly(table([entry("i00", InstanceState.CORDONED)], classes=(PriorityClass(name="low", priority=-1),)))
    chat = scheduler(closed, held_limit=2)
    for number in range(2):
        chat.submit(of("flood", f"f{number}"), 0.0)
    (refused,) = refusals(chat.submit(of("other", "o", of_class="low"), 0.0))
    assert refused.request.id == "o"


def test_a_newer_table_puts_what_waits_in_turn_and_back() -> None:
    before = table(1, policy="round-robin")
    chat = scheduler(before)
    for name, tenant in (("f0", "flood"), ("f1", "flood"), ("f2", "flood"), ("o0", "other"), ("o1", "other")):
        chat.submit(of(tenant, name), 0.0)
    chat.update_table(fairly(replace(before, version=2)), 0.1)
    assert end(chat, "f0", 1.0) == ["o0"]
    chat.update_table(replace(before, version=3), 1.1)
    assert [end(chat, "o0", 2.0), end(chat, "o1", 3.0)] == [["o1"], ["f1"]], "as it was put in order before"
    assert not chat.discrepancies()


def test_a_session_of_a_tenant_stays_at_home_behind_another_tenants_flood() -> None:
    """The waiting requests go after its own, so no gain is predicted elsewhere."""
    chat = pool(instances=2)
    (first,) = dispatches(chat.submit(replace(of("other", "o0", 2 * SECOND), session="s", blocks=tuple(range(24))), 0.0))
    end(chat, "o0", 1.0)
    for number in range(8):
        chat.submit(replace(of("flood", f"f{number}", at=1.0), session=f"f{number}"), 1.0)
    chat.submit(replace(of("other", "o1", 2 * SECOND, at=1.0), session="s", blocks=tuple(range(24))), 1.0)
    binding = chat.binding("s")
    assert binding is not None
    assert binding.instance == first.instance

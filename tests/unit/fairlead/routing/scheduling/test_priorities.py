"""Priority classes in the scheduler: which requests are sent first, which are refused first, and their records."""

from dataclasses import replace

from fairlead.instances import InstanceState
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead.tables import EarlyRejectionFacts, PriorityClass, RoutingTable
from fairlead_testing.builders.routing import dispatches, entry, having_seen, refusals, request, table

HIGH, LOW = PriorityClass(name="high", priority=10), PriorityClass(name="low", priority=-10, share=0.5)
LOAD = EarlyRejectionFacts(mode="Load")
SECOND = 6250
"""The number of tokens that an instance prefills in a second. The TTFT target is 5 s."""


def of(priority_class: str, name: str, tokens: int = SECOND, at: float = 0.0) -> RoutingRequest:
    return replace(request(name, tokens, at=at), priority_class=priority_class)


def scheduler(of_table: RoutingTable, *, held_limit: int = 4096) -> PoolScheduler:
    return having_seen(PoolScheduler(of_table, "router-0", 0, sample_rate=1.0, settings=SchedulerSettings(held_limit=held_limit)))


def pool(
    *classes: PriorityClass,
    instances: int = 1,
    rejection: EarlyRejectionFacts | None = None,
    policy: str = "fairlead",
    **parameters: object,
) -> PoolScheduler:
    return scheduler(table(instances, classes=classes, policy=policy, rejection=rejection, parameters=dict(parameters)))


def end(of_pool: PoolScheduler, name: str, now: float) -> list[str]:
    """Give the request its first token and its end; return the requests that are sent then."""
    sent = [*of_pool.first_token(name, now), *of_pool.complete(name, now, 1, None)]
    return [one.request.id for one in dispatches(sent)]


def test_the_higher_class_is_sent_first_though_it_came_last() -> None:
    chat = pool(HIGH, LOW)
    for number, name in enumerate(("low", "default", "high")):
        chat.submit(of(name, name, at=number / 10), number / 10)
    assert end(chat, "low", 1.0) == ["high"]
    assert end(chat, "high", 2.0) == ["default"]
    assert not chat.discrepancies()


def test_a_low_class_is_refused_above_its_share_of_the_limit_while_others_are_admitted() -> None:
    chat = pool(HIGH, LOW, rejection=LOAD)
    for number in range(2):
        assert not refusals(chat.submit(of("high", f"h{number}"), 0.0))
    (refused,) = refusals(chat.submit(of("low", "l"), 0.0))
    assert refused.reason is RejectionReason.PREDICTED_TTFT
    assert refused.message.endswith("exceeds 2.5 s on every instance of pool default/chat; this limit is the share of priority class low")
    assert not refusals(chat.submit(of("default", "d"), 0.0))


def test_a_long_prompt_of_a_low_class_is_no_load_on_an_idle_instance() -> None:
    chat = pool(LOW, rejection=LOAD)
    assert dispatches(chat.submit(of("low", "long", 4 * SECOND), 0.0))
    assert refusals(chat.submit(of("low", "other", SECOND), 0.0))


def test_what_waits_with_lower_priority_does_not_get_a_request_refused() -> None:
    whole = replace(LOW, share=1.0)
    chat = pool(HIGH, whole, rejection=LOAD)
    for number in range(5):
        assert not refusals(chat.submit(of("low", f"l{number}", SECOND - 500), 0.0))
    assert refusals(chat.submit(of("low", "one too many"), 0.0))
    assert not refusals(chat.submit(of("high", "h", 3 * SECOND), 0.0))
    assert end(chat, "l0", 1.0) == ["h"]


def test_a_queue_full_of_a_lower_class_has_room_for_a_higher_one() -> None:
    chat = pool(HIGH, LOW, policy="round-robin", queue_limit=4)
    outcomes = [refusals(chat.submit(of("low", f"l{number}"), 0.0)) for number in range(4)]
    assert [bool(one) for one in outcomes] == [False, False, False, True], "one is sent, and two fill half of the queue"
    (refused,) = outcomes[-1]
    assert refused.message == "2 requests already wait for each instance of pool default/chat that could take this one"
    outcomes = [refusals(chat.submit(of("high", f"h{number}"), 0.0)) for number in range(5)]
    assert [bool(one) for one in outcomes] == [False, False, False, False, True]


def test_held_requests_are_placed_by_priority_and_a_low_class_may_hold_its_share() -> None:
    closed = table([entry("i00", InstanceState.CORDONED)], classes=(HIGH, LOW))
    chat = scheduler(closed, held_limit=4)
    outcomes = [refusals(chat.submit(of(name, f"{name}{number}"), 0.0)) for name in ("low", "high") for number in range(3)]
    assert [bool(one) for one in outcomes] == [False, False, True, False, False, False]
    sent = chat.update_table(replace(closed, version=2, instances=(entry("i00"),)), 1.0)
    assert [one.request.id for one in dispatches(sent)] == ["high0"]


def test_classes_of_a_newer_table_put_queues_in_another_order() -> None:
    before = table(1, policy="fairlead")
    chat = scheduler(before)
    for number, name in enumerate(("first", "low", "high")):
        chat.submit(of(name, name, at=number / 10), number / 10)
    chat.update_table(replace(before, version=2, priority_classes=(HIGH, LOW)), 0.5)
    assert end(chat, "first", 1.0) == ["high"]
    chat.submit(of("high", "h2", at=1.1), 1.1)
    chat.update_table(replace(before, version=3), 1.2)
    assert end(chat, "high", 2.0) == ["low"], "in a pool without classes the one that came first goes first"
    assert not chat.discrepancies()


def test_decisions_and_refusals_are_recorded_with_their_class() -> None:
    chat = pool(HIGH, LOW, rejection=LOAD)
    chat.submit(of("high", "h", 3 * SECOND), 0.0)
    chat.submit(of("low", "l1"), 0.0)
    chat.submit(of("low", "l2"), 0.0)
    end(chat, "h", 3.0)
    records = chat.take_records(10.0)
    assert [(one.request, one.priority_class) for one in records.decisions] == [("l1", "low"), ("l2", "low"), ("h", "high")]
    assert [(one.priority_class, one.count) for one in records.rejections] == [("low", 2)]

"""What routers can expect of a pool without an accepting instance."""

from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead.instances import InstanceState, Role
from fairlead.pools import parse_spec
from fairlead.reconciling.observed import ObservedInstance, PodHealth
from fairlead.table_content import outlook
from fairlead.tables import Outlook

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
NIGHT = {"name": "night", "cron": "0 22 * * *", "duration": "8h", "roles": [{"name": "both", "replicas": 0}]}
DAY = {"name": "day", "cron": "0 8 * * *", "duration": "10h", "roles": [{"name": "both", "minReplicas": 2}]}


def at(hour: int) -> float:
    return datetime(2026, 11, 23, hour, tzinfo=UTC).timestamp()


def instance(state: InstanceState, name: str = "chat-b1", **changes: Any) -> ObservedInstance:
    return ObservedInstance(id=name, health=PodHealth.PENDING, state=state, state_since=0.0, spec_hash="h", created_at=0.0, **changes)


def expected(
    *instances: ObservedInstance,
    replicas: int = 1,
    wanted: int | None = None,
    schedules: list[dict[str, Any]] | None = None,
    mode: str = "Fixed",
    stuck: tuple[str, ...] = (),
    now: float = NOON,
    **role: int,
) -> tuple[Outlook, float | None]:
    document = {
        "model": "m",
        "replicas": replicas,
        "scaling": {"mode": mode, "schedules": schedules or []},
        "roles": [{"name": "both", **role}],
    }
    known = {} if wanted is None else {"both": wanted}
    return outlook(parse_spec(document), {Role.BOTH: replicas}, known, instances, frozenset(stuck), now)


def test_a_new_pool_and_one_whose_instances_start_are_coming() -> None:
    assert expected() == (Outlook.COMING, None)
    assert expected(instance(InstanceState.PENDING), instance(InstanceState.STARTING, "chat-b2"), wanted=2) == (Outlook.COMING, None)


@pytest.mark.parametrize("state", [InstanceState.SERVING, InstanceState.LOST, InstanceState.CORDONED])
def test_nothing_is_said_of_a_pool_that_has_instances_in_service_or_lost_them(state: InstanceState) -> None:
    assert expected(instance(state), instance(InstanceState.PENDING, "chat-b2"), wanted=2) == (Outlook.UNKNOWN, None)


def test_a_prefill_instance_that_serves_alone_is_not_what_requests_wait_for() -> None:
    """Without a decode instance it gets no requests. Requests for the pool are held until a decode instance serves."""
    spec = parse_spec({"model": "m", "roles": [{"name": "prefill", "replicas": 1}, {"name": "decode", "replicas": 1}]})

    def told(prefill: InstanceState, decode: InstanceState, *stuck: str) -> Outlook:
        pair = instance(prefill, "chat-p1", role=Role.PREFILL), instance(decode, "chat-d1", role=Role.DECODE)
        number = {Role.PREFILL: 1, Role.DECODE: 1}
        return outlook(spec, number, {"prefill": 1, "decode": 1}, pair, frozenset(stuck), NOON)[0]

    assert told(InstanceState.SERVING, InstanceState.STARTING) is Outlook.COMING
    assert told(InstanceState.STARTING, InstanceState.SERVING) is Outlook.UNKNOWN
    assert told(InstanceState.SERVING, InstanceState.LOST) is Outlook.UNKNOWN
    assert told(InstanceState.SERVING, InstanceState.PENDING, "chat-d1") is Outlook.UNKNOWN


def test_an_instance_that_cannot_start_is_not_waited_for() -> None:
    stuck = instance(InstanceState.PENDING)
    assert expected(stuck, wanted=1, stuck=("chat-b1",))[0] is Outlook.UNKNOWN
    assert expected(stuck, instance(InstanceState.PENDING, "chat-b2"), wanted=2, stuck=("chat-b1",))[0] is Outlook.COMING


def test_a_pool_that_was_declared_zero_is_closed_once_that_is_in_force() -> None:
    assert expected(instance(InstanceState.SERVING), replicas=0, wanted=1)[0] is Outlook.UNKNOWN
    assert expected(replicas=0, wanted=0) == (Outlook.CLOSED, None)
    assert expected(replicas=1, wanted=0) == (Outlook.COMING, None)


def test_a_pool_that_a_window_closes_opens_when_the_window_ends() -> None:
    assert expected(replicas=2, wanted=0, schedules=[NIGHT], now=at(23)) == (Outlook.CLOSED, at(22) + 8 * 3600)


def test_a_pool_of_zero_opens_with_the_next_window_that_starts_instances() -> None:
    assert expected(replicas=0, wanted=0, schedules=[DAY], now=at(20)) == (Outlook.CLOSED, at(20) + 12 * 3600)
    assert expected(replicas=0, wanted=0, schedules=[{**DAY, "paused": True}], now=at(20)) == (Outlook.CLOSED, None)

"""Sessions of several tenants share no binding. They keep the homes that were bound before names included the
tenant.
"""

from typing import Any

import pytest

from fairlead.reports.bindings import Binding, BindingReason
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.session_identities import session_identity
from fairlead_testing.builders.routing import POOL, table

ONE, OTHER = "1f2e3d4c5b6a7988", "8897a6b5c4d3e2f1"
BLOCKS = (1, 2, 3, 4)


def turn(number: int, owner: str, at: float, session: str | None = "chat", **more: Any) -> RoutingRequest:
    return RoutingRequest(
        id=f"r{number}",
        arrived_at=at,
        prompt_tokens=512 * len(BLOCKS),
        blocks=BLOCKS,
        first_bytes_hash=1,
        session=None if session is None else session_identity(session, owner),
        owner=owner,
        **more,
    )


def bound(home: str) -> Binding:
    """Return the binding that the control API streams for a session bound by a router of an older version."""
    return Binding(pool=POOL, session="chat", instance=home, version=3, reason=BindingReason.HOT_MIGRATION, bound_at=0.0, migrated_at=0.0)


@pytest.mark.parametrize("beginning", [0, 77])
@pytest.mark.parametrize("policy", ["ear", "sticky"])
def test_requests_without_a_name_that_begin_alike_are_sessions_of_their_tenants(policy: str, beginning: int) -> None:
    scheduler = PoolScheduler(table(3, policy=policy), "router-0", 7)
    for number, owner in enumerate((ONE, OTHER, "")):
        scheduler.submit(turn(number, owner, 1.0 + number, session=None, beginning=beginning), 1.0 + number)
    sessions = [change.session for change in scheduler.take_records(9.0).bindings]
    assert len(set(sessions)) == 3
    assert {session.partition("@")[2] for session in sessions} == {ONE, OTHER, ""}


@pytest.mark.parametrize("policy", ["ear", "sticky", "fairlead"])
@pytest.mark.parametrize("home", ["i00", "i01", "i02"])
def test_a_session_that_was_bound_by_its_name_alone_stays_at_its_home_when_its_tenant_is_known(policy: str, home: str) -> None:
    scheduler = PoolScheduler(table(3, policy=policy), "router-0", 7)
    scheduler.apply_bindings([bound(home)], 1.0)
    sent = scheduler.submit(turn(1, ONE, 2.0, beginning=77), 2.0)
    assert [dispatch.instance for dispatch in sent if isinstance(dispatch, Dispatch)] == [home]
    changes = scheduler.take_records(3.0).bindings
    assert [(change.session, change.instance, change.based_on) for change in changes] == [(f"chat@{ONE}", home, 0)]
    old = scheduler.binding("chat")
    assert old is not None
    assert (old.instance, old.version) == (home, 3), "whose it is as well is not known"


def test_a_tenant_gets_nothing_of_a_session_that_clients_without_a_key_use() -> None:
    scheduler = PoolScheduler(table(3, policy="sticky"), "router-0", 7)
    scheduler.apply_bindings([bound("i01")], 1.0)
    scheduler.submit(turn(1, "", 2.0), 2.0)
    before = scheduler.take_records(3.0).bindings
    scheduler.submit(turn(2, ONE, 4.0), 4.0)
    (made,) = scheduler.take_records(5.0).bindings
    assert made.session == f"chat@{ONE}"
    assert made.context_tokens == 512 * len(BLOCKS), "a first home, chosen for this prompt"
    assert not [change for change in before if change.session != "chat"]

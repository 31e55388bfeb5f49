"""Pool state and observations: the operator reports all it sees, and the answers say how routers use it."""

from dataclasses import replace

import pytest

from fairlead.instances import InstanceState
from fairlead.pool_states import InstanceTrouble
from fairlead.reports.batches import Acknowledgement, RouterGone
from fairlead.reports.bindings import BindingReason
from fairlead.reports.engines import EngineTrouble, TroubledEngine
from fairlead.reports.loads import InstanceInFlight, PoolUse
from fairlead.scaling.recommendations import Hold
from fairlead_client.lines import BindingsLine
from fairlead_client.outcomes import Cause, Later, Refused, Taken
from fairlead_testing.builders.scaling import a_scaling_decision
from fairlead_testing.running.api import CHAT, SPEC, a_binding, a_report, a_state, an_instance
from fairlead_testing.running.seams import Clients, Seam, following


async def test_a_state_makes_a_table_and_observations_name_its_instances(clients: Clients) -> None:
    state = a_state(an_instance("a"), an_instance("b", InstanceState.DRAINING), an_instance("c", InstanceState.PENDING, address=None))
    seen = await clients.operator.put_pool_state(CHAT, state)
    assert (seen.table_version, seen.table_acknowledged, seen.live_routers) == (1, True, 0)
    assert sorted(found.id for found in seen.instances) == ["a", "b", "c"]
    table = (await clients.router.tables())[CHAT]
    assert (table.uid, table.version, table.model, table.routing.policy) == ("uid-1", 1, "tiny", "dualmap")
    assert [(entry.id, entry.state, entry.address, entry.accepting) for entry in table.instances] == [
        ("a", InstanceState.SERVING, an_instance("a").address, True),
        ("b", InstanceState.DRAINING, an_instance("b").address, False),
    ]


async def test_a_table_is_new_exactly_when_its_content_is(clients: Clients) -> None:
    states = (
        a_state(an_instance("a"), version=1),
        a_state(an_instance("a", reason="other words"), version=2),
        a_state(an_instance("a"), an_instance("b"), version=3),
        a_state(an_instance("a"), an_instance("b"), version=4, generation=2, spec={**SPEC, "replicas": 3}),
        a_state(an_instance("a"), an_instance("b"), version=5, generation=3, spec={**SPEC, "routing": {"policy": "ear"}}),
    )
    assert [(await clients.operator.put_pool_state(CHAT, state)).table_version for state in states] == [1, 1, 2, 2, 3]


@pytest.mark.parametrize("older", [a_state(version=8, generation=2), a_state(version=9, generation=1)], ids=["version", "generation"])
async def test_a_state_older_than_the_stored_one_is_declined(clients: Clients, older: object) -> None:
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a"), version=9, generation=2))
    outcome = await clients.operator_api.put_state(CHAT, older)  # type: ignore[arg-type]  # a PoolState
    assert isinstance(outcome, Later)
    assert outcome.cause is Cause.DECLINED
    assert ": 409 " in outcome.problem


async def test_a_spec_that_cannot_be_used_is_refused_unless_the_operator_says_so_itself(clients: Clients) -> None:
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a")))
    bad = a_state(an_instance("a"), version=2, generation=2, spec={**SPEC, "replicas": "many"})
    outcome = await clients.operator_api.put_state(CHAT, bad)
    assert isinstance(outcome, Refused)
    assert "spec.replicas" in outcome.problem
    seen = await clients.operator.put_pool_state(CHAT, replace(bad, problem="spec.replicas: a number is needed"))
    assert seen.table_version == 1, "the last good spec stays in force"
    assert (await clients.router.tables())[CHAT].routing.policy == "dualmap"


async def test_what_routers_report_is_observed_until_they_say_goodbye(clients: Clients) -> None:
    state = a_state(an_instance("a"), an_instance("b"))
    await clients.operator.put_pool_state(CHAT, state)
    busy = (InstanceInFlight(pool=CHAT, instance="a", in_flight=3, waiting=1),)
    knows = (Acknowledgement(pool=CHAT, version=1),)
    await clients.router.post_report(a_report("r1", "router-0", in_flight=busy, acknowledged=knows, bindings=(a_binding("s", "b"),)))
    await clients.router.post_report(a_report("r2", "router-1", in_flight=busy))
    seen = await clients.operator.put_pool_state(CHAT, state)
    assert (seen.live_routers, seen.table_acknowledged) == (2, False)
    assert [(found.id, found.in_flight, found.bound_sessions, found.acknowledged) for found in seen.instances] == [
        ("a", 6, 0, False),
        ("b", 0, 1, False),
    ]
    await clients.router.post_router_gone(RouterGone(router="router-1", at=a_report("now").sent_at))
    seen = await clients.operator.put_pool_state(CHAT, state)
    assert (seen.live_routers, seen.table_acknowledged) == (1, True)
    assert [(found.id, found.in_flight, found.acknowledged) for found in seen.instances] == [("a", 3, True), ("b", 0, True)]


async def test_a_router_that_knows_an_older_table_has_not_acknowledged_what_changed_since(clients: Clients) -> None:
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    await clients.router.post_report(a_report("r1", acknowledged=(Acknowledgement(pool=CHAT, version=1),)))
    draining = a_state(an_instance("a", InstanceState.DRAINING), an_instance("b"), version=2)
    seen = await clients.operator.put_pool_state(CHAT, draining)
    assert {found.id: found.acknowledged for found in seen.instances} == {"a": False, "b": True}
    await clients.router.post_report(a_report("r2", acknowledged=(Acknowledgement(pool=CHAT, version=2),)))
    seen = await clients.operator.put_pool_state(CHAT, draining)
    assert {found.id: found.acknowledged for found in seen.instances} == {"a": True, "b": True}


async def test_a_session_stays_with_a_draining_instance_until_its_next_request_and_is_unbound_when_that_is_gone(clients: Clients) -> None:
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    await clients.router.post_report(a_report("r1", bindings=tuple(a_binding(name, "a") for name in ("s", "t", "u"))))
    draining = a_state(an_instance("a", InstanceState.DRAINING), an_instance("b"), version=2)
    seen = await clients.operator.put_pool_state(CHAT, draining)
    assert {found.id: found.bound_sessions for found in seen.instances} == {"a": 3, "b": 0}
    await clients.router.post_report(a_report("r2", bindings=(a_binding("s", "b", based_on=1, reason=BindingReason.DRAIN),)))
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("b"), version=3))
    assert await _homes(clients) == {"s": ("b", 2)}
    await clients.router.post_report(a_report("r3", bindings=(a_binding("t", "b", based_on=1, reason=BindingReason.DRAIN),)))
    assert await _homes(clients) == {"s": ("b", 2), "t": ("b", 2)}


async def _homes(clients: Clients) -> dict[str, tuple[str | None, int]]:
    """Return the instance and version of each session, as a router that connects now receives them."""
    async with following(clients.router_api) as followed:
        lines = await followed.snapshot()
    bindings = [binding for line in lines if isinstance(line, BindingsLine) for binding in line.bindings]
    return {binding.session: (binding.instance, binding.version) for binding in bindings}


async def test_a_scaling_decision_is_told_again_and_again_and_stored_once(seam: Seam, clients: Clients) -> None:
    one, other = a_scaling_decision("scale-1", 1_700_000_000.0), a_scaling_decision("scale-2", 1_700_000_060.0, hold=Hold.COOLDOWN)
    for decisions in ((one,), (one,), (one, other), (other,), ()):
        await clients.operator.put_pool_state(CHAT, a_state(an_instance("a"), scaling_decisions=decisions))
    assert await seam.scaling_decisions() == ["scale-1", "scale-2"]


async def test_a_scaling_decision_of_an_impossible_time_is_refused(clients: Clients) -> None:
    state = a_state(an_instance("a"), scaling_decisions=(a_scaling_decision("scale-1", 1e15),))
    assert isinstance(await clients.operator_api.put_state(CHAT, state), Refused)


def a_use(idle_seconds: float = 0.0, held_requests: int = 0, held_prompt_tokens: int = 0) -> PoolUse:
    return PoolUse(pool=CHAT, held_requests=held_requests, held_prompt_tokens=held_prompt_tokens, idle_seconds=idle_seconds)


async def test_what_routers_hold_and_since_when_they_are_idle_is_told_over_all_of_them(clients: Clients) -> None:
    state = a_state(an_instance("a"))
    assert (await clients.operator.put_pool_state(CHAT, state)).demand is None, "no router, so nothing is known"
    knows = (Acknowledgement(pool=CHAT, version=1),)
    held = a_use(held_requests=3, held_prompt_tokens=900)
    await clients.router.post_report(a_report("r1", "router-0", acknowledged=knows, use=(held,)))
    await clients.router.post_report(a_report("r2", "router-1", acknowledged=knows, use=(a_use(idle_seconds=700.0),)))
    demand = (await clients.operator.put_pool_state(CHAT, state)).demand
    assert demand is not None
    assert (demand.held_requests, demand.held_prompt_tokens, demand.in_flight) == (3, 900, 0)
    assert demand.idle_seconds is not None
    assert demand.idle_seconds < 60
    outcome = await clients.operator_api.held_pools()
    assert isinstance(outcome, Taken)
    assert outcome.answer.pools == (CHAT,)
    await clients.router.post_report(a_report("r3", "router-0", acknowledged=knows, use=(a_use(idle_seconds=650.0),)))
    demand = (await clients.operator.put_pool_state(CHAT, state)).demand
    assert demand is not None
    assert demand.held_requests == 0
    assert demand.idle_seconds is not None
    assert 650 <= demand.idle_seconds < 700
    outcome = await clients.operator_api.held_pools()
    assert isinstance(outcome, Taken)
    assert outcome.answer.pools == ()


async def test_engines_that_are_not_as_the_spec_says_are_told_while_a_live_router_finds_them_so(clients: Clients) -> None:
    state = a_state(an_instance("a"))
    assert (await clients.operator.put_pool_state(CHAT, state)).troubled_engines == ()
    found = tuple(
        TroubledEngine(pool=CHAT, instance=instance, trouble=EngineTrouble.MODEL_NOT_SERVED, words="it serves x, not m")
        for instance in ("a", "gone")
    )
    await clients.router.post_report(a_report("r1", "router-0", troubled_engines=found))
    await clients.router.post_report(a_report("r2", "router-1", troubled_engines=found))
    told = InstanceTrouble(instance="a", trouble="ModelNotServed", words="it serves x, not m")
    assert (await clients.operator.put_pool_state(CHAT, state)).troubled_engines == (told,)
    await clients.router.post_report(a_report("r3", "router-0"))
    await clients.router.post_report(a_report("r4", "router-1"))
    assert (await clients.operator.put_pool_state(CHAT, state)).troubled_engines == ()


async def test_a_router_that_does_not_tell_leaves_the_use_of_its_pools_unknown(clients: Clients) -> None:
    state = a_state(an_instance("a"))
    await clients.operator.put_pool_state(CHAT, state)
    knows = (Acknowledgement(pool=CHAT, version=1),)
    await clients.router.post_report(a_report("r1", "router-0", acknowledged=knows, use=(a_use(idle_seconds=700.0),)))
    await clients.router.post_report(a_report("r2", "router-1", acknowledged=knows))
    assert (await clients.operator.put_pool_state(CHAT, state)).demand is None

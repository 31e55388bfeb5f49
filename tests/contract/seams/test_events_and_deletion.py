"""A pool's events and its end."""

from dataclasses import replace

from fairlead.pool_states import PoolEvent, UnheardPools
from fairlead.tables import PoolKey
from fairlead_client.lines import PoolDeletedLine, TableLine
from fairlead_client.outcomes import Cause, Later, Taken
from fairlead_testing.running.api import CHAT, a_binding, a_report, a_state, an_instance
from fairlead_testing.running.seams import Clients, following

EVENT = PoolEvent(at=1_700_000_000.0, reason="Drained", message="a is empty", instance="a", before={"replicas": 2}, after={"replicas": 1})


async def test_events_are_taken_and_taken_again(clients: Clients) -> None:
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a")))
    for _ in range(2):
        assert await clients.operator_api.post_events(CHAT, [EVENT, PoolEvent(at=EVENT.at + 1, reason="Scaled", message="m")]) == Taken(
            None
        )


async def test_events_of_a_pool_that_was_never_told_are_declined(clients: Clients) -> None:
    outcome = await clients.operator_api.post_events(PoolKey(namespace="default", name="unknown"), [EVENT])
    assert isinstance(outcome, Later)
    assert outcome.cause is Cause.DECLINED


async def test_a_deletion_is_taken_however_often_it_is_told_and_of_whatever_pool(clients: Clients) -> None:
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a")))
    for pool in (CHAT, CHAT, PoolKey(namespace="default", name="unknown")):
        assert await clients.operator_api.delete_pool(pool) == Taken(None)
    assert await clients.router.tables() == {}


async def test_a_deleted_object_does_not_come_back_but_a_new_one_of_its_name_goes_on_counting(clients: Clients) -> None:
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a")))
    await clients.router.post_report(a_report("r1", bindings=(a_binding("s", "a"),)))
    await clients.operator.delete_pool(CHAT)
    late = await clients.operator_api.put_state(CHAT, a_state(an_instance("a"), version=5))
    assert isinstance(late, Later)
    assert (late.cause, "pool-deleted" in late.problem) == (Cause.DECLINED, True)
    seen = await clients.operator.put_pool_state(CHAT, a_state(an_instance("a"), uid="uid-2"))
    assert seen.table_version == 2
    assert [found.bound_sessions for found in seen.instances] == [0]
    later_still = await clients.operator_api.put_state(CHAT, a_state(an_instance("a"), version=99))
    assert isinstance(later_still, Later)
    assert "pool-replaced" in later_still.problem


async def test_pools_of_which_nothing_was_heard_are_told_but_for_deleted_ones_and_those_of_a_file(clients: Clients) -> None:
    served, gone = (PoolKey(namespace="default", name=name) for name in ("served", "gone"))
    file_mark = {"fairlead.dev/engines-file": "/pool.yaml"}
    for pool, annotations in ((CHAT, {}), (served, file_mark), (gone, {})):
        state = a_state(an_instance(f"{pool.name}-a"), uid=f"uid-{pool.name}")
        await clients.operator.put_pool_state(pool, replace(state, annotations=annotations))
    await clients.operator.delete_pool(gone)
    assert await clients.operator_api.unheard_pools(0.0) == Taken(UnheardPools(pools=(CHAT,)))
    assert await clients.operator_api.unheard_pools(3600.0) == Taken(UnheardPools(pools=()))


async def test_routers_hear_of_a_deletion(clients: Clients) -> None:
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a")))
    async with following(clients.router_api) as followed:
        assert (await followed.until(TableLine)).table.pool == CHAT
        await clients.operator.delete_pool(CHAT)
        assert await followed.until(PoolDeletedLine) == PoolDeletedLine(pool=CHAT)

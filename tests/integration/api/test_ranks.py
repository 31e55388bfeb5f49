"""Data-parallel ranks in the control API: sessions, moves and loads belong to a rank, and an instance is their sum."""

from dataclasses import replace

import pytest

from fairlead.reports.bindings import BindingReason
from fairlead_testing.running.api import CHAT, ApiInstance, a_binding, a_load, a_report, a_state, an_instance


async def test_a_move_between_two_ranks_of_an_instance_is_a_migration(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    await api.router.post_report(a_report("r1", bindings=(a_binding("s", "a", rank=2),)))
    move = a_binding("s", "a", id="m1", rank=5, previous="a", previous_rank=2, reason=BindingReason.HOT_MIGRATION, based_on=1)
    await api.router.post_report(a_report("r2", bindings=(move,)))
    found = await api.viewer.session(CHAT, "s")
    assert (found.session.instance, found.session.rank, found.session.version, found.session.migrations) == ("a", 5, 2, 1)
    assert [(holder.instance, holder.rank, holder.migration) for holder in found.history] == [("a", 5, "m1"), ("a", 2, None)]
    migration = await api.viewer.migration("m1")
    assert (migration.origin, migration.destination) == ("a#2", "a#5")
    alive = replace(move, id="", previous_rank=5, based_on=2)
    await api.router.post_report(a_report("r3", bindings=(alive,)))
    assert (await api.viewer.session(CHAT, "s")).session.version == 2, "a sign of life moves nothing"


async def test_a_rank_that_is_found_out_is_stored_and_moves_nothing(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    await api.router.post_report(a_report("r1", bindings=(a_binding("s", "a"),)))
    await api.router.post_report(a_report("r2", bindings=(a_binding("s", "a", rank=4, previous="a", previous_rank=4, based_on=1),)))
    session = (await api.viewer.session(CHAT, "s")).session
    assert (session.rank, session.version, session.migrations) == (4, 1, 0)
    await api.router.post_report(a_report("r3", "router-1", bindings=(a_binding("s", "a", previous="a", based_on=1),)))
    assert (await api.viewer.session(CHAT, "s")).session.rank == 4, "an older router does not know"


async def test_a_shared_name_leaves_no_rank_behind(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    first = a_binding("s", "a", rank=2)
    await api.router.post_report(a_report("r1", bindings=(first,)))
    found = replace(first, id="", previous="a", previous_rank=2, at=first.at + 2, based_on=1, shared=True)
    await api.router.post_report(a_report("r2", bindings=(found,)))
    shown = await api.viewer.session(CHAT, "s")
    assert (shown.session.instance, shown.session.rank) == (None, None) and shown.session.shared_at is not None
    assert [(holder.instance, holder.rank, holder.released_at) for holder in shown.history] == [("a", 2, shown.session.shared_at)]


async def test_an_instance_has_the_sum_of_its_ranks_and_each_is_shown(api: ApiInstance) -> None:
    api.clock.stop()
    second = int(api.clock().timestamp()) - 3
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    loads = (
        a_load("a", second, rank=0, running=3, waiting=1, pending_prefill_tokens=100, kv_usage=0.5),
        a_load("a", second - 1, rank=1, running=4, waiting=0, pending_prefill_tokens=50, kv_usage=0.75),
        a_load("a", second - 2, rank=1, running=90, waiting=90, pending_prefill_tokens=90, kv_usage=0.9),
        a_load("b", second, running=2, waiting=0, pending_prefill_tokens=0, kv_usage=0.125),
    )
    await api.router.post_report(a_report("r1", loads=loads, bindings=(a_binding("s", "a", rank=1),)))
    shown = {one.id: one for one in (await api.viewer.pool(CHAT)).instances}
    assert (shown["a"].running, shown["a"].waiting, shown["a"].pending_prefill_tokens, shown["a"].bound_sessions) == (7, 1, 150, 1)
    assert shown["a"].kv_usage == pytest.approx(0.75) and shown["b"].running == 2
    ranks = (await api.viewer.instance(CHAT, "a")).ranks
    assert [(one.rank, one.running, one.waiting, one.pending_prefill_tokens, one.bound_sessions) for one in ranks] == [
        (0, 3, 1, 100, 0),
        (1, 4, 0, 50, 1),
    ]
    assert (await api.viewer.instance(CHAT, "b")).ranks == []

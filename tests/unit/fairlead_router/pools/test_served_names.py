"""Which engines lack a model's name: however late answers arrive, only the pool's present instances are known."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import RoutingTable
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.served_names import LONGEST_PAUSE_SECONDS, UNLISTED_SECONDS
from fairlead_testing.builders.routing_tables import routing_table

INSTANCES = ("i0", "i1", "i2")
TABLES = st.lists(st.sampled_from(INSTANCES), unique=True, max_size=3)
HEARD = st.tuples(st.sampled_from(["doubt", "contradicted", "lists all", "lists none", "unlisted"]), st.sampled_from(INSTANCES))


def serving(instances: list[str], version: int) -> Pool:
    table = table_of(instances, version)
    return Pool(table, PoolScheduler(table, "router-0", 1), RouterMetrics(), 0.0)


def table_of(instances: list[str], version: int, port: int = 8000) -> RoutingTable:
    addresses = [f"10.0.0.{INSTANCES.index(one)}:{port}" for one in instances]
    return replace(routing_table(addresses, ids=instances), version=version)


@given(st.lists(TABLES | HEARD, max_size=20))
def test_what_is_heard_late_of_an_instance_that_has_left_is_forgotten(happens: list[list[str] | tuple[str, str]]) -> None:
    pool = serving(list(INSTANCES), 1)
    for version, what in enumerate(happens, start=2):
        names, now = pool.choice.names, float(version)
        if isinstance(what, list):
            pool.update(table_of(what, version), now)
        elif what[0] == "doubt":
            names.doubt(what[1])
        elif what[0] == "contradicted":
            names.contradicted(what[1], "mock", now)
        elif what[0] == "unlisted":
            names.unlisted(what[1])
        elif what[1] in pool.addresses:
            pool.choice.listed(what[1], ["mock"] if what[0] == "lists all" else ["other"], now)
        assert names.doubted <= pool.addresses.keys()
        assert {one for found in names.missing.values() for one in found} <= pool.addresses.keys()
        assert all(names.missing.values()), "a name that all serve is left out"


def test_a_new_engine_of_an_instance_is_doubted_like_any_other_and_begins_without_a_past() -> None:
    pool = serving(["i0"], 1)
    pool.choice.names.contradicted("i0", "mock", 1.0)
    assert pool.choice.names.lacking("mock", 1.0)
    pool.update(table_of(["i0"], 2, port=9000), 2.0)
    assert not pool.choice.names.lacking("mock", 2.0)
    pool.choice.names.doubt("i0")
    assert pool.choice.names.doubted == {"i0"}


def test_an_engine_that_refuses_what_it_lists_is_left_out_for_a_pause_that_grows_to_its_bound() -> None:
    pool = serving(["i0", "i1"], 1)
    names, now, pauses = pool.choice.names, 0.0, []
    for _ in range(12):
        names.contradicted("i0", "mock", now)
        left_at = now
        while names.lacking("mock", now):
            now += 1.0
            pool.choice.listed("i0", ["mock"], now)
        pauses.append(now - left_at)
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_SECONDS
    names.contradicted("i1", "mock", now)
    assert names.lacking("mock", now + UNLISTED_SECONDS - 1)
    assert not names.lacking("mock", now + UNLISTED_SECONDS + 1)

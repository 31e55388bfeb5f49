"""The share of a new instance beside instances with full caches, by the operator's weights and the routers' scheduler.

In virtual time: 40 new sessions a second at 4 instances, with a fifth instance from `BORN` on. A share is the
instance's part of the requests of 10 seconds, over the fair part: at 1.0 it gets as much as the others.
"""

from dataclasses import replace
from itertools import count

import pytest

from fairlead.instances import InstanceState
from fairlead.reconciling.observed import DesiredPool, Warming
from fairlead.reconciling.warming import weights
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead.tables import InstanceEntry, RoutingTable
from fairlead_testing.builders.routing import dispatches, entries, request, table
from fairlead_testing.worlds.pool_worlds import instance, wanted

OLD, RATE, SERVICE_SECONDS, BORN, WINDOW = 4, 40, 0.4, 20, 10
ENDS = 50
NEW = f"i{OLD:02d}"


def at(second: int, of: RoutingTable, warming: Warming) -> RoutingTable:
    """Return the table that the operator and the API make of the pool at this second."""
    pool = DesiredPool(roles=(replace(wanted(OLD + 1), warming=warming),))
    observed = [instance(f"i{number:02d}", since=-1000.0) for number in range(OLD)]
    if second >= BORN:
        state = InstanceState.WARMING if second < BORN + warming.seconds else InstanceState.SERVING
        observed.append(instance(NEW, state, since=float(BORN)))
    weight = weights(pool, tuple(observed), float(second))
    instances: tuple[InstanceEntry, ...] = tuple(
        replace(entry, state=one.state, weight=weight.get(one.id, 1.0)) for entry, one in zip(entries(len(observed)), observed, strict=True)
    )
    return of if instances == of.instances else replace(of, version=of.version + 1, instances=instances)


def shares(policy: str, warming: Warming) -> list[float]:
    """Return the new instance's share in each window since its start."""
    scheduler = PoolScheduler(table(OLD, policy=policy, window=0), "r", 0, sample_rate=0.0, settings=SchedulerSettings(load_samples=False))
    running: list[tuple[float, Dispatch]] = []
    given = [0] * ((ENDS - BORN) // WINDOW)
    numbers = count()
    for second in range(ENDS):
        if (found := at(second, scheduler.table, warming)) is not scheduler.table:
            assert scheduler.update_table(found, float(second)) == ()
        for part in range(RATE):
            now = second + part / RATE
            while running and running[0][0] <= now:
                ended, one = running.pop(0)
                scheduler.complete(one.request.id, ended, 20, None)
            number = next(numbers)
            asked = request(f"r{number}", at=now, session=f"s{number}", blocks=(10_000 + number,), tokens=512)
            [sent] = dispatches(scheduler.submit(asked, now))
            scheduler.first_token(asked.id, now)
            running.append((now + SERVICE_SECONDS, sent))
            if second >= BORN:
                given[(second - BORN) // WINDOW] += sent.instance == NEW
    return [part / (RATE * WINDOW) * (OLD + 1) for part in given]


@pytest.mark.parametrize("policy", ["cache-affinity", "dualmap", "sticky"])
def test_by_the_ring_a_new_instance_neither_starves_nor_is_flooded_while_it_warms(policy: str) -> None:
    first, second, then = shares(policy, Warming(seconds=20.0, first_weight=0.25))
    assert 0.3 < first < 0.7, "it has a quarter of its weight, then 44 %"
    assert first + 0.1 < second < 0.9
    assert 0.8 < then < 1.2


@pytest.mark.parametrize("policy", ["cache-affinity", "dualmap", "sticky"])
def test_without_warming_the_ring_gives_it_all_at_once(policy: str) -> None:
    assert 0.85 < shares(policy, Warming())[0] < 1.2


def test_a_policy_that_looks_at_loads_gives_it_a_fair_share_from_the_start() -> None:
    assert all(0.85 < share < 1.1 for share in shares("fairlead", Warming(seconds=20.0, first_weight=0.25)))

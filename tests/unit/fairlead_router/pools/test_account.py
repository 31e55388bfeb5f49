"""The account of a pool's requests: only its own methods change its values, its pool's and those known of engines."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import fairlead_router
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.pool import Pool
from fairlead_testing.builders.routing_tables import routing_table

ROUTER = Path(fairlead_router.__file__).parent
CHANGES = {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}
"""Methods that change lists, sets and dicts. `Pool.update` takes a table, and is not a field."""
TABLE = routing_table(["127.0.0.1:1", "127.0.0.1:2"])


def _path(node: ast.expr) -> tuple[str, ...]:
    match node:
        case ast.Subscript(value=value):
            return _path(value)
        case ast.Attribute(value=value, attr=name):
            return (*_path(value), name)
        case ast.Name(id=name):
            return (name,)
    return ()


def _changed(module: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(module):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                yield from targets
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                yield target
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in CHANGES:
                yield value


def _of_a_pool(path: tuple[str, ...]) -> bool:
    """Return whether the expression is a field of a pool, or of a part of a pool; counters may be changed."""
    at = next((place for place, name in enumerate(path) if name.strip("_") == "pool"), len(path))
    return len(path) > at + 1 and "counters" not in path


def test_nobody_writes_a_field_of_a_pool_but_the_pool() -> None:
    written = [
        f"{module.relative_to(ROUTER)}:{target.lineno} {'.'.join(_path(target))}"
        for module in sorted(ROUTER.rglob("*.py"))
        for target in _changed(ast.parse(module.read_text()))
        if _of_a_pool(_path(target))
    ]
    assert written == []


@given(st.lists(st.sampled_from(("i0", "i1")), max_size=12))
def test_direct_requests_in_flight_are_those_that_began_and_did_not_end(began: list[str]) -> None:
    pool = Pool(TABLE, PoolScheduler(TABLE, "router", 0), RouterMetrics(), 0.0)
    open_now: Counter[str] = Counter()
    for number, instance in enumerate(began):
        pool.account.begin_direct(instance, float(number))
        open_now[instance] += 1
        if number % 3 == 2:
            ended = sorted(open_now.elements())[number % open_now.total()]
            pool.account.end_direct(ended)
            open_now[ended] -= 1
        assert pool.account.direct == dict(+open_now), "an instance without one is left out"
        assert {row.instance: row.in_flight for row in pool.account.in_flight() if row.in_flight} == dict(+open_now)
        assert pool.account.use(100.0).idle_seconds == (0.0 if open_now.total() else 100.0 - number)


def test_a_pool_that_another_router_decides_for_reports_what_went_past_the_scheduler() -> None:
    pool = Pool(TABLE, PoolScheduler(TABLE, "router", 0), RouterMetrics(), 0.0)
    pool.account.decide_elsewhere(1.0)
    assert pool.account.is_decided_elsewhere
    pool.account.begin_direct("i1", 1.0)
    assert [(row.instance, row.in_flight) for row in pool.account.in_flight()] == [("i1", 1)]
    pool.account.decide_here()
    assert not pool.account.is_decided_elsewhere


def test_routers_that_ask_are_counted_while_they_do() -> None:
    pool = Pool(TABLE, PoolScheduler(TABLE, "router", 0), RouterMetrics(), 0.0)
    pool.account.join()
    pool.account.join()
    pool.account.leave(1.0)
    assert pool.account.asking_routers == 1

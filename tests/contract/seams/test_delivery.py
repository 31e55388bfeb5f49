"""A router's spool is emptied into the API, by the lanes that routers use."""

import time
from itertools import count
from pathlib import Path

import pytest

from fairlead.reports.batches import Cargo, ReportBatch
from fairlead_client.outcomes import Cause, Later, Taken
from fairlead_client.report_posts import encode_batch
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.keys import GatewayKeys
from fairlead_router.pools.pools import Pools
from fairlead_router.reporting.delivering import Delivery, Lane
from fairlead_router.reporting.spool import Spool
from fairlead_router.reporting.spool_metrics import SpoolMetrics
from fairlead_testing.running.api import CHAT, a_binding, a_report, a_state, an_instance
from fairlead_testing.running.seams import Clients, Seam
from fairlead_testing.waiting import PATIENCE_SECONDS


class Desk:
    """A router's delivery without the router."""

    def __init__(self, folder: Path, clients: Clients) -> None:
        numbers = count(1)
        now = a_report("now").sent_at
        self.spool = Spool(folder, 1_000_000, time.time)
        self.spool.open()
        self.metrics = RouterMetrics()
        pools = Pools(lambda _table: pytest.fail("no tables here"), self.metrics, lambda: now)
        keys = GatewayKeys((), self.metrics, required=False)
        watched = SpoolMetrics(self.spool, self.metrics, lambda: now)
        self.delivery = Delivery(
            "router-0", pools, keys, self.spool, clients.router_api, self.metrics, watched, lambda: now, lambda: f"state-{next(numbers)}"
        )

    def keep(self, batch_id: str, session: str) -> None:
        batch = ReportBatch(id=batch_id, router="router-0", bindings=(a_binding(session, "a"),))
        self.spool.append(Cargo.HISTORY, 1, encode_batch(batch))


async def bound(clients: Clients) -> int:
    outcome = await clients.operator_api.put_state(CHAT, a_state(an_instance("a")))
    while not isinstance(outcome, Taken):  # an outage may have broken more than one connection to the database
        assert isinstance(outcome, Later)
        assert outcome.cause is Cause.UNAVAILABLE
        outcome = await clients.operator_api.put_state(CHAT, a_state(an_instance("a")))
    (found,) = outcome.answer.instances
    return found.bound_sessions


async def test_a_batch_that_is_refused_costs_itself_and_none_of_its_neighbours(tmp_path: Path, clients: Clients) -> None:
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a")))
    desk = Desk(tmp_path, clients)
    for number in range(8):
        desk.keep("x" * 2000 if number == 3 else f"b{number}", f"s{number}")
    await desk.delivery.finish(PATIENCE_SECONDS)
    assert (len(desk.spool), desk.spool.aside, desk.metrics.report_drops) == (0, 1, {})
    assert await bound(clients) == 7


async def test_batches_wait_through_an_outage_and_are_stored_once(tmp_path: Path, seam: Seam, clients: Clients) -> None:
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a")))
    desk = Desk(tmp_path, clients)
    for number in range(3):
        desk.keep(f"b{number}", f"s{number}")
    lane = Lane(cargo=Cargo.HISTORY)
    async with seam.away():
        assert await desk.delivery.send(lane) is False
        assert (len(desk.spool), desk.metrics.reports_failed, lane.most_batches) == (3, 1, Lane(cargo=Cargo.HISTORY).most_batches)
    while not await desk.delivery.send(lane):
        pass
    assert (len(desk.spool), await bound(clients)) == (0, 3)

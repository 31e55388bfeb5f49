"""What the API gets reported of sessions that a client invents, through the whole scheduler."""

from dataclasses import replace
from itertools import count

from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead_testing.builders.routing import request
from fairlead_testing.builders.routing_tables import routing_table

LIMIT = 40
FLOOD = 200


class Pool:
    """A pool of two instances that serves each request at once, and its router's reports of sessions."""

    def __init__(self) -> None:
        table = routing_table(["127.0.0.1:1", "127.0.0.1:2"])
        table = replace(table, routing=replace(table.routing, policy="fairlead", prefills_in_flight=0))
        self.scheduler = PoolScheduler(table, "router-0", 0, sample_rate=1.0, settings=SchedulerSettings(bindings_limit=LIMIT))
        self._ids = count(1)
        self.now = 1.0

    def serve(self, session: str, owner: str = "") -> None:
        one = replace(request(f"r{next(self._ids)}", 64, session=session, at=self.now), owner=owner)
        outcomes = self.scheduler.submit(one, self.now)
        assert any(isinstance(outcome, Dispatch) for outcome in outcomes)
        self.now += 0.01
        self.scheduler.first_token(one.id, self.now)
        self.scheduler.complete(one.id, self.now, 4, None)
        self.now += 0.01

    def reported(self) -> list[str]:
        return [change.session for change in self.scheduler.take_records(self.now, final=True).bindings if not change.stays]


def test_a_flood_of_made_up_sessions_is_reported_up_to_half_of_what_is_remembered() -> None:
    pool = Pool()
    for number in range(FLOOD):
        pool.serve(f"garbage-{number}", "flooding")
    assert len(pool.reported()) <= LIMIT // 2 + 1
    pool.serve(f"garbage-{FLOOD - 1}", "flooding")
    pool.serve("honest", "other")
    assert pool.reported() == [f"garbage-{FLOOD - 1}", "honest"]

"""The shipped client of the internal protocol, for tests: a call that is not accepted raises, unless the test expects
it.
"""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import fields

from fairlead.pool_states import PoolEvent, PoolObservations, PoolState
from fairlead.reports.batches import Report, ReportBatch, ReportReceipt, RouterGone, RouterState
from fairlead.tables import PoolKey, RoutingTable
from fairlead_client.internal import SystemApi
from fairlead_client.lines import StreamLine, SyncedLine, TableLine
from fairlead_client.outcomes import Answer, Cause, Later, Outcome, Refused, Taken
from fairlead_client.report_posts import encode_batch


class NotTaken(Exception):
    """A call was refused or postponed."""

    def __init__(self, outcome: Refused | Later) -> None:
        self.outcome = outcome
        super().__init__(outcome.problem)

    @property
    def status(self) -> int:
        """The HTTP status; 0 if there was no answer."""
        found = re.search(r": (\d{3}) ", self.outcome.problem)
        return int(found[1]) if found else 0

    @property
    def type(self) -> str:
        """The type of the problem document; empty if there was none."""
        found = re.search(r": \d{3} ([a-z-]+): ", self.outcome.problem)
        return found[1] if found else ""

    @property
    def is_database_outage(self) -> bool:
        """Whether the API answered 503 because its database is unavailable, with the time after which to try again."""
        outcome = self.outcome
        told = isinstance(outcome, Later) and outcome.cause is Cause.UNAVAILABLE and outcome.retry_after_seconds is not None
        return told and (self.status, self.type) == (503, "database-unavailable")


def taken(outcome: Outcome[Answer]) -> Answer:
    """Return the answer of an accepted call. Raises NotTaken."""
    if isinstance(outcome, Taken):
        return outcome.answer
    raise NotTaken(outcome)


class StrictSystemApi:
    """SystemApi whose methods return answers instead of outcomes. Every method raises NotTaken."""

    def __init__(self, api: SystemApi) -> None:
        self.api = api

    async def put_pool_state(self, pool: PoolKey, state: PoolState) -> PoolObservations:
        return taken(await self.api.put_state(pool, state))

    async def post_pool_events(self, pool: PoolKey, events: Sequence[PoolEvent]) -> None:
        taken(await self.api.post_events(pool, events))

    async def delete_pool(self, pool: PoolKey) -> None:
        taken(await self.api.delete_pool(pool))

    async def post_report(self, report: Report) -> ReportReceipt:
        (receipt,) = await self.post_reports(report)
        return receipt

    async def post_reports(self, *reports: Report) -> tuple[ReportReceipt, ...]:
        """Post these reports' batches at once, with the router state of the first report."""
        state = RouterState(**{field.name: getattr(reports[0], field.name) for field in fields(RouterState)})
        return taken(await self.api.post_reports([encode_batch(batch_of(report)) for report in reports], state))

    async def post_router_gone(self, gone: RouterGone) -> None:
        taken(await self.api.post_router_gone(gone))

    def stream(self, router: str) -> AsyncGenerator[StreamLine, None]:
        return self.api.stream(router)

    async def tables(self, router: str = "router-0") -> dict[PoolKey, RoutingTable]:
        """Return the newest table of every pool, from a snapshot of the stream."""
        found: dict[PoolKey, RoutingTable] = {}
        async with aclosing(self.api.stream(router)) as lines:
            async for line in lines:
                if isinstance(line, TableLine):
                    found[line.table.pool] = line.table
                if isinstance(line, SyncedLine):
                    break
        return found


def batch_of(report: Report) -> ReportBatch:
    """Return the report without the router's state."""
    return ReportBatch(**{field.name: getattr(report, field.name) for field in fields(ReportBatch)})

"""The port through which the endpoints of pools are answered."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from fairlead.tables import PoolKey
from fairlead_api.services.spans import Span
from fairlead_client.resources.instances import InstanceDetail, InstanceSummary
from fairlead_client.resources.pages import Page
from fairlead_client.resources.pools import PoolCondition, PoolDetail, PoolEventItem, PoolRevision, PoolSummary
from fairlead_client.resources.slo import SloVersion


class PoolReader(Protocol):
    """Pools and what belongs to them. Single reads raise NotFound."""

    async def pools(self, span: Span, now: datetime) -> Page[PoolSummary]: ...

    async def pool(self, pool: PoolKey, now: datetime) -> PoolDetail: ...

    async def instances(self, pool: PoolKey, span: Span, now: datetime) -> Page[InstanceSummary]: ...

    async def instance(self, pool: PoolKey, instance: str, now: datetime) -> InstanceDetail: ...

    async def revisions(self, pool: PoolKey, span: Span) -> Page[PoolRevision]: ...

    async def events(self, pool: PoolKey, span: Span) -> Page[PoolEventItem]: ...

    async def slo_versions(self, pool: PoolKey, span: Span, now: datetime) -> Page[SloVersion]: ...


def ready_condition(conditions: Sequence[PoolCondition], problem: str | None) -> PoolCondition:
    """The pool's Ready condition; without one, why there is none. Pure."""
    for condition in conditions:
        if condition.type == "Ready":
            return condition
    if problem is not None:
        return PoolCondition(type="Ready", status="False", reason="InvalidSpec", message=problem)
    return PoolCondition(type="Ready", status="Unknown", reason="NotReported", message="The operator has not reported conditions yet.")

"""Records such as schedulers add to a router's reports, and ids for batches of records."""

from collections.abc import Callable
from itertools import count

from fairlead.reports.bindings import BindingChange, BindingReason
from fairlead.reports.moves import MigrationRecord
from fairlead.reports.rejections import RejectionReason, RejectionRecord
from fairlead_testing.builders.routing_tables import CHAT


def a_change(session: str, instance: str = "i0", based_on: int = 0) -> BindingChange:
    return BindingChange(pool=CHAT, session=session, instance=instance, reason=BindingReason.COLD, at=1.0, based_on=based_on)


def a_migration(name: str) -> MigrationRecord:
    return MigrationRecord(
        id=name,
        pool=CHAT,
        session="s",
        request="r",
        source="i0",
        target="i1",
        trigger=BindingReason.SLO,
        at=1.0,
        predicted_source_ttft_seconds=1.0,
        predicted_target_ttft_seconds=0.5,
        benefit_seconds=0.5,
    )


def a_rejection(second: int) -> RejectionRecord:
    return RejectionRecord(
        pool=CHAT,
        second=second,
        reason=RejectionReason.QUEUE_FULL,
        count=1,
        status=429,
        sample_request="r",
        sample_prompt_tokens=1,
        retry_after_seconds=1.0,
    )


def batch_ids() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"batch-{next(numbers)}"

"""The records that each router reports at each tick, and a check of the stored records. The ticks determine which
records must be stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from fairlead.reports.bindings import BindingChange, BindingReason
from fairlead.reports.decisions import CandidateScore, DecisionReason, DecisionRecord, Weighing
from fairlead.reports.loads import LoadSample
from fairlead.reports.moves import MigrationRecord, MoveOutcome
from fairlead.reports.rejections import RejectionReason, RejectionRecord
from fairlead.tables import PoolKey

POOL = PoolKey(namespace="default", name="crashes")
INSTANCES = tuple(f"i{number}" for number in range(8))
MOVES_AFTER = 10
"""Number of ticks after which a session moves to another instance."""
SHARED = 50
"""Interval in ticks: each time that this number of ticks has passed, all routers begin the same session at once."""

_WEIGHING = Weighing(
    rule="slo",
    considered=len(INSTANCES),
    candidates=tuple(
        CandidateScore(
            instance=name, hit_tokens=512, miss_tokens=488, pending_tokens=90, predicted_ttft_seconds=0.4, total=1.0, terms={"load": 1}
        )
        for name in INSTANCES[:2]
    ),
)


def records(router: str, tick: int, decisions: int, at: float, seconds: list[int]) -> dict[str, list[Any]]:
    """Return the records that a router reports at a tick, by the field of the report that contains them. `seconds` are
    the seconds that have ended since the tick before.
    """
    home = INSTANCES[tick % 8]
    found: dict[str, list[Any]] = {
        "decisions": [_decision(f"{router}-d{tick}-{number}", f"{router}-s{tick}", home, at) for number in range(decisions)],
        "bindings": [_begins(f"{router}-c{tick}", f"{router}-s{tick}", home, at)],
        "rejections": [_refused(f"{router}-r{tick}", at)],
        "loads": [_load(instance, second) for second in seconds for instance in INSTANCES],
        "migrations": [],
    }
    begun = tick - MOVES_AFTER
    if begun >= 0:
        home, next_home = INSTANCES[begun % 8], INSTANCES[(begun + 3) % 8]
        name, change = f"{router}-s{begun}", f"{router}-m{begun}"
        found["bindings"].append(
            BindingChange(
                id=change,
                pool=POOL,
                session=name,
                instance=next_home,
                previous=home,
                reason=BindingReason.HOT_MIGRATION,
                at=at,
                based_on=1,
                after=f"{router}-c{begun}",
            )
        )
        found["migrations"].append(_move(change, name, home, next_home, at))
    if tick % SHARED == 0:
        found["bindings"].append(_begins(f"{router}-shared{tick}", f"shared-{tick}", INSTANCES[sum(router.encode()) % 8], at))
    return found


def _decision(name: str, session: str, instance: str, at: float) -> DecisionRecord:
    return DecisionRecord(
        id=name,
        pool=POOL,
        request=f"q-{name}",
        session=session,
        at=at,
        policy="fairlead",
        table_version=1,
        chosen=instance,
        runner_up=INSTANCES[1],
        reason=DecisionReason.SESSION_BOUND,
        prompt_tokens=1000,
        queued_seconds=0.1,
        ttft_seconds=0.4,
        weighing=_WEIGHING,
    )


def _begins(name: str, session: str, instance: str, at: float) -> BindingChange:
    return BindingChange(id=name, pool=POOL, session=session, instance=instance, reason=BindingReason.COLD, at=at, context_tokens=900)


def _move(name: str, session: str, source: str, target: str, at: float) -> MigrationRecord:
    return MigrationRecord(
        id=name,
        pool=POOL,
        session=session,
        request=f"q-{name}",
        source=source,
        target=target,
        trigger=BindingReason.HOT_MIGRATION,
        at=at,
        predicted_source_ttft_seconds=2.0,
        predicted_target_ttft_seconds=0.5,
        benefit_seconds=1.5,
        outcome=MoveOutcome.COMPLETED,
    )


def _refused(request: str, at: float) -> RejectionRecord:
    return RejectionRecord(
        pool=POOL,
        second=int(at),
        reason=RejectionReason.QUEUE_FULL,
        count=3,
        status=503,
        sample_request=request,
        sample_prompt_tokens=100,
        retry_after_seconds=1.0,
    )


def _load(instance: str, second: int) -> LoadSample:
    return LoadSample(
        pool=POOL, instance=instance, second=second, running=3, waiting=1, pending_prefill_tokens=500, in_flight=4, requests=5
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The records that a router wrote to its disk."""

    router: str
    ticks: int
    decisions: int
    seconds: int
    reports: int


def missing_or_doubled(url: str, sent: list[Sent]) -> list[str]:
    """Return a message for each kind of record of which some are not stored exactly once; `url` is in libpq's form."""
    found: list[str] = []
    with psycopg.connect(url) as connection:

        def one(query: str, *values: Any) -> tuple[Any, ...]:
            row = connection.execute(query.encode(), values).fetchone()
            if row is None:
                raise LookupError(query)
            return row

        def same(what: str, wanted: Any, query: str, *values: Any) -> None:
            stored = one(query, *values)
            if any(value != wanted for value in stored):
                found.append(f"{what}: {wanted} were reported, {', '.join(str(value) for value in stored)} are stored")

        for router in sent:
            name, moved = router.router, max(0, router.ticks - MOVES_AFTER)
            same(f"decisions of {name}", router.decisions, "SELECT count(*), count(DISTINCT id) FROM decisions WHERE router = %s", name)
            own = f"{name}-s%"
            same(f"sessions of {name}", router.ticks, "SELECT count(*) FROM sessions WHERE session LIKE %s", own)
            same(f"first holders of {name}", router.ticks, "SELECT count(*) FROM bindings WHERE session LIKE %s AND version = 1", own)
            same(
                f"second holders of {name}",
                moved,
                "SELECT count(*) FROM bindings WHERE session LIKE %s AND version = 2 AND migration = replace(session, '-s', '-m')",
                own,
            )
            same(f"further holders of {name}", 0, "SELECT count(*) FROM bindings WHERE session LIKE %s AND version > 2", own)
            same(f"migrations of {name}", moved, "SELECT count(*), count(DISTINCT id) FROM migrations WHERE router = %s", name)
            refused = "SELECT count(*), count(DISTINCT sample_request), sum(count)::bigint / 3 FROM rejections WHERE router = %s"
            same(f"refusals of {name}", router.ticks, refused, name)
            loads = "SELECT count(*), count(DISTINCT (instance, second)) FROM load_samples WHERE router = %s"
            same(f"load samples of {name}", router.seconds * len(INSTANCES), loads, name)
            same(f"reports of {name}", router.reports, "SELECT count(*) FROM reports WHERE router = %s", name)
        shared = max(-(-router.ticks // SHARED) for router in sent)
        begun_by_all = "shared-%"
        same("sessions that all began", shared, "SELECT count(*), sum(version)::bigint FROM sessions WHERE session LIKE %s", begun_by_all)
        same("holders of them", shared, "SELECT count(*) FROM bindings WHERE session LIKE %s", begun_by_all)
    return found


def rolled_up(url: str) -> tuple[int, int]:
    """Return two numbers that must be equal: the requests in the load samples, and the requests in the rollups of these
    samples by minute.
    """
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT (SELECT coalesce(sum(requests), 0)::bigint FROM load_samples), (SELECT coalesce(sum(requests_total), 0)::bigint FROM load_rollups_1m)"
        ).fetchone()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))

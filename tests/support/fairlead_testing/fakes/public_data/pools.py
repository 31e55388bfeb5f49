"""A made-up pool's revisions, conditions and events, and the state transitions of its instances."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from fairlead.capabilities import EngineCapability, Figure, Source, Spread
from fairlead.instances import InstanceState
from fairlead.reports.engines import EngineTrouble, Quantity
from fairlead.tables import EngineFigures
from fairlead_client.resources.instances import CacheKnowledge, EngineCondition, InstanceSummary, InstanceTransition, LearntOfEngines
from fairlead_client.resources.pools import PoolCondition, PoolEventItem, PoolRevision, PoolSummary
from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES


def revisions(now: datetime, pool: str, spec_of: Callable[[int], dict[str, Any]]) -> list[PoolRevision]:
    last = 4 if pool == CHAT else 1
    actors = ("kubectl-client-side-apply", "fairlead-api", "ada", "kubectl-edit")
    found = []
    for number in range(last, 0, -1):
        before = spec_of(number - 1) if number > 1 else None
        spec = spec_of(number)
        diff = (
            []
            if before is None
            else [
                {"op": "replace", "path": f"/{name}", "before": before[name], "after": spec[name]}
                for name in spec
                if before[name] != spec[name]
            ]
        )
        found.append(
            PoolRevision(
                number=number,
                generation=number,
                at=now - timedelta(hours=5 * (last - number) + 1),
                actor=actors[number - 1],
                reason="Evening peak" if number == 2 else None,
                spec=spec,
                diff=diff,
            )
        )
    return found


def conditions(now: datetime, pool: PoolSummary) -> list[PoolCondition]:
    ready = pool.ready
    since = now - timedelta(minutes=41)
    return [
        PoolCondition(
            type="Ready",
            status=str(ready),
            reason=pool.ready_reason,
            message="All instances serve." if ready else pool.ready_message,
            since=since,
        ),
        PoolCondition(type="RingSynced", status="True", reason="Acknowledged", message="All live routers use table 214.", since=since),
        PoolCondition(
            type="SLOMet",
            status=str(ready),
            reason="Attained" if ready else "Missed",
            message="Attainment over 5 minutes.",
            since=since,
        ),
        PoolCondition(type="Progressing", status="True", reason="Draining", message="1 instance drains.", since=since),
    ]


def events(now: datetime, pool: str) -> list[PoolEventItem]:
    names = INSTANCES[pool]
    return [
        PoolEventItem(at=now - timedelta(minutes=3), reason="DrainStarted", message="Scaling from 8 to 7.", instance=names[-1]),
        PoolEventItem(at=now - timedelta(minutes=9), reason="InstanceAdded", message="Replaces a failed pod.", instance=names[2]),
        PoolEventItem(at=now - timedelta(hours=2), reason="PolicyChanged", message="ear → dualmap, taken without restart.", instance=None),
    ]


def engine_conditions(instance: str) -> list[EngineCondition]:
    """Return the conditions of an instance's engine: one engine makes no progress, all others have no condition."""
    if instance != INSTANCES[CHAT][3]:
        return []
    words = (
        "it has requests and its engine made no progress for longer than the time that its steps allow, although its HTTP server responds"
    )
    return [EngineCondition(reason=EngineTrouble.ENGINE_STALLED, message=words, seconds=42.0, routers=2)]


def caches() -> list[CacheKnowledge]:
    """Return two routers' knowledge of an instance's cache: one received all KV events, the other has just missed
    some.
    """
    heard = CacheKnowledge(
        router="router-0",
        state="current",
        blocks=48_211,
        lag_seconds=0.004,
        gaps=2,
        batches_lost=0,
        restarts=1,
        answered=1_906,
        exact=1_897,
        believed_tokens=4_105_088,
        cached_tokens=4_104_960,
        wrong_tokens=1_312,
    )
    return [heard, replace(heard, router="router-1", state="replaying", gaps=3, answered=0, exact=0, wrong_tokens=0, cached_tokens=0)]


def learnt(pool: str) -> list[LearntOfEngines]:
    """Return two routers' measurements of the engines of the pool `chat`; no measurement of the other pools."""
    if pool != CHAT:
        return []
    size = LearntOfEngines(
        router="router-0",
        quantity=Quantity.TEXT,
        learnt=3.1,
        declared=4.0,
        samples=4_210,
        error=0.043,
        declared_error=0.29,
        in_use=True,
    )
    prefill = replace(
        size, quantity=Quantity.PREFILL, learnt=1 / 5_120, declared=1 / 5_000, samples=1_906, error=0.06, declared_error=0.071, in_use=False
    )
    decode = replace(prefill, quantity=Quantity.DECODE, learnt=0.0312, declared=None, samples=1_733, error=0.094, declared_error=None)
    return [one for row in (prefill, decode, size) for one in (row, replace(row, router="router-1", samples=row.samples // 3))]


def capability(pool: str) -> EngineCapability:
    """Return the engines' capability: measured for the pool `chat`, declared for the other pools."""
    told = EngineFigures(prefill_tokens_per_second=5_000.0).declared
    if pool != CHAT:
        return told
    speed = Figure(
        value=5_120.0, source=Source.MEASURED, spread=Spread(p10=4_870.0, p50=5_110.0, p90=5_260.0), samples=200, age_seconds=20.0
    )
    return replace(
        told,
        prefill_tokens_per_second=speed,
        decode_step_seconds=Figure(value=0.0312, source=Source.MEASURED, samples=1_733, age_seconds=3.0),
        bytes_per_token=Figure(value=3.1, source=Source.MEASURED, samples=100, age_seconds=20.0),
        start_seconds=Figure(value=94.0, source=Source.MEASURED, samples=4, age_seconds=7_500.0),
    )


def transitions(now: datetime, one: InstanceSummary) -> list[InstanceTransition]:
    steps: list[tuple[int, InstanceState | None, InstanceState, str]] = [
        (70, None, InstanceState.PENDING, "Created"),
        (69, InstanceState.PENDING, InstanceState.STARTING, "Scheduled"),
        (68, InstanceState.STARTING, InstanceState.WARMING, "Ready"),
        (66, InstanceState.WARMING, InstanceState.SERVING, "Warm"),
    ]
    if one.state not in (InstanceState.SERVING, InstanceState.WARMING):
        steps.append((4, InstanceState.SERVING, one.state, one.reason))
    return [
        InstanceTransition(at=now - timedelta(minutes=ago), before=before, after=after, reason=reason)
        for ago, before, after, reason in steps
    ]

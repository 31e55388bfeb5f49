"""What this router knows of the prefix cache of each instance, as it tells the control API."""

from collections.abc import Iterator, Mapping, Sequence

from fairlead.kv_events.sequences import SourceState
from fairlead.reports.engines import KnownCache
from fairlead.tables import PoolKey
from fairlead_router.kv_events.instances import EventReading
from fairlead_router.kv_events.metrics import Belief

SILENT = "silent"
_LEAST_HEARD_FIRST = (
    "wrong-block-size",
    "disconnected",
    SourceState.WAITING,
    SourceState.REPLAYING,
    SourceState.INCOMPLETE,
    SourceState.CURRENT,
)


def known_caches(
    pool: PoolKey,
    instances: Sequence[str],
    readings: Mapping[tuple[str, str], Sequence[EventReading]],
    beliefs: Mapping[tuple[str, str], Belief],
) -> Iterator[KnownCache]:
    """Of those instances of the pool that publish events or have told of cached tokens. `beliefs` go by instance and by
    what they came from.
    """
    for instance in instances:
        ranks = readings.get((str(pool), instance), ())
        answered = [belief for basis in ("events", "expected", "history") if (belief := beliefs.get((instance, basis))) is not None]
        if ranks or answered:
            yield _known(pool, instance, ranks, answered)


def _known(pool: PoolKey, instance: str, ranks: Sequence[EventReading], answered: Sequence[Belief]) -> KnownCache:
    lags = [one.lag_seconds for one in ranks if one.lag_seconds is not None]
    return KnownCache(
        pool=pool,
        instance=instance,
        state=min((one.state for one in ranks), key=_LEAST_HEARD_FIRST.index, default=SILENT),
        blocks=sum(one.blocks for one in ranks),
        lag_seconds=max(lags, default=None),
        gaps=sum(one.gaps for one in ranks),
        batches_lost=sum(one.batches_lost for one in ranks),
        restarts=sum(one.restarts for one in ranks),
        answered=sum(one.requests for one in answered),
        exact=sum(one.exact for one in answered),
        believed_tokens=sum(one.predicted_tokens for one in answered),
        cached_tokens=sum(one.reported_tokens for one in answered),
        wrong_tokens=sum(one.difference_tokens for one in answered),
    )

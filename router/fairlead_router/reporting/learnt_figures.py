"""The figures that this router has measured and reports to the control API: about a pool's engines, prefix caches and
prompt texts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fairlead.capabilities import Figure, Source
from fairlead.kv_events.sequences import SourceState
from fairlead.reports.engines import KnownCache, LearntFigure, Quantity
from fairlead.reports.figures_off import off_figure
from fairlead.routing.contracts.estimates import EstimateReport
from fairlead.tables import PoolKey
from fairlead.targets import target_of
from fairlead_router.kv_events.instances import EventReading
from fairlead_router.kv_events.metrics import Belief
from fairlead_router.pools.pool import Pool


def learnt_figures(pool: Pool, now: float) -> Iterator[LearntFigure]:
    """Yield the figures for the whole pool and for each instance in the table. Yields nothing if nothing was measured.

    Also records the time since which a figure for the pool has been wrong by more than half.
    """
    for figure in _figures(pool, now):
        if figure.instance is not None:
            yield figure
            continue
        is_off = off_figure(figure)
        off_seconds = pool.off_seconds(figure.quantity, now, is_off=is_off)
        yield replace(figure, off_seconds=off_seconds) if is_off else figure


def _figures(pool: Pool, now: float) -> Iterator[LearntFigure]:
    sizes = pool.token_sizes.report()
    if sizes.learnt is not None:
        text = LearntFigure(
            pool=pool.key,
            instance=None,
            quantity=Quantity.TEXT,
            learnt=sizes.learnt,
            declared=pool.token_sizes.declared,
            samples=sizes.samples,
            error=sizes.error,
            declared_error=sizes.declared_error,
            in_use=sizes.bytes_per_token != pool.token_sizes.declared,
            predicted=sizes.bytes_per_token,
            observed=sizes.learnt,
        )
        yield _measured(text, pool.token_sizes.measured(now))
    memory = pool.scheduler.engine_memory(now)
    own = memory.known
    scheduler, speed = pool.scheduler, pool.table.engine.prefill_tokens_per_second
    parts = max((len(pool.ranks(instance)) for instance in pool.addresses), default=1) or 1
    yield from _cache_sizes(pool, parts)
    for instance in (None, *pool.addresses):
        targets = (None,) if instance is None else [target_of(instance, rank) for rank in pool.ranks(instance) or (None,)]
        prefilling = max(targets, key=lambda one: scheduler.prefill_estimate(one).samples)  # of ranks, that which taught most
        decoding = max(targets, key=lambda one: scheduler.decode_estimate(one).samples)
        prefill = scheduler.prefill_estimate(prefilling)
        known = own.prefill_tokens_per_second if prefilling is None else scheduler.prefill_figure(now, prefilling)
        if prefill.seconds_per_token is None and known.observed:  # whole answers taught it, and no prefill was seen
            prefill = replace(prefill, seconds_per_token=1 / known.observed, samples=known.samples, in_use=True)
        for figure in _times(pool, instance, Quantity.PREFILL, prefill, parts / speed):
            yield _measured(figure, known, parts)
        for figure in _times(pool, instance, Quantity.DECODE, scheduler.decode_estimate(decoding), None):
            measured = _measured(figure, scheduler.decode_figure(now, decoding))
            yield measured if instance is not None else replace(measured, line=memory.decode_fit)


def _measured(figure: LearntFigure, known: Figure, parts: int = 1) -> LearntFigure:
    """Return the figure with its measured value. `parts`: the instance's number of ranks, which contribute equally."""
    if known.source is not Source.MEASURED or known.value is None:
        return figure
    spread = known.spread
    return replace(
        figure,
        value=known.value * parts,
        value_samples=known.samples,
        age_seconds=known.age_seconds,
        p10=None if spread is None else spread.p10 * parts,
        p50=None if spread is None else spread.p50 * parts,
        p90=None if spread is None else spread.p90 * parts,
    )


def _cache_sizes(pool: Pool, parts: int) -> Iterator[LearntFigure]:
    """Yield the smallest KV cache size that an engine reported; nothing if no engine reported one. The size is current,
    because engines are asked repeatedly.
    """
    sizes = pool.engines.told_cache_sizes
    if sizes:
        told = LearntFigure(
            pool=pool.key,
            instance=None,
            quantity=Quantity.KV_CACHE,
            learnt=float(min(sizes) * parts),
            declared=float(pool.table.engine.kv_cache_tokens),
            samples=len(sizes),
            error=None,
            declared_error=None,
            in_use=True,
        )
        yield replace(told, value=told.learnt, value_samples=told.samples, age_seconds=0.0)


def _times(pool: Pool, instance: str | None, quantity: Quantity, report: EstimateReport, declared: float | None) -> Iterator[LearntFigure]:
    if report.seconds_per_token is not None:
        yield LearntFigure(
            pool=pool.key,
            instance=instance,
            quantity=quantity,
            learnt=report.seconds_per_token,
            declared=declared,
            samples=report.samples,
            error=report.error,
            declared_error=report.declared_error,
            in_use=report.in_use,
            predicted=report.predicted if instance is None else None,
            observed=report.observed if instance is None else None,
        )


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
    """Yield the facts about the caches of those instances of the pool that publish KV events or have reported cached
    tokens. `beliefs`: predicted and reported cached tokens, keyed by instance and basis of the prediction.
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

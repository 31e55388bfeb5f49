"""What this router has learnt of a pool's engines, as it tells the control API."""

from collections.abc import Iterator
from dataclasses import replace

from fairlead.reports.engines import LearntFigure, Quantity
from fairlead.reports.figures_off import off_figure
from fairlead.routing.contracts.estimates import EstimateReport
from fairlead.targets import target_of
from fairlead_router.pool import Pool


def learnt_figures(pool: Pool, now: float) -> Iterator[LearntFigure]:
    """Of all its instances together, and of each in the table; nothing where nothing is learned. Of those together it
    is noted since when they are off.
    """
    for figure in _figures(pool):
        if figure.instance is not None or not off_figure(figure):
            if figure.instance is None:
                pool.figures_off.pop(figure.quantity, None)
            yield figure
        else:
            yield replace(figure, off_seconds=max(0.0, now - pool.figures_off.setdefault(figure.quantity, now)))


def _figures(pool: Pool) -> Iterator[LearntFigure]:
    sizes = pool.token_sizes.report()
    if sizes.learnt is not None:
        yield LearntFigure(
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
    scheduler, speed = pool.scheduler, pool.table.engine.prefill_tokens_per_second
    declared = max((len(pool.ranks(instance)) for instance in pool.addresses), default=1) or 1
    for instance in (None, *pool.addresses):
        targets = (None,) if instance is None else [target_of(instance, rank) for rank in pool.ranks(instance) or (None,)]
        prefill = max((scheduler.prefill_estimate(target) for target in targets), key=_samples)
        decode = max((scheduler.decode_estimate(target) for target in targets), key=_samples)
        yield from _times(pool, instance, Quantity.PREFILL, prefill, declared / speed)
        yield from _times(pool, instance, Quantity.DECODE, decode, None)


def _samples(report: EstimateReport) -> int:
    """Of an instance with data-parallel ranks, that one speaks which has taught most."""
    return report.samples


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

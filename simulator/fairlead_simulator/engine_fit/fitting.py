"""Fits an engine's costs to recorded requests, and measures their error."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from fairlead_client.resources.engine_fits import MOST_POINTS, EngineCosts, EngineFit, FitAccuracy, FitPoint
from fairlead_simulator.engine_fit.records import ServedRecord, check_records, edges
from fairlead_simulator.engine_fit.replaying import Seconds, alone_seconds, replay
from fairlead_simulator.errors import RecordsUnusable

Point = NDArray[np.float64]


def search(loss: Callable[[Point], float], start: Point, size: float, most: int, tolerance: float = 1e-4) -> Point:
    """Return the point with the lowest loss that a search finds in about `most` evaluations of `loss`. The search
    starts with a simplex of the size `size` at `start`. It ends earlier if the losses at the simplex's points differ by
    at most `tolerance`.

    The search is Nelder and Mead's simplex method (The Computer Journal 7, 1965). This method needs no derivatives. The
    loss of a replay has no derivative, because it jumps when a request moves from one step of the engine to the next.
    """
    points = [start, *(start + size * axis for axis in np.eye(len(start)))]
    losses = [loss(point) for point in points]
    asked = len(points)
    while asked < most and max(losses) - min(losses) > tolerance:
        order = np.argsort(losses, kind="stable")
        points, losses = [points[place] for place in order], [losses[place] for place in order]
        middle = np.mean(points[:-1], axis=0)
        point, found, tries = _better(loss, middle, points[-1], losses)
        asked += tries
        if found < losses[-1]:
            points[-1], losses[-1] = point, found
            continue
        points = [points[0], *((points[0] + point) / 2 for point in points[1:])]
        losses = [losses[0], *(loss(point) for point in points[1:])]
        asked += len(start)
    return points[int(np.argmin(losses))]


def _better(loss: Callable[[Point], float], middle: Point, worst: Point, losses: list[float]) -> tuple[Point, float, int]:
    """Return a point that may replace the worst point of the simplex, the loss at this point, and the number of
    evaluations made. The point is the reflection of the worst point, a point beyond the reflection, or a point nearer
    to the middle.
    """
    reflected = 2 * middle - worst
    found = loss(reflected)
    if found < losses[0]:
        further = 3 * middle - 2 * worst
        beyond = loss(further)
        return (further, beyond, 2) if beyond < found else (reflected, found, 2)
    if found < losses[-2]:
        return reflected, found, 1
    nearer = (middle + (reflected if found < losses[-1] else worst)) / 2
    return nearer, loss(nearer), 2


FITTED_SHARE = 0.5
"""Share of the records (the oldest) to which the costs are fitted; the fit's error is measured on the later records."""
MOST_RECORDS = 2_000
"""Maximum number of records used, the newest. A replay of more records takes longer and hardly improves the fit."""
ROUNDS = 3
EVALUATIONS = 150
"""Maximum number of evaluations of the loss in one search."""
_SIZES = (0.3, -0.3, 0.2, -0.2, 0.1, -0.1)
"""The sizes of the first simplexes of successive searches; each search starts at the point that the previous search
found. Searches with the first two sizes find the records that contradict themselves (see `_SOONEST`). After that,
searches with all six sizes improve the fit.
"""
_LEAST_GAIN = 0.01
_LEAST_JUDGED = 20
_SOONEST = 0.7
"""Minimum TTFT of a consistent record, as a share of the TTFT that the model predicts for an idle engine. A record with
a lower TTFT contradicts itself: more of its prompt must have been cached than the record says.
"""
_TTFT_ERROR, _TPOT_ERROR = 0.1, 0.05
"""Relative errors of TTFT and of TPOT up to which the loss grows fast. It grows slowly with larger errors, because some
records have large errors for reasons outside the model: clocks, networks and other work.
"""

Flags = NDArray[np.bool_]
Progress = Callable[[int, int], None]

_COSTS = tuple(field.name for field in fields(EngineCosts) if field.name != "max_batched_tokens")


@dataclass(frozen=True, slots=True)
class _Scale:
    """The unit of each cost during the search. It is a rough estimate of that cost, made from the records without a
    replay.
    """

    values: Point
    max_batched_tokens: int

    def costs(self, point: Point) -> EngineCosts:
        seconds = dict(zip(_COSTS, (float(value) for value in np.abs(point) * self.values), strict=True))
        return EngineCosts(**seconds, max_batched_tokens=self.max_batched_tokens)


def fit(
    records: Sequence[ServedRecord],
    source: str,
    fitted_at: datetime,
    *,
    judges: Sequence[ServedRecord] | None = None,
    max_batched_tokens: int,
    on_progress: Progress = lambda _done, _total: None,
) -> EngineFit:
    """Return a fit with its error. The costs are fitted to the older part of the records, and the error is measured on
    the newer part. If `judges` are given, the costs are fitted to all records and the error is measured on `judges`.
    Records must be in order of time. The result is deterministic. Raises RecordsUnusable.
    """
    check_records(records, source)
    records = records[-MOST_RECORDS:]
    fitted = len(records) if judges is not None else int(FITTED_SHARE * len(records))
    costs = _fitted(records, fitted, max_batched_tokens, source, on_progress)
    return _judged(records if judges is None else judges, fitted if judges is None else 0, fitted, costs, source, fitted_at)


def _fitted(records: Sequence[ServedRecord], count: int, max_batched_tokens: int, source: str, on_progress: Progress) -> EngineCosts:
    """Return costs fitted to the first `count` records. The replay also includes later requests that ran at the same
    time as some of these records, because they slowed these records' requests down.
    """
    ends_at = max(record.ends_at for record in records[:count])
    records = [record for place, record in enumerate(records) if place < count or record.at <= ends_at]
    scale = _scale(records, max_batched_tokens)
    at_edge = np.array(edges(records))
    ttft, tpot = _real(records)
    wrong = np.zeros(len(records), bool)
    point = np.ones(len(_COSTS))
    asked = 0

    def loss(at: Point) -> float:
        nonlocal asked
        asked += 1
        on_progress(min(asked, total), total)
        found = replay(told, scale.costs(at))
        return _loss(found.ttft[used], ttft[used], _TTFT_ERROR) + _loss(found.tpot[timed], tpot[timed], _TPOT_ERROR) + 1e-3 * float(at @ at)

    total = (ROUNDS * 2 + len(_SIZES)) * EVALUATIONS
    for _round in range(ROUNDS):
        told = _as_cached(records, wrong)
        used = ~at_edge & ~wrong & (np.arange(len(records)) < count)
        timed = used & (tpot > 0)
        if used.sum() < _LEAST_JUDGED * 2 or timed.sum() < _LEAST_JUDGED:
            raise RecordsUnusable(
                f"{source}: {int(used.sum()):,} records can be used for the fit: the other records overlap with unrecorded requests or "
                "contradict themselves; record all requests, and for a longer time"
            )
        for size in _SIZES[:2]:
            point = search(loss, point, size, EVALUATIONS)
        found = _contradicting(records, scale.costs(point))
        if (found == wrong).all():
            break
        wrong = found
    before = loss(point)
    for size in _SIZES:
        point = search(loss, point, size, EVALUATIONS)
        before, now = loss(point), before
        if before > (1 - _LEAST_GAIN) * now:
            break
    on_progress(total, total)
    return scale.costs(point)


def _scale(records: Sequence[ServedRecord], max_batched_tokens: int) -> _Scale:
    """Return a first guess of each cost. The fastest records show the costs of a step and of a prompt token; the other
    costs are assumed to be fractions of these two.
    """
    tpot = float(np.quantile([record.tpot for record in records if record.tpot is not None], 0.05))
    per_token = float(np.median([record.ttft / record.new_tokens for record in records if record.new_tokens >= 64] or [tpot / 100])) * 0.7
    prompt = float(np.mean([record.prompt_tokens for record in records]))
    new = float(np.mean([record.new_tokens for record in records]))
    overhead = float(min(record.ttft for record in records)) / 2
    in_batch = prompt * max(1.0, _mean_in_flight(records))
    values = {
        "overhead_seconds": overhead,
        "prefill_fixed": tpot,
        "prefill_per_token": per_token,
        "prefill_per_context": 0.1 * per_token * new / prompt,
        "prefill_per_pair": 0.1 * per_token / prompt,
        "decode_fixed": tpot,
        "decode_per_context_token": 0.1 * tpot / in_batch,
        "decode_per_sequence": 0.01 * tpot,
    }
    return _Scale(np.array([values[name] for name in _COSTS]), max_batched_tokens)


def _mean_in_flight(records: Sequence[ServedRecord]) -> float:
    span = records[-1].at - records[0].at
    engines = len({record.engine for record in records})
    return sum(record.ends_at - record.at for record in records) / span / engines if span > 0 else 1.0


def _loss(modelled: Seconds, real: Seconds, scale: float) -> float:
    """Return the mean of Cauchy's loss over all records. With this loss, a record with a very large error counts little
    more than a record with a moderate error.
    """
    relative = (modelled - real) / (scale * (real + real.mean()) if scale == _TTFT_ERROR else scale * real)
    return float(np.log1p(relative * relative).mean())


def _real(records: Sequence[ServedRecord]) -> tuple[Seconds, Seconds]:
    return np.array([record.ttft for record in records]), np.array([record.tpot or 0.0 for record in records])


def _contradicting(records: Sequence[ServedRecord], costs: EngineCosts) -> Flags:
    return np.array([record.ttft < _SOONEST * alone_seconds(record, costs) for record in records])


def _as_cached(records: Sequence[ServedRecord], wrong: Flags) -> list[ServedRecord]:
    """Return the records. In records that contradict themselves (`wrong`), the whole prompt except its last token is
    marked as cached.
    """
    return [replace(one, cached_tokens=one.prompt_tokens - 1) if is_wrong else one for one, is_wrong in zip(records, wrong, strict=True)]


def _judged(records: Sequence[ServedRecord], begin: int, fitted: int, costs: EngineCosts, source: str, fitted_at: datetime) -> EngineFit:
    """Return the fit with its error, measured on the records from index `begin` on. The replay includes the earlier
    records, because their requests ran on the same engines.
    """
    wrong, at_edge = _contradicting(records, costs), np.array(edges(records))
    found = replay(_as_cached(records, wrong), costs)
    ttft, tpot = _real(records)
    judging = ~wrong & ~at_edge & (np.arange(len(records)) >= begin)
    timed = judging & (tpot > 0)
    if timed.sum() < _LEAST_JUDGED:
        raise RecordsUnusable(
            f"{source}: only {int(timed.sum())} records are left to measure the fit's error; record requests for a longer time"
        )
    return EngineFit(
        source=source,
        fitted_at=fitted_at,
        engines=len({record.engine for record in records}),
        requests=len(records),
        fitted=fitted,
        contradicting=int(wrong.sum()),
        at_edges=int(at_edge.sum()),
        costs=costs,
        ttft=accuracy(found.ttft[judging], ttft[judging]),
        tpot=accuracy(found.tpot[timed], tpot[timed]),
        ttft_points=_points(found.ttft[judging], ttft[judging]),
        tpot_points=_points(found.tpot[timed], tpot[timed]),
    )


def accuracy(modelled: Seconds, real: Seconds) -> FitAccuracy:
    """Return the accuracy of the modelled values, compared with the real values. There must be at least one value."""
    spread = float(modelled.std() * real.std())
    correlation = float(((modelled - modelled.mean()) * (real - real.mean())).mean()) / spread if spread > 0 else None
    return FitAccuracy(
        requests=len(real),
        real_mean=float(real.mean()),
        real_p50=float(np.quantile(real, 0.5)),
        real_p90=float(np.quantile(real, 0.9)),
        real_p99=float(np.quantile(real, 0.99)),
        modelled_mean=float(modelled.mean()),
        modelled_p50=float(np.quantile(modelled, 0.5)),
        modelled_p90=float(np.quantile(modelled, 0.9)),
        modelled_p99=float(np.quantile(modelled, 0.99)),
        mean_error=float(np.abs(modelled - real).mean() / real.mean()),
        correlation=correlation,
    )


def _points(modelled: Seconds, real: Seconds) -> list[FitPoint]:
    step = max(1, -(-len(real) // MOST_POINTS))
    return [
        FitPoint(real=round(float(one), 6), modelled=round(float(other), 6))
        for one, other in zip(real[::step], modelled[::step], strict=True)
    ]

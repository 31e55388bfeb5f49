"""PredictionsOff: a router's predictions have a larger error than its other formula has, or than the objectives
tolerate.
"""

from collections.abc import Iterator

from fairlead.advice import wording
from fairlead.advice.findings import Cause, Evidence, EvidenceKind, Finding, Harm, HarmUnit, Level, wrong_figure
from fairlead.advice.situations import PoolSituation
from fairlead.reports.engines import Quantity
from fairlead.scaling.signals import ENOUGH_FINISHED


def find(pool: PoolSituation) -> Iterator[Finding]:
    """Yield findings about predictions that decisions depend on and that are wrong. There are two kinds of predictions:
    the duration of prefills, and the TTFT that the model of a learning policy predicts.
    """
    yield from _speeds(pool)
    yield from _model(pool)


def _speeds(pool: PoolSituation) -> Iterator[Finding]:
    error = pool.predictions.error
    if error is None or pool.early_rejection.mode == "Disabled" or error <= pool.allowed:
        return
    if pool.predictions.samples < ENOUGH_FINISHED:
        return
    off = wording.seconds(error * pool.slo.ttft_seconds)
    yield Finding(
        pool=pool.pool,
        cause=Cause.PREDICTIONS_OFF,
        subject="prefill",
        level=Level.WARN,
        harm=Harm(amount=error, unit=HarmUnit.ERROR),
        sentence=(
            f"{pool.pool}'s routers predict prefill times with a mean error of {wording.share(error)}: early rejection at "
            f"{wording.seconds(pool.slo.ttft_seconds)} may be off by {off}, and refuse requests that would be in time or accept requests that will be late."
        ),
        evidence=Evidence(kind=EvidenceKind.POOL, seconds=pool.window_seconds),
        symptom=wrong_figure(Quantity.PREFILL),
    )


def _model(pool: PoolSituation) -> Iterator[Finding]:
    seen = pool.predictions
    model, formula = seen.model_error_seconds, seen.formula_error_seconds
    if not seen.model_chooses or model is None or formula is None or model <= formula:
        return
    yield Finding(
        pool=pool.pool,
        cause=Cause.PREDICTIONS_OFF,
        subject="model",
        level=Level.WARN,
        harm=Harm(amount=model / pool.slo.ttft_seconds, unit=HarmUnit.ERROR),
        sentence=(
            f"{pool.pool}'s routers choose by a model whose TTFT predictions err by {wording.seconds(model)}; their own formula errs by "
            f"{wording.seconds(formula)} for the same requests."
        ),
        evidence=Evidence(kind=EvidenceKind.PREDICTOR, seconds=pool.window_seconds),
    )

"""`…/predictor`: the models by which a pool's routers predict TTFTs, how wrong they are, and who chose and why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from fairlead.reports.predictors import ModelFigures
from fairlead_client.resources.predictors import Predictor, PredictorModel
from fairlead_web import formats
from fairlead_web.charts import Sparkline, sparkline
from fairlead_web.rendering import Context
from fairlead_web.routes import POOL, Routes
from fairlead_web.shells import Crumb, Shell, crumbs_below
from fairlead_web.visits import Visit

FAR = 0.5
"""From this drift on, in deviations, the page warns: what is asked is not what was learnt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A figure of every model shown, oldest first, and its latest value as it is written."""

    title: str
    latest: str
    note: str
    spark: Sparkline


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """A model; `share` (0-1) of the choices until it came that a model made, None when there were none."""

    model: PredictorModel
    share: float | None
    reasons: list[tuple[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorPage(Context):
    template: ClassVar[str] = "pages/predictor.html"
    shell: Shell
    predictor: Predictor
    newest: PredictorModel | None
    share: float | None
    drifted: bool
    curves: list[Curve]
    rows: list[ModelRow]


async def show(visit: Visit) -> Response:
    key = visit.pool_key()
    predictor = await visit.api.predictor(key)
    shell = await visit.shell(
        f"Predictor of {key}", "pools", crumbs=crumbs_below(str(key), Crumb(words="Predictor")), pool=str(key), tab="predictor"
    )
    newest = predictor.models[0] if predictor.models else None
    drift = None if newest is None else newest.figures.drift
    return visit.page(
        PredictorPage(
            shell=shell,
            predictor=predictor,
            newest=newest,
            share=None if newest is None else share_by_model(newest.figures),
            drifted=drift is not None and drift >= FAR,
            curves=curves(predictor.models),
            rows=[ModelRow(model=one, share=share_by_model(one.figures), reasons=reasons(one.figures)) for one in predictor.models],
        )
    )


def share_by_model(figures: ModelFigures) -> float | None:
    """The share (0-1) of the choices that a model made; None when there were none."""
    choices = figures.learned_choices + sum(figures.heuristic_choices.values())
    return figures.learned_choices / choices if choices else None


def reasons(figures: ModelFigures) -> list[tuple[str, int]]:
    """Why the heuristic chose, most often first."""
    return sorted(figures.heuristic_choices.items(), key=lambda one: (-one[1], one[0]))


def curves(models: Sequence[PredictorModel]) -> list[Curve]:
    """Error, drift and the heuristic's share over the models, where any knows them; nothing for fewer than two."""
    if len(models) < 2:
        return []
    figures = [one.figures for one in reversed(models)]
    shares = [share_by_model(one) for one in figures]
    error, heuristic = [one.error_seconds for one in figures], [None if one is None else 1 - one for one in shares]
    found = (
        ("Error of predictions", "mean of the last requests before each model", error, formats.seconds),
        ("Drift", "features from the training's, in deviations", [one.drift for one in figures], deviations),
        ("By the heuristic", "share of choices until each model", heuristic, formats.share),
    )
    return [_curve(*one) for one in found if any(value is not None for value in one[2])]


def deviations(drift: float | None) -> str:
    """A drift as it is written."""
    return "–" if drift is None else formats.score(drift)


def _curve(title: str, note: str, values: Sequence[float | None], written: Callable[[float | None], str]) -> Curve:
    latest = written(values[-1])
    return Curve(title=title, latest=latest, note=note, spark=sparkline(values, f"{title}: {latest} of late", 320, 72))


ROUTES = Routes(pages={f"{POOL}/predictor": show})

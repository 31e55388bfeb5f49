"""`…/predictor`: the models with which a pool's routers predict TTFTs, their errors, and how often instances were
chosen by a model or by the heuristic.
"""

from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from fairlead.reports.predictors import ModelFigures
from fairlead_client.resources.predictors import Predictor, PredictorModel
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit

DAY = "now-24h"
"""The start of the page's default range."""
FAR = 0.5
"""Minimum drift (in standard deviations) from which the page warns that the requests differ from the model's training
data.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """A prediction model. `share` (0-1) is the share of decisions made by a model and not by the heuristic, over the
    time that the figures of this model cover; None if there were no decisions.
    """

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
    rows: list[ModelRow]


async def show(visit: Visit) -> Response:
    visit = visit.over(DAY)
    key = visit.pool_key()
    predictor = await visit.api.predictor(key)
    shell = await visit.shell(
        f"Predictor of {key}", "pools", crumbs=crumbs_below(str(key), Crumb(words="Predictor")), pool=str(key), tab="predictor", ranged=True
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
            rows=[ModelRow(model=one, share=share_by_model(one.figures), reasons=reasons(one.figures)) for one in predictor.models],
        )
    )


def share_by_model(figures: ModelFigures) -> float | None:
    """Return the share (0-1) of decisions that were made by a model and not by the heuristic; None if there were no
    decisions.
    """
    choices = figures.learned_choices + sum(figures.heuristic_choices.values())
    return figures.learned_choices / choices if choices else None


def reasons(figures: ModelFigures) -> list[tuple[str, int]]:
    """Return the reasons why the heuristic and not the model chose the instance, each with its number of decisions, the
    most frequent reason first.
    """
    return sorted(figures.heuristic_choices.items(), key=lambda one: (-one[1], one[0]))


ROUTES = Routes(pages={f"{POOL}/predictor": show})

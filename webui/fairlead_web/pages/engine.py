"""`…/engine`: the engine model that simulates a pool for what-if questions and plans, with its source and its error."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from fairlead.capabilities import FigureWords, in_words
from fairlead.instances import Role
from fairlead_client.resources.engine_fits import EngineFit, FitAccuracy, FitPoint, PoolEngine
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit

SIDE = 220
"""Length of the sides of a square picture in drawing units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison of measured and modelled values of one metric: its figures, and a picture in which each compared
    request is a point, with the measured value on the x axis and the modelled one on the y axis.

    Points beyond `most` seconds (slightly above the larger P99) lie on the picture's edge.
    """

    metric: str
    accuracy: FitAccuracy
    most: float
    points: list[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePage(Context):
    template: ClassVar[str] = "pages/engine.html"
    shell: Shell
    engine: PoolEngine
    known: list[FigureWords]
    fit: EngineFit | None
    comparisons: list[Comparison]
    side: int
    divided: bool
    """Whether each request is computed by a prefill and a decode instance."""
    command: str


async def show(visit: Visit) -> Response:
    key = visit.pool_key()
    engine, detail = await asyncio.gather(visit.api.pool_engine(key), visit.api.pool(key, instances=False))
    shell = await visit.shell(
        f"Engine of {key}", "pools", crumbs=crumbs_below(str(key), Crumb(words="Engine")), pool=str(key), tab="engine"
    )
    return visit.page(
        EnginePage(
            shell=shell,
            engine=engine,
            known=in_words(detail.capability),
            fit=engine.fit,
            comparisons=[] if engine.fit is None else comparisons(engine.fit),
            side=SIDE,
            divided=Role.PREFILL.value in detail.desired,
            command=f"fairlead engines fit --pool {key} --from now-1h --store",
        )
    )


def comparisons(fit: EngineFit) -> list[Comparison]:
    """Return the comparisons of both metrics (TTFT and TPOT) for a fitted engine model, as the page shows them."""
    return [_comparison("TTFT", fit.ttft, fit.ttft_points), _comparison("TPOT", fit.tpot, fit.tpot_points)]


def _comparison(metric: str, accuracy: FitAccuracy, points: Sequence[FitPoint]) -> Comparison:
    most = 1.1 * max(accuracy.real_p99, accuracy.modelled_p99) or 1.0
    placed = [(min(1.0, one.real / most) * SIDE, SIDE - min(1.0, one.modelled / most) * SIDE) for one in points]
    return Comparison(metric=metric, accuracy=accuracy, most=most, points=[(round(x, 1), round(y, 1)) for x, y in placed])


ROUTES = Routes(pages={f"{POOL}/engine": show})

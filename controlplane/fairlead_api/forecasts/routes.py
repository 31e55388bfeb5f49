"""The forecast of a pool."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends

from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.features import Feature, Infra
from fairlead_api.http.answers import answer
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.database import Database
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.forecasts import PoolForecast

if TYPE_CHECKING:
    from fairlead_api.forecasts.forecasting import Forecasting

LOOK_SECONDS = 60
"""Seconds between two runs of the background jobs of forecasts."""


def forecast_routes(guard: Guard, forecasting: "Forecasting", clock: Callable[[], datetime]) -> Routes:
    """Return the routes of forecasts under /v1."""
    routes = Routes(prefix="/v1", tags=["schedules"])
    Viewer = Annotated[Caller, Depends(guard.needs(AccessRole.VIEWER))]  # noqa: N806 - it is a type

    @routes.get("/pools/{namespace}/{name}/forecast", response_model=PoolForecast)
    async def get_forecast(namespace: str, name: str, caller: Viewer) -> Any:
        """The pool's demand in the seven days from the last midnight, the schedules proposed from it, and the results
        that the proposed schedules would have had in the last week. The results take up to a minute after the day's
        first request; until then `trials` is empty.
        """
        return answer(await forecasting.forecast(PoolKey(namespace=namespace, name=name), clock()))

    return routes


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature that shows forecasts to people."""
    return Feature(routes=(forecast_routes(guard, _forecasting(infra.reads), infra.clock),))


def forecasting_of(infra: Infra) -> "Forecasting":
    """Return the maker of forecasts for the background jobs that propose schedules and watch demand."""
    return _forecasting(infra.background)


def _forecasting(database: Database) -> "Forecasting":
    from fairlead_api.forecasts.forecasting import Forecasting
    from fairlead_api.forecasts.store import PostgresForecasts

    return Forecasting(PostgresForecasts(database))

"""The forecast of a pool as the API shows it, computed from five weeks of office hours."""

from datetime import datetime, timedelta
from functools import lru_cache

from fairlead.forecasts.calendars import ForecastMode, ForecastSpec
from fairlead.forecasts.drafting import RoleLimits
from fairlead.forecasts.needs import Lead
from fairlead.forecasts.proposals import Forecasted, proposed
from fairlead.instances import Role
from fairlead.scaling.specs import ScalingMode, ScalingSpec
from fairlead.tables import PoolKey, SloFacts
from fairlead_api.forecasts.forecasting import ReadPool, pool_forecast
from fairlead_client.resources.forecasts import PoolForecast
from fairlead_testing.builders.demand import Traffic, record_of


def office_forecast(pool: str, now: datetime) -> PoolForecast:
    """Return the forecast of a pool that had five weeks of office hours until `now`; it has no trials."""
    return _office_forecast(pool, now.replace(minute=0, second=0, microsecond=0))


@lru_cache(maxsize=8)
def _office_forecast(pool: str, now: datetime) -> PoolForecast:
    read = office_record(PoolKey.parse(pool), now)
    return pool_forecast(read, proposed(read.record, read.facts, now), None, now)


def office_record(pool: PoolKey, now: datetime) -> ReadPool:
    """Return the facts and the record of such a pool, as the forecast reads them from the database."""
    facts = Forecasted(
        roles=(RoleLimits(role=Role.BOTH, least=1, most=16, declared=2),),
        scaling=ScalingSpec(mode=ScalingMode.SLO),
        schedules=(),
        slo=SloFacts(),
        forecast=ForecastSpec(mode=ForecastMode.ADVISE),
        lead=Lead(start_seconds=240.0, refill_seconds=600.0),
    )
    record = record_of(Traffic(weeks=5).load(), now - timedelta(weeks=5))
    return ReadPool(key=(), pool=pool, record=record, facts=facts, start_is_measured=True, engines_file=None, departed=None)

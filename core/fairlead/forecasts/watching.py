"""Detects whether demand is within the band of its forecast. Demand counts as outside after it has been outside the
band for some time, and as inside again after it has been inside for the same time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil

import numpy as np

from fairlead.forecasts.records import QUARTER, Series
from fairlead.forecasts.seasonal import Band
from fairlead.instances import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """The fact that demand left the band of a role's forecast at `since`. `load` is the work in the last known quarter
    of an hour, in instances; `low` and `high` are the band in that quarter.
    """

    role: Role
    since: datetime
    load: float
    low: float
    high: float

    @property
    def words(self) -> str:
        of = "" if self.role is Role.BOTH else f" of {self.role.value}"
        return (
            f"demand is work for {self.load:.1f} instances{of}, outside of the forecast's {self.low:.1f} to {self.high:.1f} "
            f"since {self.since:%Y-%m-%d %H:%M} UTC"
        )


def departure(bands: Mapping[Role, Band], loads: Mapping[Role, Series], leave_after_seconds: float) -> Departure | None:
    """Return the departure of the first role whose demand is outside its band at the end of `loads`; None if the demand
    of no role is. Demand counts as outside once it has been outside for `leave_after_seconds`, and as inside again once
    it has been inside for as long.

    `loads` begin at the same time as `bands`. A quarter of an hour without a record changes nothing.
    """
    most = max(1, ceil(leave_after_seconds / QUARTER.total_seconds()))
    found = [_of_role(role, bands[role], of, most) for role, of in loads.items()]
    return next((one for one in found if one is not None), None)


def _of_role(role: Role, band: Band, loads: Series, most: int) -> Departure | None:
    away: int | None = None
    run, side, began = 0, 0, 0
    last: int | None = None
    for place, load in enumerate(loads[: len(band.middle)]):
        if not np.isfinite(load):
            continue
        now = 1 if load > band.high[place] else -1 if load < band.low[place] else 0
        run, began = (run + 1, began) if now == side else (1, place)
        side, last = now, place
        if run >= most:
            away = None if side == 0 else (began if away is None else away)
    if away is None or last is None:
        return None
    return Departure(
        role=role,
        since=band.start + QUARTER * away,
        load=float(loads[last]),
        low=float(band.low[last]),
        high=float(band.high[last]),
    )

"""Computes how a pool would have scaled with other schedules, minute by minute, in virtual time.

Demand flows as work into one queue per role. A new instance serves after `start_seconds` and computes more slowly until
its cache is full, because it must compute the tokens that other instances find in their caches. The number of instances
comes from the product's own pipeline (`fairlead.scaling.targets.step`), once a minute, and the windows are its own
schedules (`in_force`). Requests of a minute are late if the queue then takes longer than `slo.ttft`.

The danger is to mistake a back-test for a simulation of engines. A back-test has no single requests, so random
variation within a minute makes no request late. Back-tests compare schedules on the same demand; they do not predict
attainment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

import numpy as np

from fairlead.capabilities import UNKNOWN
from fairlead.forecasts.needs import Lead
from fairlead.forecasts.records import Series
from fairlead.instances import Role
from fairlead.scaling.bounds import DeclaredRole, RoleBounds
from fairlead.scaling.memory import ScalingMemory
from fairlead.scaling.signals import PoolSignals, RoleSignals
from fairlead.scaling.sizing import Capacity
from fairlead.scaling.specs import RatioSpec, ScalingMode, ScalingSpec
from fairlead.scaling.targets import Declared, step
from fairlead.schedules.in_force import in_force
from fairlead.schedules.specs import ScheduleSpec
from fairlead.schedules.windows import changes_after
from fairlead.tables import SloFacts

MINUTE = 60.0
PER_QUARTER = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The facts about a pool that a back-test needs. `declared` has each role's bounds and number of instances;
    `hit_share` is the share (0-1) of prompt tokens that an instance with a full cache need not compute.
    """

    declared: tuple[DeclaredRole, ...]
    scaling: ScalingSpec
    slo: SloFacts
    lead: Lead
    hit_share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a back-test: instance hours, the number of requests, and how many of the requests were late."""

    instance_hours: float
    requests: float
    late: float
    least: Mapping[Role, int]
    most: Mapping[Role, int]

    @property
    def in_time(self) -> float:
        """The share (0-1) of the requests that were in time; 1 without requests."""
        return 1.0 - self.late / self.requests if self.requests else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Demand in quarters of an hour from `start` on: requests per second, and the load of each role in instances."""

    start: datetime
    requests: Series
    loads: Mapping[Role, Series]

    def __post_init__(self) -> None:
        for of in (self.requests, *self.loads.values()):
            if not np.isfinite(of).all():
                raise ValueError("a back-test needs demand without gaps")


class _Fleet:
    """The instances of one role: the time at which each began to serve, and the work in the queue."""

    def __init__(self, number: int, lead: Lead, hit_share: float) -> None:
        self.serving = [-np.inf] * number
        self.starting: list[float] = []
        self.backlog = 0.0
        self._lead, self._hits = lead, hit_share

    def scale(self, wanted: int, now: float) -> None:
        while len(self.serving) + len(self.starting) > wanted:
            self.starting.pop() if self.starting else self.serving.pop()
        self.starting += [now + self._lead.start_seconds] * (wanted - len(self.serving) - len(self.starting))
        self.serving += [at for at in self.starting if at <= now]
        self.starting = [at for at in self.starting if at > now]

    def power(self, now: float) -> float:
        """Return the current computing power of the instances, in units of an instance with a full cache."""
        filling = self._lead.refill_seconds
        full = [1.0 if filling <= 0 else min(1.0, (now - at) / filling) for at in self.serving]
        return sum((1 - self._hits) / (1 - self._hits * share) for share in full)

    def work(self, load: float, now: float) -> float:
        """Add this minute's work to the queue; return the seconds that it waits."""
        power = self.power(now)
        self.backlog = max(0.0, self.backlog + (load - power) * MINUTE)
        return self.backlog / power if power > 0 else (np.inf if self.backlog else 0.0)


def replay(stretch: Stretch, setting: Setting, schedules: Sequence[ScheduleSpec]) -> Outcome:
    """Return the outcome that the pool's scaling would have had with this demand and these schedules."""
    minutes = len(stretch.requests) * PER_QUARTER
    loads = {role: by_minute(of) for role, of in stretch.loads.items()}
    requests, windows = by_minute(stretch.requests), _windows(stretch.start, minutes, schedules)
    memory = dict.fromkeys(loads, ScalingMemory())
    fleets = {one.role: _Fleet(one.replicas, setting.lead, setting.hit_share) for one in setting.declared}
    counts = {one.role: np.zeros(minutes, dtype=int) for one in setting.declared}
    late, in_time = 0.0, 1.0
    began = stretch.start.timestamp()
    for minute in range(minutes):
        now, waits = began + minute * MINUTE, []
        for one in setting.declared:
            fleet, load = fleets[one.role], float(loads[one.role][minute])
            wanted, memory[one.role] = _wanted(memory[one.role], one, setting, windows[minute], fleet, load, in_time, now)
            fleet.scale(wanted, now)
            counts[one.role][minute] = wanted
            waits.append(fleet.work(load, now))
        is_late = max(waits) > setting.slo.ttft_seconds
        late += requests[minute] * MINUTE if is_late else 0.0
        in_time = 0.0 if is_late else 1.0
    return Outcome(
        instance_hours=float(sum(of.sum() for of in counts.values())) / 60,
        requests=float(requests.sum()) * MINUTE,
        late=late,
        least={role: int(of.min()) for role, of in counts.items()},
        most={role: int(of.max()) for role, of in counts.items()},
    )


def by_minute(quarters: Series) -> Series:
    """Interpolate a series from quarters of an hour to minutes, linearly between the middles of neighbouring quarters.
    Each quarter keeps its mean.
    """
    places = np.arange(len(quarters)) * PER_QUARTER + PER_QUARTER / 2
    lines = np.interp(np.arange(len(quarters) * PER_QUARTER) + 0.5, places, quarters)
    means = lines.reshape(-1, PER_QUARTER).mean(axis=1)
    factors = np.divide(quarters, means, out=np.zeros_like(quarters), where=means > 0)
    found: Series = lines * np.repeat(factors, PER_QUARTER)
    return found


def _windows(start: datetime, minutes: int, schedules: Sequence[ScheduleSpec]) -> list[tuple[RoleBounds, ...]]:
    """Return the bounds of the windows that are open in each minute."""
    end = start + timedelta(minutes=minutes)
    changes = [start]
    for at in changes_after(schedules, start):
        if at >= end:
            break
        changes.append(at)
    found: list[tuple[RoleBounds, ...]] = []
    for begins, ends in pairwise([*changes, end]):
        bounds = in_force(schedules, begins).bounds
        found += [bounds] * (round((ends - start).total_seconds() / MINUTE) - len(found))
    return found[:minutes]


def _wanted(
    memory: ScalingMemory,
    role: DeclaredRole,
    setting: Setting,
    windows: Sequence[RoleBounds],
    fleet: _Fleet,
    load: float,
    in_time: float,
    now: float,
) -> tuple[int, ScalingMemory]:
    """Return the role's wanted number of instances after one round of the product's own scaling, and the scaling memory
    after the round. The round sees the role as the single role `both`, because each role is sized by its own work.
    """
    alone = replace(role, role=Role.BOTH)
    declared = Declared(
        roles=(alone,),
        scaling=setting.scaling,
        ratio=_FIXED,
        slo=setting.slo,
        capacity=_CAPACITY,
        windows=tuple(replace(one, role=Role.BOTH) for one in windows if one.role is role.role),
    )
    signals = None if setting.scaling.mode is ScalingMode.FIXED else _signals(fleet, setting.slo, load, in_time, now)
    memory, found = step(memory, declared, signals, now)
    return found.of(Role.BOTH).replicas, memory


_FIXED = RatioSpec()
_CAPACITY = Capacity(prefill_speed=UNKNOWN, kv_cache_tokens=1)
"""A placeholder for the capacity in the scaling step. The step uses a capacity only for pools at zero or with decode
roles, and back-tests have neither.
"""


def _signals(fleet: _Fleet, slo: SloFacts, load: float, in_time: float, now: float) -> PoolSignals:
    serving = len(fleet.serving)
    power = fleet.power(now)
    one = RoleSignals(
        role=Role.BOTH,
        serving=serving,
        in_flight=0,
        waiting=0,
        prompt_tokens_per_second=load,
        cached_share=0.0,
        output_tokens_per_second=0.0,
        prefill_tokens_per_second=1.0,
        prefill_load=fleet.backlog / power / slo.ttft_seconds if power > 0 else None,
        ttft_attainment=in_time,
    )
    return PoolSignals(window_seconds=30.0, age_seconds=0.0, roles=(one,))


def gapless(values: Series) -> Series:
    """Return the series with gaps filled by lines between the neighbouring values; zeros if no value is known."""
    known = np.isfinite(values)
    if not known.any():
        return np.zeros_like(values)
    return np.interp(np.arange(len(values)), np.flatnonzero(known), values[known])

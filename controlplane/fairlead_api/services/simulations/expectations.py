"""Use cases: a plan's effect is simulated on the pool's recorded traffic, after the plan was made, and told when it is
known, or why it is not.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_api.services.errors import NotFound, ServiceError
from fairlead_api.services.plans.effects import Question
from fairlead_api.services.plans.evidence import EvidenceReader
from fairlead_api.services.plans.stored_plans import LIFE
from fairlead_api.services.simulations.asking import PoolAtPresent, target_of
from fairlead_api.services.simulations.plan_changes import SEEDS, CannotSimulate, trial_of
from fairlead_client.resources.expectations import ExpectationState, ExpectedFigure, PlanExpectation, Quantity
from fairlead_client.resources.plans import Plan
from fairlead_client.resources.simulations import SimulationRequest
from fairlead_client.simulation_jobs import JobRun, RunFigures, SimulatedTarget

WINDOW = timedelta(hours=1)
MOST = 20_000
"""Of the window's requests, the newest that are simulated."""
LEAST = 200
LEAST_SECONDS = 120.0
MOST_WAITING = 20
"""Plans whose simulations wait at once, over all pools."""
WITHIN = 0.25
"""What a figure may differ by, as a share of it, and still be relied on."""
FEW_SESSIONS = 3.0
"""Counts of sessions that differ by no more are alike."""
SURE_SESSIONS = 30.0
"""Of fewer sessions that move, chance alone makes about a fifth more or less: the root of the count."""
USUAL_STARTUP_SECONDS = 30.0
_NEGLIGIBLE = 0.01

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the pool's requests got when they were recorded: the share in time of those served, and the hit rate; None
    where nothing was measured.
    """

    attainment: float | None = None
    hit_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trialled:
    """What the runs of a plan's simulation found, in their order, with what was recorded of the same requests."""

    figures: list[RunFigures]
    recorded: Recorded
    measured_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTrial:
    """A plan's simulation to be queued; with a `refusal` it is only kept why there is none."""

    id: str
    plan: str
    pool: PoolKey
    created_by: str
    runs: Sequence[JobRun]
    target: SimulatedTarget | None
    window: tuple[datetime, datetime]
    total: int
    refusal: str | None


class ExpectationStore(Protocol):
    """Simulations of plans in the database."""

    async def recorded(self, pool: PoolKey, start: datetime, end: datetime, most: int) -> int: ...

    async def recorded_seconds(self, pool: PoolKey, start: datetime, end: datetime) -> float:
        """From the window's first recorded request to its last."""

    async def startup_seconds(self, pool: PoolKey) -> float | None:
        """How long the pool's instances took to serve, by the median of those that do; None when none does."""

    async def waiting_plans(self) -> int:
        """Plans whose simulations are not at their end."""

    async def add_trial(self, trial: PlanTrial, now: datetime) -> None: ...

    async def expectation(self, plan_id: str) -> "Kept | None":
        """None where the plan has no simulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A plan's simulation as it is kept."""

    state: str
    error: str | None
    start: datetime | None
    end: datetime | None
    done: int
    total: int
    found: Trialled | None
    notes: list[str]


class Expectations:
    """Has plans simulated, and tells what came of it. `enabled`: some process simulates."""

    def __init__(self, store: ExpectationStore, evidence: EvidenceReader, new_id: Callable[[], str], *, enabled: bool) -> None:
        self._store = store
        self._evidence = evidence
        self._new_id = new_id
        self._enabled = enabled

    async def planned(self, plan: Plan, question: Question, spec: Mapping[str, Any] | None, now: datetime) -> None:
        """Queues the simulation of a plan that was just made. What fails here is only logged."""
        try:
            await self._store.add_trial(await self._trial(plan, question, spec, now), now)
        except (ServiceError, InvalidInput):
            _log.warning("the effect of a plan is not simulated", extra={"plan": plan.id}, exc_info=True)

    async def of(self, plan: Plan) -> PlanExpectation:
        """What is expected of a plan, as far as it is known."""
        kept = await self._store.expectation(plan.id)
        if kept is None:
            return PlanExpectation(plan=plan.id, state=ExpectationState.UNKNOWN, reason="no simulation was asked for when it was planned")
        return expectation_of(plan.id, kept)

    async def _trial(self, plan: Plan, question: Question, spec: Mapping[str, Any] | None, now: datetime) -> PlanTrial:
        pool, window = PoolKey.parse(plan.pool), (now - WINDOW, now)
        runs: list[JobRun] = []
        target, requests, refusal = None, 0, None
        try:
            if not self._enabled:
                raise CannotSimulate("this control API simulates nothing: FAIRLEAD_SIMULATION_PROCESSES is 0")
            try:
                use = await self._evidence.use(pool, now)
            except NotFound as error:
                raise CannotSimulate("the pool has no usable spec yet") from error
            startup = await self._store.startup_seconds(pool)
            trial = trial_of(plan.kind, question, spec, use, USUAL_STARTUP_SECONDS if startup is None else startup)
            requests = await self._store.recorded(pool, *window, MOST)
            if requests < LEAST:
                raise CannotSimulate(f"{requests} requests were recorded in the last hour, and {LEAST} are needed")
            seconds = await self._store.recorded_seconds(pool, *window)
            if seconds < LEAST_SECONDS:
                raise CannotSimulate(f"requests were recorded for {seconds:.0f} s only, and {LEAST_SECONDS:.0f} s are needed")
            if await self._store.waiting_plans() >= MOST_WAITING:
                raise CannotSimulate(f"{MOST_WAITING} plans wait to be simulated already")
            runs = trial.runs
            target = target_of(
                SimulationRequest(policies=[]), PoolAtPresent(facts=trial.facts, instances=trial.instances, weights=trial.weights)
            )
        except CannotSimulate as error:
            refusal = str(error)
        return PlanTrial(
            id=self._new_id(),
            plan=plan.id,
            pool=pool,
            created_by=plan.created_by,
            runs=runs,
            target=target,
            window=window,
            total=requests * len(runs),
            refusal=refusal,
        )


TOO_LATE = f"its turn did not come within the {LIFE // timedelta(minutes=1)} minutes in which it can be applied"


def expectation_of(plan_id: str, kept: Kept) -> PlanExpectation:
    """What a plan's simulation says."""
    states = {"queued": ExpectationState.QUEUED, "running": ExpectationState.RUNNING, "done": ExpectationState.DONE}
    state = states.get(kept.state, ExpectationState.UNKNOWN)
    reason = kept.error or "its simulation was cancelled" if state is ExpectationState.UNKNOWN else None
    if state is ExpectationState.DONE and kept.found is None:
        state, reason = ExpectationState.UNKNOWN, "another version of the control API simulated it"
    found = kept.found if state is ExpectationState.DONE else None
    return PlanExpectation(
        plan=plan_id,
        state=state,
        reason=reason,
        start=kept.start,
        end=kept.end,
        requests=kept.total // (2 * len(SEEDS)) or None,
        measured_seconds=None if found is None else found.measured_seconds,
        seeds=[] if state is ExpectationState.UNKNOWN else list(SEEDS),
        done=kept.done,
        total=kept.total,
        figures=[] if found is None else figures_of(found),
        notes=kept.notes,
    )


def figures_of(found: Trialled) -> list[ExpectedFigure]:
    """What is expected without and with the change. A figure is not known where the seeds differ on it by more than a
    quarter, where it counts few sessions, or where the simulated pool as it is differs by more than a quarter from
    what was recorded of the real one.
    """
    before, after = found.figures[::2], found.figures[1::2]
    in_time = [one.attainment * one.requests / one.served if one.served else 0.0 for one in before]
    attainment = _unlike("in time", _mean(in_time), found.recorded.attainment)
    hit_rate = _unlike("of prompt tokens from caches", _mean([one.hit_rate for one in before]), found.recorded.hit_rate)
    return [
        _figure(Quantity.ATTAINMENT, [one.attainment for one in before], [one.attainment for one in after], attainment),
        _figure(Quantity.REFUSED_SHARE, [one.refused_share for one in before], [one.refused_share for one in after], attainment),
        _figure(Quantity.HIT_RATE, [one.hit_rate for one in before], [one.hit_rate for one in after], hit_rate),
        _figure(Quantity.SESSIONS_MOVED, [one.sessions_moved or 0 for one in before], [one.sessions_moved or 0 for one in after], None),
    ]


def alike(one: float, other: float, least: float) -> bool:
    """Whether two figures are within a quarter of the larger, or within `least`."""
    return abs(one - other) <= max(least, WITHIN * max(one, other))


def _figure(quantity: Quantity, before: Sequence[float], after: Sequence[float], unlike: str | None) -> ExpectedFigure:
    least = FEW_SESSIONS if quantity is Quantity.SESSIONS_MOVED else _NEGLIGIBLE
    low, high = min(after), max(after)
    unsure = None
    if not alike(low, high, least):
        shown = "{:.0f}" if quantity is Quantity.SESSIONS_MOVED else "{:.1%}"
        unsure = f"chance decides: one seed gives {shown.format(low)}, another {shown.format(high)}"
    elif quantity is Quantity.SESSIONS_MOVED and FEW_SESSIONS < _mean(after) < SURE_SESSIONS:
        unsure = f"chance decides how many of so few move: about {_mean(after):.0f}"
    return ExpectedFigure(quantity=quantity, before=_mean(before), after=_mean(after), unknown=unlike or unsure)


def _unlike(words: str, simulated: float, recorded: float | None) -> str | None:
    if recorded is None:
        return "what the pool itself achieved was not recorded, so the simulated pool cannot be compared with it"
    if alike(simulated, recorded, _NEGLIGIBLE):
        return None
    return f"the simulated pool is not like this one: {simulated:.1%} {words} as it is, where {recorded:.1%} were recorded"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)

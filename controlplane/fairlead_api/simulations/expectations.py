"""Use cases: simulates the effect of a plan, after the plan was made, with the pool's recorded traffic. Reports the
effect, or why it is unknown.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_api.infra.errors import NotFound, ServiceError
from fairlead_api.plans.evidence import EvidenceReader
from fairlead_api.plans.kinds.scale import ScaleQuestion
from fairlead_api.plans.kinds.slo import SloQuestion
from fairlead_api.plans.questions import CannotSimulate, Question
from fairlead_api.plans.stored_plans import LIFE
from fairlead_api.simulations.asking import PoolAtPresent, target_of
from fairlead_api.simulations.expected_figures import Trialled, figures_of
from fairlead_api.simulations.plan_changes import trial_of
from fairlead_api.simulations.sizing import Asked, of_change
from fairlead_client.resources.expectations import ExpectationState, PlanExpectation
from fairlead_client.resources.plans import Plan
from fairlead_client.resources.simulations import SimulationRequest
from fairlead_client.simulation_jobs import JobRun, PoolChange, SimulatedTarget

WINDOW = timedelta(hours=1)
MOST = 20_000
"""Maximum number of recorded requests that a plan's simulation uses; the newest requests of its window are used."""
LEAST = 200
LEAST_SECONDS = 120.0
MOST_WAITING = 20
"""Maximum number of plans, over all pools, whose simulations may wait at the same time."""
USUAL_STARTUP_SECONDS = 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTrial:
    """A plan's simulation that is to be queued. With a `refusal`, only the reason for not simulating is stored. With
    `found`, the result of the simulation that recommended the plan is stored instead.
    """

    id: str
    plan: str
    pool: PoolKey
    created_by: str
    runs: Sequence[JobRun]
    target: SimulatedTarget | None
    window: tuple[datetime, datetime]
    total: int
    refusal: str | None
    found: Trialled | None = None
    notes: Sequence[str] = ()


def startup_of(present: PoolAtPresent) -> float:
    """Return the seconds from the creation of a new instance of the pool until it serves: as measured at the pool's
    last starts, or the usual time if no start was observed.
    """
    seconds = present.capability.start_seconds.value
    return USUAL_STARTUP_SECONDS if seconds is None else seconds


class ExpectationStore(Protocol):
    """Stores the simulations of plans in the database."""

    async def present(self, pool: PoolKey, now: datetime) -> PoolAtPresent: ...

    async def recorded(self, pool: PoolKey, start: datetime, end: datetime, most: int) -> int: ...

    async def recorded_seconds(self, pool: PoolKey, start: datetime, end: datetime, most: int) -> float:
        """Return the seconds between the first and the last of the newest `most` requests that were recorded from
        `start` to `end`.
        """

    async def waiting_plans(self) -> int:
        """Return the number of plans whose simulations have not ended."""

    async def add_trial(self, trial: PlanTrial, now: datetime) -> None: ...

    async def expectation(self, plan_id: str) -> "Kept | None":
        """Return the plan's simulation as stored; None if the plan has no simulation."""

    async def advised_by(self, pool: PoolKey, simulation: str) -> "KeptSizing | None":
        """Return the result of the simulation for advice with the id `simulation`; None if there is no such simulation,
        or if it has not finished.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A plan's simulation as stored; each of its `runs` simulates the same requests."""

    state: str
    error: str | None
    start: datetime | None
    end: datetime | None
    done: int
    total: int
    runs: Sequence[JobRun]
    found: Trialled | None
    notes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSizing:
    """A finished simulation for advice."""

    asked: Asked
    start: datetime
    end: datetime
    runs: Sequence[JobRun]
    found: Trialled
    requests: int
    notes: list[str]


class Expectations:
    """Starts simulations of plans, and reports the results. `enabled` is true if some process runs simulations."""

    def __init__(self, store: ExpectationStore, evidence: EvidenceReader, new_id: Callable[[], str], *, enabled: bool) -> None:
        self._store = store
        self._evidence = evidence
        self._new_id = new_id
        self._enabled = enabled

    async def planned(
        self, plan: Plan, question: Question, spec: Mapping[str, Any] | None, now: datetime, simulation: str | None = None
    ) -> None:
        """Queue the simulation of a plan that was just made, or use the result of the simulation that recommended the
        plan. If this fails, the failure is only logged.
        """
        try:
            trial = None if simulation is None else await self._advised(plan, question, simulation)
            await self._store.add_trial(trial or await self._trial(plan, question, spec, now), now)
        except (ServiceError, InvalidInput):
            _log.warning("the effect of a plan could not be simulated", extra={"plan": plan.id}, exc_info=True)

    async def of(self, plan: Plan) -> PlanExpectation:
        """Return the expected effect of a plan, or why it is not known."""
        kept = await self._store.expectation(plan.id)
        if kept is None:
            return PlanExpectation(plan=plan.id, state=ExpectationState.UNKNOWN, reason="no simulation was asked for when it was planned")
        return expectation_of(plan.id, kept)

    async def _advised(self, plan: Plan, question: Question, simulation: str) -> PlanTrial | None:
        """Return a PlanTrial with the result of the simulation that recommended the plan; None unless that simulation
        was of exactly this change of the pool's present state.
        """
        pool = PoolKey.parse(plan.pool)
        kept = await self._store.advised_by(pool, simulation)
        change = None if kept is None else _tried_change(question, kept.asked)
        if kept is None or change is None or (of_it := of_change(change, kept.runs, kept.found)) is None:
            return None
        runs, found = of_it
        return PlanTrial(
            id=self._new_id(),
            plan=plan.id,
            pool=pool,
            created_by=plan.created_by,
            runs=runs,
            target=None,
            window=(kept.start, kept.end),
            total=kept.requests * len(runs),
            refusal=None,
            found=found,
            notes=[*kept.notes, ADVISED, *([_starting(kept.asked)] if change.replicas is not None else [])],
        )

    async def _trial(self, plan: Plan, question: Question, spec: Mapping[str, Any] | None, now: datetime) -> PlanTrial:
        pool, window = PoolKey.parse(plan.pool), (now - WINDOW, now)
        runs: list[JobRun] = []
        target, requests, refusal = None, 0, None
        try:
            if not self._enabled:
                raise CannotSimulate("this control API simulates nothing: FAIRLEAD_SIMULATION_PROCESSES is 0")
            try:
                use, present = await self._evidence.use(pool, now), await self._store.present(pool, now)
            except NotFound as error:
                raise CannotSimulate("the pool has no usable spec yet") from error
            trial = trial_of(question, spec, use, startup_of(present))
            requests = await self._store.recorded(pool, *window, MOST)
            if requests < LEAST:
                until = f"in the hour until {now:%H:%M} UTC"
                raise CannotSimulate(f"{requests} requests were recorded {until}, and {LEAST} are needed")
            seconds = await self._store.recorded_seconds(pool, *window, MOST)
            if seconds < LEAST_SECONDS:
                raise CannotSimulate(f"requests were recorded for {seconds:.0f} s only, and {LEAST_SECONDS:.0f} s are needed")
            if await self._store.waiting_plans() >= MOST_WAITING:
                raise CannotSimulate(f"{MOST_WAITING} plans already wait to be simulated")
            runs = trial.runs
            as_used = replace(present, facts=trial.facts, instances=trial.instances, weights=trial.weights)
            target = target_of(SimulationRequest(policies=[]), as_used, now)
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


ADVISED = "This is the simulation that recommended the plan."


def _starting(asked: Asked) -> str:
    return f"In the simulation new instances serve at once; in this pool they took {asked.startup_seconds:.0f} s to start."


def _tried_change(question: Question, asked: Asked) -> PoolChange | None:
    if isinstance(question, ScaleQuestion) and (question.role, question.before) == (asked.role, asked.present):
        return asked.scaled(question.after)
    if isinstance(question, SloQuestion):
        after = question.after.slo
        if (after.tpot_seconds, after.percentile / 100) == (asked.slo_tpot_seconds, asked.goal):
            return PoolChange(slo_ttft_seconds=after.ttft_seconds)
    return None


TOO_LATE = f"its simulation did not begin within the {LIFE // timedelta(minutes=1)} minutes in which the plan can be applied"


def expectation_of(plan_id: str, kept: Kept) -> PlanExpectation:
    """Return the expected effect of a plan according to its stored simulation."""
    states = {"queued": ExpectationState.QUEUED, "running": ExpectationState.RUNNING, "done": ExpectationState.DONE}
    state = states.get(kept.state, ExpectationState.UNKNOWN)
    reason = kept.error or "its simulation was cancelled" if state is ExpectationState.UNKNOWN else None
    if state is ExpectationState.DONE and kept.found is None:
        state, reason = ExpectationState.UNKNOWN, "another version of the control API simulated it"
    found = kept.found if state is ExpectationState.DONE else None
    nothing = state is ExpectationState.UNKNOWN
    return PlanExpectation(
        plan=plan_id,
        state=state,
        reason=reason,
        start=kept.start,
        end=kept.end,
        requests=kept.total // len(kept.runs) if kept.runs else None,
        measured_seconds=None if found is None else found.measured_seconds,
        seeds=[] if nothing else sorted({run.seed for run in kept.runs if run.seed is not None}),
        rates=[] if nothing else sorted({run.rate for run in kept.runs} - {1.0}),
        done=kept.done,
        total=kept.total,
        figures=[] if found is None else figures_of(found),
        notes=kept.notes,
    )

"""A rollout of prefill instances in virtual time, with the routers' own scheduler and simulated engines. Sessions of a
draining instance fetch their blocks as routers let them (`fairlead_router.relaying.heirs`).

In contrast to `designs`, engines are busy. A hand-over waits in the queue of the session's new instance and in both
engines, like the requests of clients. Sessions that cannot fetch their blocks are not handed over. A real router would
compute their prompts, within its budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean
from typing import NamedTuple

from benchmarks.pool_operations.work import Work

from fairlead.hand_overs import FETCHES_AT_ONCE, HOLD_SECONDS
from fairlead.instances import Role
from fairlead.reports.moves import CacheFate, CacheTransfer
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.knowledge.next_turns import Leaving, NextTurns, ranked
from fairlead.tables import KvTransferFacts, RoutingTable
from fairlead_simulator.engine_model.costs import PrefillCost
from fairlead_simulator.engine_model.kv_memory import PREFIX_BLOCK_TOKENS
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.engine_model.steps import StepResult
from fairlead_simulator.simulation.fleet import SimulatedInstance
from fairlead_simulator.simulation.jobs import Job, Phase
from fairlead_simulator.simulation.pool_simulation import Simulation
from fairlead_simulator.simulation.pools import SimulatedPool, next_table

ROUTERS = 2
"""The number of routers that hand sessions over. One of them decides."""
LOOK_SECONDS = 0.25
STARTUP_SECONDS = 5.0
STEP_SECONDS = 40.0
"""Seconds between the drains of two instances."""
WINDOW_SECONDS = 100.0
WINDOWS = range(-1, 4)
SPREAD_SECONDS = 3.0
"""Seconds over which requests with equal timestamps are spread."""
SEEDS = range(5)
FIRST_NEW = 100
"""The number of the first new instance."""


@dataclass(slots=True)
class _Kept:
    """The last turn of a session, and the instance that computed it."""

    at: float
    instance: str
    job: Job
    given_up: bool = False


@dataclass(slots=True)
class _HandOver:
    session: str
    left: str
    job: Job
    began_at: float = 0.0
    dispatch: Dispatch | None = None


class _Rollout(Simulation):
    """A run of `jobs` in which every prefill instance is replaced from `begin` on.

    With `hands_over`, the sessions of draining instances fetch their blocks.
    """

    def __init__(self, spec: SimulatedPool, jobs: list[Job], begin: float, *, hands_over: bool) -> None:
        self._held: dict[str, float] = {}
        """The drained instances from which sessions still fetch, and when each was drained."""
        super().__init__(spec, jobs, held=self._held)
        self.handed_over = 0
        self._hands_over = hands_over
        self._last: dict[str, _Kept] = {}
        self._turns = NextTurns()
        self._under_way: dict[Job, _HandOver] = {}
        self._legs: dict[Job, Callable[[float], None]] = {}
        self._made = len(jobs)
        self._old = [entry.id for entry in self.scheduler.table.instances if entry.role is Role.PREFILL]
        self._take(next_table(self.scheduler.table, engine=replace(self.scheduler.table.engine, kv_transfer=KvTransferFacts())), 0.0)
        self._events.at(begin, self._replace_next, 0)
        self._events.at(LOOK_SECONDS, self._look, None)

    def _take(self, table: RoutingTable, now: float) -> None:
        self.fleet.forget_usages()
        for scheduler in self.routers:
            self._see(scheduler.update_table(table, now), now)

    def _replace_next(self, step: int, now: float) -> None:
        """Add a new serving instance, and drain an old one a little later."""
        new = replace(self.spec.entry(FIRST_NEW + step, Role.PREFILL), weight=1.0)
        self.fleet.start(new.id)
        table = self.scheduler.table
        entries = (replace(entry, stays=entry.id not in self._old) for entry in table.instances)
        self._take(next_table(table, (*entries, new)), now)
        self._events.at(now + STARTUP_SECONDS, self._drain, step)

    def _drain(self, step: int, now: float) -> None:
        leaving = self._old.pop(0)
        self._held[leaving] = now
        drained = self._changes.drain([leaving], self.scheduler.table).table
        assert drained is not None
        self._take(drained, now)
        if self._old:
            self._events.at(now + STEP_SECONDS - STARTUP_SECONDS, self._replace_next, step + 1)

    def _hear_completion(self, job: Job, now: float) -> None:
        if job.request is None:
            return
        if not job.request.warms:
            session = job.session or ""
            if session in self._last:
                self._turns.came(now - self._last[session].at)
            self._last[session] = _Kept(now, job.instance, job)
        super()._hear_completion(job, now)

    def _look(self, _: None, now: float) -> None:
        for name in [name for name, since in self._held.items() if now - since >= HOLD_SECONDS]:
            del self._held[name]
        here = {key: one for key, one in self._last.items() if one.instance in self._held and not one.given_up}
        sessions = (Leaving(name=key, tokens=one.job.input_tokens, idle_seconds=now - one.at) for key, one in here.items())
        for worth in ranked(sessions, self._turns, fetched=True) if self._hands_over else ():
            if len(self._under_way) < FETCHES_AT_ONCE * ROUTERS:
                self._begin(worth.session.name, now)
        if self._open:
            self._events.at(now + LOOK_SECONDS, self._look, None)

    def _begin(self, session: str, now: float) -> None:
        kept = self._last[session]
        kept.given_up = True
        self._made += 1
        job = _again(kept.job, self._made, session, now)
        among = tuple(entry.id for entry in self.scheduler.table.instances if entry.accepting and entry.stays)
        job.request = RoutingRequest(
            id=f"r{job.index}",
            arrived_at=now,
            prompt_tokens=job.input_tokens,
            blocks=job.blocks,
            first_bytes_hash=job.blocks[0] if job.blocks else job.index,
            session=session,
            max_output_tokens=1,
            streamed=False,
            warms=True,
            movable=True,
            within=among or None,
        )
        job.phase = Phase.ROUTED
        self._under_way[job] = _HandOver(session, kept.instance, job)
        self._jobs[job.request.id] = job
        self._open += 1
        self._see(self.scheduler.submit(job.request, now), now)

    def _give_up(self, job: Job, phase: Phase) -> None:
        self._under_way.pop(job, None)
        super()._give_up(job, phase)

    def _dispatch(self, job: Job, dispatch: Dispatch, now: float) -> None:
        over = self._under_way.get(job)
        if over is None:
            super()._dispatch(job, dispatch, now)
        elif dispatch.transfer_from is None or not self.fleet.alive(dispatch.transfer_from):
            self._end(over, now)
        else:
            over.began_at, over.dispatch = now, dispatch
            self._ask(dispatch.transfer_from, job, now, lambda at: self._send(over, at))

    def _ask(self, instance: str, job: Job, now: float, then: Callable[[float], None]) -> None:
        """Send an engine the one-token request of a hand-over; `then` is called with the time of the answer."""
        leg = _again(job, -1, None, now)
        self._legs[leg] = then
        self.fleet.submit(leg, instance, now)

    def _send(self, over: _HandOver, now: float) -> None:
        assert over.dispatch is not None
        source, target = self.fleet.instances[str(over.dispatch.transfer_from)], over.dispatch.instance
        count = source.kv.holds(over.job.blocks)
        seconds = self._transfers._begin(source, count * PREFIX_BLOCK_TOKENS)

        def received(_: None, at: float) -> None:
            self._transfers._active[source.name] -= 1
            self.fleet.instances[target].kv.fetched(over.job.blocks[:count])
            self._ask(target, over.job, at, lambda answered: self._end(over, answered))

        self._events.at(now + seconds, received, None)

    def _step_ended(self, instance: SimulatedInstance, result: StepResult[Job], now: float) -> None:
        for leg in [job for job in result.finished if job in self._legs]:
            self._legs.pop(leg)(now)
        super()._step_ended(instance, result, now)

    def _end(self, over: _HandOver, now: float) -> None:
        """End a hand-over. If it was dispatched, its blocks are at the new instance."""
        job, dispatch, kept = over.job, over.dispatch, self._last[over.session]
        assert job.request is not None
        del self._under_way[job]
        if dispatch is None:
            self._see(self.scheduler.fail(job.request.id, now), now)
        else:
            transfer = CacheTransfer(fate=CacheFate.MOVED, seconds=now - over.began_at, tokens=dispatch.transfer_tokens)
            self.scheduler.transferred(job.request.id, now, transfer)
            self._see(self.scheduler.complete(job.request.id, now, 0, None), now)
            self.handed_over += 1
            if kept.instance == over.left:
                kept.instance, kept.given_up = dispatch.instance, False
        job.phase = Phase.FINISHED
        self._close(job)


def _again(job: Job, index: int, session: str | None, now: float) -> Job:
    return Job(index=index, arrives_at=now, input_tokens=job.input_tokens, output_tokens=1, blocks=job.blocks, session=session)


def _jobs(work: Work, end: float, seed: int) -> list[Job]:
    """Return the rows until `end` as jobs. A row continues the session whose blocks its prompt repeats; if there is
    none, it begins a session. The first block does not count, because all prompts share it.
    """
    chance, owners, jobs = Random(seed), dict[int, str](), list[Job]()
    for index, row in enumerate(work.rows):
        at = ((row.timestamp_ms - work.rows[0].timestamp_ms) / 1e3 + chance.random() * SPREAD_SECONDS) / work.speed
        session = next((owners[block] for block in reversed(row.hash_ids[1:]) if block in owners), f"s{index}")
        owners.update(dict.fromkeys(row.hash_ids[1:], session))  # the first block is everybody's
        blocks = tuple(block + (seed << 40) for block in row.hash_ids[: row.input_length // PREFIX_BLOCK_TOKENS])
        output = max(1, row.output_length)
        if at <= end:
            jobs.append(
                Job(index=index, arrives_at=at, input_tokens=row.input_length, output_tokens=output, blocks=blocks, session=session)
            )
    return jobs


def _pool(work: Work, instances: int, cache_tokens: int, seed: int) -> SimulatedPool:
    speed, engine = work.prefill_tokens_per_second, preset("simulated")
    engine = replace(
        engine,
        block_tokens=PREFIX_BLOCK_TOKENS,
        kv_tokens=cache_tokens,
        prefill=PrefillCost(per_token=1 / speed),
        decode=replace(engine.decode, fixed=work.decode_step_seconds),
    )
    return SimulatedPool(
        preset=engine,
        instances=0,
        prefill_instances=instances,
        decode_instances=instances,
        policy="fairlead",
        slo_ttft_seconds=30.0,
        slo_tpot_seconds=0.05,
        prefill_tokens_per_second=speed,
        seed=seed,
    )


def _shares(work: Work, jobs: Iterable[Job], begin: float) -> list[float]:
    """Return the hits as shares of the ideal, for each of `WINDOWS` from `begin` on."""
    found = {window: [0, 0] for window in WINDOWS}
    for job in jobs:
        window = found.get(int((job.arrives_at - begin) // WINDOW_SECONDS))
        if window is not None and job.phase is Phase.FINISHED:
            window[0] += min(job.hit_tokens, work.ideal[job.index])
            window[1] += work.ideal[job.index]
    return [hit / ideal if ideal else 0.0 for hit, ideal in found.values()]


class RolledOut(NamedTuple):
    """The result of a run: the hits as shares of the ideal for each of `WINDOWS`, the number of sessions that were
    handed over, and the number of refused requests.
    """

    shares: list[float]
    handed_over: int
    refused: int


def rolled_out(work: Work, instances: int, begin: float, cache_tokens: int, seed: int, *, hands_over: bool) -> RolledOut:
    """Return the result of a run in which all prefill instances are replaced from `begin` on.

    With `hands_over`, sessions fetch their blocks.
    """
    jobs = _jobs(work, begin + WINDOW_SECONDS * WINDOWS.stop, seed)
    run = _Rollout(_pool(work, instances, cache_tokens, seed), jobs, begin, hands_over=hands_over)
    run.run()
    return RolledOut(_shares(work, jobs, begin), run.handed_over, sum(job.phase is Phase.REFUSED for job in jobs))


def run_rollouts(work: Work, instances: int, warm_up: float, cache_tokens: int) -> int:
    """Print the share of hits that a rollout keeps, without and with hand-overs, as the mean and the worst value of
    several seeds. Return 0.
    """
    print("| sessions | hits before, from the begin, and in the next three windows | the worst run | handed over | refused |")
    print("|---|---|---|---|---|")
    for hands_over in (False, True):
        runs = [rolled_out(work, instances, warm_up, cache_tokens, seed, hands_over=hands_over) for seed in SEEDS]
        windows = list(zip(*(run.shares for run in runs), strict=True))
        mean, worst = (", ".join(f"{of(window):.0%}" for window in windows) for of in (fmean, min))
        words = "fetch their blocks" if hands_over else "are not handed over"
        over, refused = fmean(run.handed_over for run in runs), fmean(run.refused for run in runs)
        print(f"| {words} | {mean} | {worst} | {over:.0f} | {refused:.1f} |", flush=True)
    return 0

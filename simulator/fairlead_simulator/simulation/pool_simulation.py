"""One run: jobs, engines and a scheduler on one clock.

Everything happens in the order of (time, sequence of scheduling), so a run depends on nothing but its inputs. An engine begins its next step
before the router reacts to what the last one brought, as over a network.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import exp, inf
from random import Random
from typing import Any

from fairlead.instances import Role
from fairlead.reports import MigrationRecord, ReRouteRecord
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.scheduling.placing import SchedulerSettings
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_process.policies import installed_policies
from fairlead_simulator.engine_model.kv_memory import PREFIX_BLOCK_TOKENS
from fairlead_simulator.simulation.instances import SimulatedInstance
from fairlead_simulator.simulation.jobs import Job, Phase
from fairlead_simulator.simulation.observation_quality import ObservationQuality
from fairlead_simulator.simulation.pool_changes import PoolChanges
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.timeline import TimelineEvent

_SAMPLE_SECONDS = 1.0
_TAKE_RECORDS_SECONDS = 300.0


@dataclass(slots=True)
class LoadPoint:
    """Pending prefill tokens of every instance at one instant, as the router counts them."""

    at: float
    pending: dict[str, int]


@dataclass(slots=True)
class RunResult:
    """What a run left behind, besides the jobs themselves."""

    jobs: Sequence[Job]
    ended_at: float = 0.0
    refusals: dict[str, int] = field(default_factory=dict)
    """Refused requests by reason."""
    migrations: list[MigrationRecord] = field(default_factory=list)
    reroutes: list[ReRouteRecord] = field(default_factory=list)
    loads: list[LoadPoint] = field(default_factory=list)
    events: int = 0
    preemptions: int = 0
    transferred_tokens: int = 0
    records_dropped: int = 0


class Simulation:
    """Runs `jobs` through a pool. `scheduler` is another one than that of the pool's first table, such as one that logs its calls.

    `probe` is shown the simulation at every sample (`metrics_seconds` apart), with the time.
    """

    def __init__(
        self,
        spec: SimulatedPool,
        jobs: Sequence[Job],
        *,
        quality: ObservationQuality | None = None,
        timeline: Sequence[TimelineEvent] = (),
        scheduler: PoolScheduler | None = None,
        tick_seconds: float = 0.25,
        on_progress: Callable[[int], None] | None = None,
        probe: "Callable[[Simulation, float], None] | None" = None,
    ) -> None:
        self.spec = spec
        self.quality = quality or ObservationQuality()
        self.result = RunResult(jobs)
        table = spec.first_table()
        self.scheduler = scheduler or PoolScheduler(
            table, "simulator", spec.seed, sample_rate=0.0, settings=SchedulerSettings(load_samples=False), policies=installed_policies()
        )
        self.instances: dict[str, SimulatedInstance] = {entry.id: SimulatedInstance(entry.id, spec.preset) for entry in table.instances}
        self._dead: set[str] = set()
        self._changes = PoolChanges(spec, timeline)
        self._jobs: dict[str, Job] = {}
        self._heap: list[tuple[float, int, Callable[[Any, float], None], Any]] = []
        self._sequence = 0
        self._open = 0
        """Jobs that have arrived or will, and have not ended."""
        self._ticking = False
        self._tick_seconds = tick_seconds
        self._transfers: dict[str, int] = {}
        self._noise = Random(f"noise/{spec.seed}")
        self._on_progress = on_progress
        self._probe = probe
        self._told: dict[str, float] = {}
        """KV usages as last told: telling the same again would change nothing."""
        self._taken_at = 0.0
        self._progressed = 0

    def run(self) -> RunResult:
        """To the end of the last job. Raises RuntimeError if one can never end, which would be a bug of the model."""
        arrivals = sorted((job for job in self.result.jobs if job.arrives_at >= 0), key=lambda job: (job.arrives_at, job.index))
        self._open = len(self.result.jobs)
        count, position = len(arrivals), 0
        for event in self._changes.planned():
            self._at(event.at, self._change, event)
        self._at(_SAMPLE_SECONDS, self._sample, None)
        heap = self._heap
        now = 0.0
        while self._open:
            due = arrivals[position].arrives_at if position < count else inf
            if due <= (heap[0][0] if heap else inf):
                if due == inf:
                    raise RuntimeError(f"{self._open} requests can never end")
                now = due
                self._arrive(arrivals[position], now)
                position += 1
            else:
                now, _, happen, payload = heappop(heap)
                happen(payload, now)
            self.result.events += 1
        self.result.ended_at = now
        self._take_records(now, final=True)
        self.result.preemptions = sum(instance.preemptions for instance in self.instances.values())
        return self.result

    # ---- events

    def _at(self, time: float, happen: Callable[[Any, float], None], payload: Any) -> None:
        """Call `happen(payload, time)` when the clock is there."""
        self._sequence += 1
        heappush(self._heap, (time, self._sequence, happen, payload))

    def _arrive(self, job: Job, now: float) -> None:
        job.arrives_at = now
        job.phase = Phase.ROUTED
        tokens = job.input_tokens
        if self.quality.token_noise > 0:
            tokens = max(1, round(tokens * exp(self._noise.gauss(0.0, self.quality.token_noise))))
        request = RoutingRequest(
            id=f"r{job.index}",
            arrived_at=now,
            prompt_tokens=tokens,
            blocks=job.blocks,
            first_bytes_hash=job.blocks[0] if job.blocks else job.index,
            session=job.session,
            max_output_tokens=job.output_tokens,
        )
        job.request = request
        self._jobs[request.id] = job
        self._see(self.scheduler.submit(request, now), now)

    def _tick(self, _: None, now: float) -> None:
        self._ticking = False
        self._see(self.scheduler.tick(now), now)

    def _observe(self, usages: Sequence[tuple[str, float]], now: float) -> None:
        for instance, usage in usages:
            self.scheduler.observe_engine(instance, usage, now)

    def _step_ended(self, step: tuple[SimulatedInstance, int], now: float) -> None:
        instance, version = step
        if instance.version != version:
            return
        result = instance.step_ended(now)
        self._watch(instance)
        if not (result.first_tokens or result.finished or result.transfers):
            return
        delay = self.quality.delay_seconds
        for job in result.transfers:
            self._transfer(instance, job, now)
        for job in result.first_tokens:
            if delay:
                self._at(now + delay, self._hear_first_token, job)
            else:
                self._hear_first_token(job, now)
        for job in result.finished:
            if job.phase is not Phase.FINISHED:
                continue  # refused for the first token it had
            if delay:
                self._at(now + delay, self._hear_completion, job)
            else:
                self._hear_completion(job, now)
            self._next_turn(job, now)

    def _hear_first_token(self, job: Job, now: float) -> None:
        if job.first_token_at < 0 or job.request is None:
            return  # its engine died before the news arrived
        job.heard_first = True
        self._see(self.scheduler.first_token(job.request.id, now), now)

    def _hear_completion(self, job: Job, now: float) -> None:
        if job.request is None or job.request.id not in self._jobs:
            return  # refused meanwhile
        self._see(self.scheduler.complete(job.request.id, now, job.output_tokens, job.hit_tokens), now)
        self._close(job)

    def _next_turn(self, job: Job, now: float) -> None:
        if job.next_job is not None:
            self._at(now + job.next_pause, self._arrive, job.next_job)

    def _close(self, job: Job) -> None:
        if job.request is not None:
            del self._jobs[job.request.id]
        self._open -= 1
        self._progressed += 1
        if self._on_progress is not None and self._progressed % 200 == 0:
            self._on_progress(200)

    def _give_up(self, job: Job, phase: Phase) -> None:
        """Refused or lost; a session's later turns never come."""
        job.phase = phase
        self._close(job)
        following = job.next_job
        while following is not None:
            following.phase = phase
            self._open -= 1
            following = following.next_job

    # ---- the scheduler's answers

    def _see(self, outcomes: Sequence[Dispatch | Refusal], now: float) -> None:
        for outcome in outcomes:
            self._obey(outcome, now)
        if not self._ticking and self.scheduler.waiting():
            self._ticking = True
            self._at(now + self._tick_seconds, self._tick, None)

    def _obey(self, outcome: Dispatch | Refusal, now: float) -> None:
        job = self._jobs[outcome.request.id]
        if isinstance(outcome, Refusal):
            reason = outcome.reason.value
            self.result.refusals[reason] = self.result.refusals.get(reason, 0) + 1
            if job.phase is Phase.FINISHED:  # the news of its first token came after its last
                self._close(job)
                return
            if job.phase is not Phase.ROUTED:  # refused after its prefill
                self._abort(job, now)
            self._give_up(job, Phase.REFUSED)
            return
        if outcome.instance in self._dead:
            self._lost(job, outcome.instance, now)
            return
        self._dispatch(job, outcome, now)

    def _dispatch(self, job: Job, dispatch: Dispatch, now: float) -> None:
        job.decode_instance = dispatch.decode
        source = dispatch.transfer_from
        if source is not None and source not in self._dead and dispatch.transfer_tokens > 0:
            self._fetch(job, dispatch, self.instances[source], now)
            return
        instance = self.instances[dispatch.instance]
        instance.submit(job, now)
        self._watch(instance)

    def _watch(self, instance: SimulatedInstance) -> None:
        """Be there when its step ends; earlier appointments lapse with the version."""
        version = instance.version
        if instance.watched != version and instance.ends_at is not None:
            instance.watched = version
            self._sequence += 1
            heappush(self._heap, (instance.ends_at, self._sequence, self._step_ended, (instance, version)))

    def _abort(self, job: Job, now: float) -> None:
        """Whatever engine has it lets go of it."""
        for name in {job.instance, job.decode_instance or job.instance}:
            instance = self.instances[name]
            if instance.has(job):
                instance.abort(job, now)
                self._watch(instance)

    # ---- transfers

    def _fetch(self, job: Job, dispatch: Dispatch, source: SimulatedInstance, now: float) -> None:
        """Prefix blocks of the prompt go from `source` to where it will be computed, before it is."""
        count = min(source.kv.holds(job.blocks), (dispatch.hit_tokens + PREFIX_BLOCK_TOKENS - 1) // PREFIX_BLOCK_TOKENS)
        blocks = job.blocks[:count]
        tokens = min(dispatch.transfer_tokens, count * PREFIX_BLOCK_TOKENS)
        self.result.transferred_tokens += tokens
        seconds = self._begin_transfer(source, tokens)
        self._at(now + seconds, self._fetched, (source, dispatch.instance, job, blocks))

    def _fetched(self, payload: tuple[SimulatedInstance, str, Job, tuple[int, ...]], now: float) -> None:
        source, name, job, blocks = payload
        self._transfers[source.name] -= 1
        assert job.request is not None, "only routed jobs fetch"
        self.scheduler.transferred(job.request.id, now)
        if name in self._dead:
            self._lost(job, name, now)
            return
        target = self.instances[name]
        target.kv.fetched(blocks)
        target.submit(job, now)
        self._watch(target)

    def _begin_transfer(self, source: SimulatedInstance, tokens: int) -> float:
        active = self._transfers.get(source.name, 0)
        self._transfers[source.name] = active + 1
        return self.spec.preset.transfer.seconds(tokens, active)

    def _transfer(self, source: SimulatedInstance, job: Job, now: float) -> None:
        self.result.transferred_tokens += job.input_tokens
        self._at(now + self._begin_transfer(source, job.input_tokens), self._transferred, (source, job))

    def _transferred(self, payload: tuple[SimulatedInstance, Job], now: float) -> None:
        source, job = payload
        self._transfers[source.name] -= 1
        if not source.sends(job):
            return  # the source died meanwhile, or the request was given up
        source.release(job, now)
        self._watch(source)
        target = job.decode_instance
        if target is None or target in self._dead or target not in self.instances:
            self._lost(job, job.instance, now)
            return
        self.instances[target].receive(job, now)
        self._watch(self.instances[target])

    # ---- the pool changes

    def _change(self, event: Any, now: float) -> None:
        change = self._changes.apply(event, self.scheduler.table, now)
        for name in change.started:
            self._dead.discard(name)
            self.instances[name] = SimulatedInstance(name, self.spec.preset)
        for later in change.later:
            self._at(later.at, self._change, later)
        for name in change.died:
            self._die(name, now)
        if change.table is not None:
            self._told.clear()
            self._see(self.scheduler.update_table(change.table, now), now)

    def _die(self, name: str, now: float) -> None:
        self._dead.add(name)
        for job in sorted(self.instances[name].die(), key=lambda job: job.index):
            self._lost(job, name, now)

    def _lost(self, job: Job, instance: str, now: float) -> None:
        """The connection broke: tried again elsewhere before the first byte, else failed."""
        assert job.request is not None, "only routed jobs reach an engine"
        request_id = job.request.id
        self.scheduler.instance_failed(instance, now)
        if job.heard_first:
            outcomes = self.scheduler.fail(request_id, now)
            self._give_up(job, Phase.FAILED)
        else:
            job.reset()
            job.phase = Phase.ROUTED
            outcomes = (self.scheduler.retry(request_id, now, instance),)
        self._see(outcomes, now)

    # ---- sampling

    def _sample(self, _: None, now: float) -> None:
        loads = self.scheduler.loads()
        self.result.loads.append(
            LoadPoint(now, {load.entry.id: load.pending_prefill_tokens for load in loads if load.entry.role is not Role.DECODE})
        )
        if self._probe is not None:
            self._probe(self, now)
        told = self._told
        usages = [
            (name, usage)
            for name, instance in self.instances.items()
            if (usage := instance.kv.usage) != told.get(name) and name not in self._dead
        ]
        told.update(usages)
        if self.quality.delay_seconds:
            self._at(now + self.quality.delay_seconds, self._observe, usages)
        else:
            self._observe(usages, now)
        if self._changes.draining:
            self._change(self._changes.departures(self.scheduler, now), now)
        self._see(self.scheduler.tick(now), now)
        if now - self._taken_at >= _TAKE_RECORDS_SECONDS:
            self._taken_at = now
            self._take_records(now, final=False)
        if self._open:
            self._at(now + self.quality.metrics_seconds, self._sample, None)

    def _take_records(self, now: float, *, final: bool) -> None:
        records = self.scheduler.take_records(now, final=final)
        self.result.migrations += records.migrations
        self.result.reroutes += records.reroutes
        self.result.records_dropped += records.dropped

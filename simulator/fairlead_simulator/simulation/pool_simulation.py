"""One run: jobs, engines and routers on one virtual clock.

Events happen in order of time. Events at the same time happen in the order in which they were planned, so a run depends
only on its inputs. An engine begins its next step before the router reacts to the results of the last step, because in
a real pool the reaction crosses a network.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from math import inf
from random import Random
from typing import Any

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead_simulator.engine_model.steps import StepResult
from fairlead_simulator.simulation.autoscaling import Autoscaler, SimulatedScaling, cheapest_first
from fairlead_simulator.simulation.event_delivery import EventDelivery
from fairlead_simulator.simulation.events import EventQueue
from fairlead_simulator.simulation.fleet import Fleet, SimulatedInstance, Transfers
from fairlead_simulator.simulation.jobs import Job, Phase
from fairlead_simulator.simulation.kv_events import PromptKeys
from fairlead_simulator.simulation.observation_quality import ObservationQuality
from fairlead_simulator.simulation.pool_changes import PoolChanges
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.routers import KeptTurns, Routers
from fairlead_simulator.simulation.run_results import RunRecorder, RunResult
from fairlead_simulator.simulation.timeline import TimelineEvent
from fairlead_simulator.simulation.training import Training

_SAMPLE_SECONDS = 1.0


class Simulation:
    """A run of `jobs` through a pool.

    If `scheduler` is given, it takes the place of the first router's scheduler; for example, it may log its calls.
    `probe` is called with the simulation and the time at every sample, that is every `metrics_seconds`. If `scaling` is
    given, the pool is scaled by these rules, and `autoscaler` has the history. If `keep_loads` is set, the result has
    the load of every instance at every sample. An instance named in `held` is not removed after its drain, for example
    because sessions still fetch blocks from it.
    """

    def __init__(
        self,
        spec: SimulatedPool,
        jobs: Sequence[Job],
        *,
        quality: ObservationQuality | None = None,
        timeline: Sequence[TimelineEvent] = (),
        scheduler: SharedScheduler | None = None,
        tick_seconds: float = 0.05,
        on_progress: Callable[[int], None] | None = None,
        probe: "Callable[[Simulation, float], None] | None" = None,
        scaling: SimulatedScaling | None = None,
        keep_loads: bool = False,
        held: Container[str] = frozenset(),
    ) -> None:
        self.spec = spec
        self.quality = quality or ObservationQuality()
        self.result = RunResult(jobs)
        table = spec.first_table() if scaling is None else replace(spec.first_table(), holding=scaling.scaling.zero)
        self._events = EventQueue()
        heard = self.quality.kv_events
        self._delivery = None if heard is None else EventDelivery(heard, self._events, spec.seed)
        self.routers = Routers(spec, table, scheduler, self._events, self._see, self._delivery)
        self._keys = PromptKeys()
        self.fleet = Fleet(spec.preset_of, (entry.id for entry in table.instances), self._events, self._step_ended, self._delivery)
        self._transfers = Transfers(spec.preset.transfer, self.fleet, self._events, self.routers, self._lost)
        self._recorder = RunRecorder(self.routers, self.result, keep_loads=keep_loads)
        self._changes = PoolChanges(spec, timeline, self._cheapest_first, held)
        self.autoscaler = None if scaling is None else Autoscaler(spec, scaling)
        self._meter = None if self.autoscaler is None else self.autoscaler.meter
        self._kept = KeptTurns() if spec.copying else None
        self._training = Training(lambda: self.scheduler, self._events, spec.seed)
        self._jobs: dict[str, Job] = {}
        self._open = 0
        """Number of jobs that have not ended, including jobs that have not arrived yet."""
        self._ticking = False
        self._tick_seconds = tick_seconds
        self._noise = Random(f"noise/{spec.seed}")
        self._on_progress = on_progress
        self._probe = probe
        self._progressed = 0

    @property
    def scheduler(self) -> SharedScheduler:
        """The scheduler that decides for all routers. If each router decides alone, this is the scheduler of the first
        serving router.
        """
        return self.routers.leading

    def run(self) -> RunResult:
        """Run until the last job has ended, and return the results. Raises RuntimeError if a job can never end, which
        would be a fault of the model.
        """
        arrivals = sorted((job for job in self.result.jobs if job.arrives_at >= 0), key=lambda job: (job.arrives_at, job.index))
        self._open = len(self.result.jobs)
        count, position = len(arrivals), 0
        events, result = self._events, self.result
        for event in self._changes.planned():
            events.at(event.at, self._change, event)
        events.at(_SAMPLE_SECONDS, self._sample, None)
        self.routers.start(0.0)
        now = 0.0
        while self._open:
            due = arrivals[position].arrives_at if position < count else inf
            if due <= events.next_at():
                if due == inf:
                    raise RuntimeError(f"{self._open} requests can never end")
                now = due
                self._arrive(arrivals[position], now)
                position += 1
            else:
                now = events.let_happen()
            result.events += 1
        result.ended_at = now
        self._recorder.take_records(now, final=True)
        self._tick_all(now)  # which raises what a policy raised last
        result.preemptions = self.fleet.preemptions
        result.transferred_tokens = self._transfers.tokens
        result.rounds = self._training.rounds
        result.learning = None if self.scheduler.learns_online is None else self.scheduler.learns_online.learning()
        result.event_gaps = 0 if self._delivery is None else self._delivery.gaps
        return result

    # ---- events

    def _arrive(self, job: Job, now: float) -> None:
        job.arrives_at = now
        job.phase = Phase.ROUTED
        request = RoutingRequest(
            id=f"r{job.index}",
            arrived_at=now,
            prompt_tokens=self.quality.seen_tokens(job.input_tokens, self._noise),
            blocks=job.blocks,
            first_bytes_hash=job.blocks[0] if job.blocks else job.index,
            session=job.session,
            max_output_tokens=job.output_tokens,
            priority_class=job.priority_class,
            tenant=job.tenant,
            streamed=self.quality.is_streamed(self._noise),
            engine_blocks=() if self._delivery is None else self._keys.of(job.blocks, job.input_tokens),
        )
        job.request = request
        self._jobs[request.id] = job
        if self._meter is not None:
            self._meter.arrived(job, now)
        self._see(self.routers.take(job).submit(request, now), now)

    def _tick(self, _: None, now: float) -> None:
        self._ticking = False
        self._tick_all(now)

    def _observe(self, usages: Sequence[tuple[str, float, int]], now: float) -> None:
        for scheduler in self.routers:
            for instance, usage, waiting in usages:
                scheduler.observe_engine(instance, usage, now, waiting)

    def _step_ended(self, instance: SimulatedInstance, result: StepResult[Job], now: float) -> None:
        delay = self.quality.delay_seconds
        for job in result.transfers:
            self._transfers.send_on(instance, job, now)
        for job in result.first_tokens:
            if delay:
                self._events.at(now + delay, self._hear_first_token, job)
            else:
                self._hear_first_token(job, now)
        for job in result.finished:
            if job.phase is not Phase.FINISHED:
                continue  # refused for the first token it had
            if delay:
                self._events.at(now + delay, self._hear_completion, job)
            else:
                self._hear_completion(job, now)
            if job.next_job is not None:
                self._events.at(now + job.next_pause, self._arrive, job.next_job)

    def _hear_first_token(self, job: Job, now: float) -> None:
        if job.first_token_at < 0 or job.request is None:
            return  # its engine died before the news arrived
        if not job.request.streamed:
            if job.decode_instance is not None:  # a router asks the other instance once the first has answered
                self._see(self.routers.of(job).prefilled(job.request.id, now), now)
            return
        job.heard_first = True
        if self._meter is not None:
            self._meter.first_token(job, now)
        self._see(self.routers.of(job).first_token(job.request.id, now), now)

    def _hear_completion(self, job: Job, now: float) -> None:
        if job.request is None or job.request.id not in self._jobs:
            return  # refused meanwhile
        if self._meter is not None:
            self._meter.completed(job, now)
        self._see(self.routers.of(job).complete(job.request.id, now, job.output_tokens, job.hit_tokens), now)
        if self._kept is not None:
            self._kept.keep(job.request, now)
        self._close(job)

    def _close(self, job: Job) -> None:
        if self._meter is not None:
            self._meter.ended(job)
        if job.request is not None:
            del self._jobs[job.request.id]
        self._open -= 1
        self._progressed += 1
        if self._on_progress is not None and self._progressed % 200 == 0:
            self._on_progress(200)

    def _give_up(self, job: Job, phase: Phase) -> None:
        """End a refused or lost request with the final `phase`. The later turns of its session are never sent."""
        job.phase = phase
        self._close(job)
        for later in job.later_turns():
            later.phase = phase
            self._open -= 1

    # ---- the scheduler's answers

    def _see(self, outcomes: Sequence[Dispatch | Refusal], now: float) -> None:
        for outcome in outcomes:
            self._obey(outcome, now)
        if not self._ticking and any(scheduler.waiting() for scheduler in self.routers):
            self._ticking = True
            self._events.at(now + self._tick_seconds, self._tick, None)

    def _obey(self, outcome: Dispatch | Refusal, now: float) -> None:
        job = self._jobs[outcome.request.id]
        if isinstance(outcome, Refusal):
            self.result.count_refusal(outcome.reason.value)
            if self._meter is not None:
                self._meter.refused(job, now, outcome.reason)
            if job.phase is Phase.FINISHED:  # the news of its first token came after its last; the next turn is under way
                job.phase = Phase.REFUSED
                self._close(job)
                return
            if job.phase is not Phase.ROUTED:  # refused after its prefill
                self.fleet.abort(job, now)
            self._give_up(job, Phase.REFUSED)
            return
        if not self.fleet.alive(outcome.instance):
            self._lost(job, outcome.instance, now)
            return
        self._dispatch(job, outcome, now)

    def _dispatch(self, job: Job, dispatch: Dispatch, now: float) -> None:
        job.decode_instance = dispatch.decode
        job.believed_tokens = None if dispatch.transfer_tokens else dispatch.hit_tokens
        source = dispatch.transfer_from
        if source is not None and self.fleet.alive(source) and dispatch.transfer_tokens > 0:
            self._transfers.fetch(job, dispatch, self.fleet.instances[source], now)
        else:
            self.fleet.submit(job, dispatch.instance, now)

    # ---- the pool changes

    def _change(self, event: Any, now: float) -> None:
        change = self._changes.apply(event, self.scheduler.table, now)
        for name in change.started:
            self.fleet.start(name)
        if self._delivery is not None:
            self._delivery.connect(change.started, now)
        if change.routers != "none":
            self.routers.change(change.routers, now)
            self.fleet.forget_usages()
        for later in change.later:
            self._events.at(later.at, self._change, later)
        for name in change.died:
            for job in self.fleet.die(name):
                self._lost(job, name, now)
        if change.table is not None:
            self.fleet.forget_usages()
            for scheduler in self.routers:
                self._see(scheduler.update_table(change.table, now), now)

    def _cheapest_first(self, names: Sequence[str]) -> list[str]:
        sessions = {job.session for job in self.result.jobs if job.session is not None and job.request is not None}
        return cheapest_first(self.scheduler, sessions, names)

    def _lost(self, job: Job, instance: str, now: float) -> None:
        """Handle a request whose connection to `instance` broke. If its response had not begun, the request is retried
        on another instance; otherwise it fails.
        """
        assert job.request is not None, "only routed jobs reach an engine"
        request_id = job.request.id
        scheduler = self.routers.of(job)
        scheduler.instance_failed(instance, now)
        if job.heard_first:
            outcomes = scheduler.fail(request_id, now)
            self._give_up(job, Phase.FAILED)
        else:
            job.reset()
            job.phase = Phase.ROUTED
            outcomes = (scheduler.retry(request_id, now, instance),)
        self._see(outcomes, now)

    def _tell_generated(self, now: float) -> None:
        """Report to the schedulers how many tokens each streamed answer has. Called at every sample, usually once a
        second as in a router.
        """
        if all(scheduler.knows_decode_times for scheduler in self.routers):
            return  # nobody learns from it
        for job in self._jobs.values():
            if job.heard_first and job.request is not None:
                self.routers.of(job).generated(job.request.id, now, self.fleet.generated(job))

    def _tick_all(self, now: float) -> None:
        for scheduler in self.routers:
            self._see(scheduler.tick(now), now)

    # ---- sampling

    def _copy_prefix(self, now: float) -> None:
        """Begin to copy a shared prefix if the scheduler finds that a copy is due. Called at every sample, usually once
        a second as in a router.
        """
        scheduler = self.scheduler
        copy = None if self._kept is None else scheduler.copy_due(self._kept.newest(), now)
        if copy is not None:
            self._transfers.copy(copy, scheduler, now)

    def _sample(self, _: None, now: float) -> None:
        self._recorder.sample_loads(now)
        if self._probe is not None:
            self._probe(self, now)
        usages = self.fleet.changed_usages()
        if self.quality.delay_seconds:
            self._events.at(now + self.quality.delay_seconds, self._observe, usages)
        else:
            self._observe(usages, now)
        if self.autoscaler is not None:
            for job in self._jobs.values():
                self.autoscaler.meter.generated(job, self.fleet.generated(job), now)
            held = self.scheduler.held()
            for event in self.autoscaler.second(self.scheduler.loads(), held, len(self._jobs) - held.requests, now):
                self._change(event, now)
        if self._changes.draining:
            self._change(self._changes.departures(self.routers, now), now)
        self._copy_prefix(now)
        self._training.second(now)
        self._tell_generated(now)
        self._tick_all(now)
        self._recorder.take_records(now)
        if self._open:
            self._events.at(now + self.quality.metrics_seconds, self._sample, None)

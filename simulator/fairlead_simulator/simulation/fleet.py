"""The engines of a run, and the transfers of KV blocks between them."""

from collections.abc import Callable, Iterable

from fairlead.reports.moves import CacheFate, CacheTransfer
from fairlead.routing.contracts.copies import PrefixCopy
from fairlead.routing.contracts.schedulers import Dispatch, Scheduler
from fairlead_simulator.engine_model.costs import TransferCost
from fairlead_simulator.engine_model.instance import Instance
from fairlead_simulator.engine_model.kv_memory import PREFIX_BLOCK_TOKENS, PrefixCacheWatcher
from fairlead_simulator.engine_model.presets import EnginePreset
from fairlead_simulator.engine_model.requests import Phase
from fairlead_simulator.engine_model.steps import StepResult
from fairlead_simulator.engine_model.trace_memory import TraceMemory
from fairlead_simulator.simulation.event_delivery import EventDelivery
from fairlead_simulator.simulation.events import EventQueue
from fairlead_simulator.simulation.jobs import Job
from fairlead_simulator.simulation.routers import Routers


class SimulatedInstance(Instance[Job]):
    """An engine called `name`, with the memory that its preset describes. `watcher` is notified about its prefix cache,
    and `host_watcher` about its second cache in host memory, if it has one.
    """

    def __init__(
        self, name: str, preset: EnginePreset, watcher: PrefixCacheWatcher | None = None, host_watcher: PrefixCacheWatcher | None = None
    ) -> None:
        self.kv = TraceMemory(
            preset.capacity_blocks,
            preset.block_tokens,
            preset.dram_tokens,
            preset.eviction,
            watcher,
            preset.host_tokens,
            host_watcher,
        )
        super().__init__(name, preset, self.kv)
        self.watched = 0
        """The value that the engine's `version` had when the end of its present step was planned as an event. If
        `version` differs, that event is outdated.
        """


StepEnded = Callable[[SimulatedInstance, StepResult[Job], float], None]


class Fleet:
    """The engines of a run by name; `preset_of` returns the preset of each. The ends of their steps are events in the
    queue `events`. If a step has a result, `step_ended` is called with it. If `delivery` is given, the engines publish
    KV events.
    """

    def __init__(
        self,
        preset_of: Callable[[str], EnginePreset],
        names: Iterable[str],
        events: EventQueue,
        step_ended: StepEnded,
        delivery: EventDelivery | None = None,
    ) -> None:
        self.instances: dict[str, SimulatedInstance] = {}
        self._preset_of = preset_of
        self._delivery = delivery
        self._dead: set[str] = set()
        self._events = events
        self._step_ended = step_ended
        self._coming: dict[Job, tuple[str, float]] = {}
        """Requests that were sent to an engine but have not arrived, each with the engine's name and the time of
        arrival.
        """
        self._told: dict[str, tuple[float, int]] = {}
        """Engine → the metrics that were last reported. Unchanged metrics are not reported again."""
        for name in names:
            self.start(name)

    @property
    def preemptions(self) -> int:
        """Number of preemptions in all engines. An engine that was replaced after it died no longer counts."""
        return sum(instance.preemptions for instance in self.instances.values())

    def alive(self, name: str) -> bool:
        """Return whether the engine was started and has not died."""
        return name in self.instances and name not in self._dead

    def start(self, name: str) -> None:
        """Start a new engine with empty memory. It may replace a dead engine of the same name."""
        self._dead.discard(name)
        watcher = None if self._delivery is None else self._delivery.engine_started(name)
        host_watcher = None if watcher is None else watcher.host
        self.instances[name] = SimulatedInstance(name, self._preset_of(name), watcher, host_watcher)

    def die(self, name: str) -> list[Job]:
        """Let an engine die. Return the requests that are lost with it, including requests on their way to it, in order
        of arrival at the router.
        """
        self._dead.add(name)
        if self._delivery is not None:
            self._delivery.engine_died(name)
        coming = [job for job, (to, _) in self._coming.items() if to == name]
        for job in coming:
            del self._coming[job]
        return sorted([*self.instances[name].die(), *coming], key=lambda job: job.index)

    def submit(self, job: Job, name: str, now: float) -> None:
        """Send a request to an engine. The request arrives there after the engine's `overhead_seconds`."""
        overhead = self.instances[name].settings.overhead_seconds
        if overhead <= 0:
            self._arrive(name, job, now)
            return
        job.phase, job.instance = Phase.WAITING, name
        self._coming[job] = (name, now + overhead)
        self._events.at(now + overhead, self._come, (job, self._coming[job]))

    def _come(self, arrival: tuple[Job, tuple[str, float]], now: float) -> None:
        job, place = arrival
        if self._coming.get(job) == place:
            del self._coming[job]
            self._arrive(place[0], job, now)

    def _arrive(self, name: str, job: Job, now: float) -> None:
        instance = self.instances[name]
        instance.submit(job, now)
        self._watch(instance, now)

    def receive(self, job: Job, name: str, now: float) -> None:
        """Give a request, whose KV blocks have arrived, to the engine that decodes it."""
        instance = self.instances[name]
        instance.receive(job, now)
        self._watch(instance, now)

    def release(self, job: Job, source: SimulatedInstance, now: float) -> None:
        """Free the KV blocks of a request on `source`, the engine that prefilled it."""
        source.release(job, now)
        self._watch(source, now)

    def abort(self, job: Job, now: float) -> None:
        """Abort the request on every engine that has it. If the request is still on its way to an engine, drop it."""
        if self._coming.pop(job, None) is not None:
            return
        for name in {job.instance, job.decode_instance or job.instance}:
            instance = self.instances[name]
            if instance.has(job):
                instance.abort(job, now)
                self._watch(instance, now)

    def generated(self, job: Job) -> int:
        """Return the number of the request's output tokens so far, up to the last counted step."""
        names = {job.instance, job.decode_instance or job.instance}
        return max((self.instances[name].generated(job) for name in names if name in self.instances), default=0)

    def changed_usages(self) -> list[tuple[str, float, int]]:
        """Return the metrics of living engines as (engine, used share of the KV cache, number of waiting requests).
        Engines whose metrics have not changed are left out unless requests wait.
        """
        told = self._told
        said = {name: (instance.kv.usage, instance.waiting) for name, instance in self.instances.items() if name not in self._dead}
        fresh = {name: figures for name, figures in said.items() if figures[1] or figures != told.get(name)}
        told.update(fresh)
        return [(name, usage, waiting) for name, (usage, waiting) in fresh.items()]

    def forget_usages(self) -> None:
        """Forget the metrics that were last reported, so that the metrics of all engines are reported again. This is
        needed for a new router and after a new routing table, because a scheduler drops its metrics with each new
        table.
        """
        self._told.clear()

    def _watch(self, instance: SimulatedInstance, now: float) -> None:
        """Plan an event at the end of the engine's present step, and publish the changes of the engine's cache. An
        event that was planned for an earlier `version` of the engine will be ignored.
        """
        if self._delivery is not None and instance.name not in self._dead:
            self._delivery.publish(instance.name, now)
        version, ends_at = instance.version, instance.ends_at
        if instance.watched != version and ends_at is not None:
            instance.watched = version
            self._events.at(ends_at, self._end_step, (instance, version))

    def _end_step(self, step: tuple[SimulatedInstance, int], now: float) -> None:
        instance, version = step
        if instance.version != version:
            return
        result = instance.step_ended(now)
        self._watch(instance, now)
        if result.first_tokens or result.finished or result.transfers:
            self._step_ended(instance, result, now)


Lost = Callable[[Job, str, float], None]


class Transfers:
    """The transfers of KV blocks in a run. Transfers from the same source share its link. If the target engine of a
    request dies before the transfer ends, `lost` is called for the request.
    """

    def __init__(self, cost: TransferCost, fleet: Fleet, events: EventQueue, routers: Routers, lost: Lost) -> None:
        self.tokens = 0
        """Total number of tokens whose KV blocks were transferred."""
        self._cost = cost
        self._fleet = fleet
        self._events = events
        self._routers = routers
        self._lost = lost
        self._active: dict[str, int] = {}
        """Number of transfers in progress, by source."""

    def fetch(self, job: Job, dispatch: Dispatch, source: SimulatedInstance, now: float) -> None:
        """Transfer cached prefix blocks of a prompt from `source` to the instance that will compute the prompt. The
        request is submitted to this instance when the transfer has ended.
        """
        count = min(source.kv.holds(job.blocks), (dispatch.hit_tokens + PREFIX_BLOCK_TOKENS - 1) // PREFIX_BLOCK_TOKENS)
        tokens = min(dispatch.transfer_tokens, count * PREFIX_BLOCK_TOKENS)
        seconds = self._begin(source, tokens)
        self._events.at(now + seconds, self._fetched, (source, dispatch.instance, job, job.blocks[:count]))

    def copy(self, copy: PrefixCopy, scheduler: Scheduler, now: float) -> None:
        """Transfer the blocks of a shared prefix before requests need them, so that no request has to wait."""
        source = self._fleet.instances[copy.source]
        count = source.kv.holds(copy.request.blocks)
        tokens = max(0, count * PREFIX_BLOCK_TOKENS - copy.target_tokens)
        transfer = CacheTransfer(fate=CacheFate.MOVED, seconds=self._begin(source, tokens), tokens=tokens)
        self._events.at(now + transfer.seconds, self._copied, (source, copy, copy.request.blocks[:count], transfer, scheduler))

    def send_on(self, source: SimulatedInstance, job: Job, now: float) -> None:
        """Transfer the KV blocks of a prefilled prompt to the instance that decodes the answer."""
        self._events.at(now + self._begin(source, job.input_tokens), self._sent_on, (source, job))

    def _begin(self, source: SimulatedInstance, tokens: int) -> float:
        """Begin a transfer, and return its duration in seconds."""
        self.tokens += tokens
        active = self._active.get(source.name, 0)
        self._active[source.name] = active + 1
        return self._cost.seconds(tokens, active)

    def _fetched(self, payload: tuple[SimulatedInstance, str, Job, tuple[int, ...]], now: float) -> None:
        source, name, job, blocks = payload
        self._active[source.name] -= 1
        assert job.request is not None, "only routed jobs fetch"
        self._routers.of(job).transferred(job.request.id, now)
        if not self._fleet.alive(name):
            self._lost(job, name, now)
            return
        self._fleet.instances[name].kv.fetched(blocks)
        self._fleet.submit(job, name, now)

    def _copied(self, payload: tuple[SimulatedInstance, PrefixCopy, tuple[int, ...], CacheTransfer, Scheduler], now: float) -> None:
        source, copy, blocks, transfer, scheduler = payload
        self._active[source.name] -= 1
        if self._fleet.alive(copy.target):
            self._fleet.instances[copy.target].kv.fetched(blocks)
        else:
            transfer = CacheTransfer(fate=CacheFate.LOST, seconds=transfer.seconds)
        scheduler.copied(copy, transfer, now)

    def _sent_on(self, payload: tuple[SimulatedInstance, Job], now: float) -> None:
        source, job = payload
        self._active[source.name] -= 1
        if not source.sends(job):
            return  # the source died meanwhile, or the request was given up
        self._fleet.release(job, source, now)
        target = job.decode_instance
        if target is None or not self._fleet.alive(target):
            self._lost(job, job.instance if target is None else target, now)  # the prefill instance has done its part
            return
        self._fleet.receive(job, target, now)

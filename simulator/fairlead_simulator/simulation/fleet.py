"""The engines of one run: those that work, and those that have died."""

from collections.abc import Callable, Iterable

from fairlead_simulator.engine_model.presets import EnginePreset
from fairlead_simulator.engine_model.requests import Phase
from fairlead_simulator.engine_model.steps import StepResult
from fairlead_simulator.simulation.event_delivery import EventDelivery
from fairlead_simulator.simulation.events import EventQueue
from fairlead_simulator.simulation.instances import SimulatedInstance
from fairlead_simulator.simulation.jobs import Job

StepEnded = Callable[[SimulatedInstance, StepResult[Job], float], None]


class Fleet:
    """Instances by name, each of the preset that `preset_of` gives. Their steps end on `events`; each step's results go
    to `step_ended`. With `delivery` they publish KV events.
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
        """Requests on their way to an engine, with their time of arrival."""
        self._told: dict[str, tuple[float, int]] = {}
        """What their metrics said last: telling the same again would change nothing."""
        for name in names:
            self.start(name)

    @property
    def preemptions(self) -> int:
        """Preemptions in all engines that were not replaced."""
        return sum(instance.preemptions for instance in self.instances.values())

    def alive(self, name: str) -> bool:
        """Whether what is sent there arrives."""
        return name in self.instances and name not in self._dead

    def start(self, name: str) -> None:
        """A new engine with empty memory, also in place of a dead one."""
        self._dead.discard(name)
        watcher = None if self._delivery is None else self._delivery.engine_started(name)
        self.instances[name] = SimulatedInstance(name, self._preset_of(name), watcher)

    def die(self, name: str) -> list[Job]:
        """The engine is gone; the requests lost with it, in order of arrival."""
        self._dead.add(name)
        if self._delivery is not None:
            self._delivery.engine_died(name)
        coming = [job for job, (to, _) in self._coming.items() if to == name]
        for job in coming:
            del self._coming[job]
        return sorted([*self.instances[name].die(), *coming], key=lambda job: job.index)

    def submit(self, job: Job, name: str, now: float) -> None:
        """A request arrives at an engine, which begins with it when its overhead is over."""
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
        """A request arrives to be decoded, with its KV."""
        instance = self.instances[name]
        instance.receive(job, now)
        self._watch(instance, now)

    def release(self, job: Job, source: SimulatedInstance, now: float) -> None:
        """The KV of a request has left the engine that prefilled it."""
        source.release(job, now)
        self._watch(source, now)

    def abort(self, job: Job, now: float) -> None:
        """Abort the request on every engine that has it or is about to get it."""
        if self._coming.pop(job, None) is not None:
            return
        for name in {job.instance, job.decode_instance or job.instance}:
            instance = self.instances[name]
            if instance.has(job):
                instance.abort(job, now)
                self._watch(instance, now)

    def generated(self, job: Job) -> int:
        """Tokens of its answer so far, up to the last step that was counted."""
        names = {job.instance, job.decode_instance or job.instance}
        return max((self.instances[name].generated(job) for name in names if name in self.instances), default=0)

    def changed_usages(self) -> list[tuple[str, float, int]]:
        """For living engines with waiting requests, or with changed figures: the used share of the KV cache, and the
        number of waiting requests.
        """
        told = self._told
        said = {name: (instance.kv.usage, instance.waiting) for name, instance in self.instances.items() if name not in self._dead}
        fresh = {name: figures for name, figures in said.items() if figures[1] or figures != told.get(name)}
        told.update(fresh)
        return [(name, usage, waiting) for name, (usage, waiting) in fresh.items()]

    def forget_usages(self) -> None:
        """A new table drops these figures, and a new router has none: send them all again."""
        self._told.clear()

    def _watch(self, instance: SimulatedInstance, now: float) -> None:
        """Be there when its step ends; earlier appointments lapse with the version. Its cache may have changed."""
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

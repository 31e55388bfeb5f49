"""The source of a served pool's state: reads the files, watches the engines' health, and reports to the control API.

It replaces the operator, with the operator's own client and its rules for an API that does not respond. State that it
needs after a restart is on disk, so it may be killed at any time.
"""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from fairlead.errors import InvalidInput
from fairlead.instances import InstanceState
from fairlead.pool_states import PoolEvent, PoolObservations
from fairlead.reconciling.observed import Warming
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.tables import PoolKey
from fairlead_client.outcomes import Later
from fairlead_operator.control_plane import ControlPlane
from fairlead_operator.reconciling.state_exchange import StateExchange
from fairlead_operator.settings import Pace
from fairlead_router.engines.engine_pages import ToldModels
from fairlead_serve.engine_states import Health, ServedEngine, WantedEngine, next_round, warm_shares
from fairlead_serve.metrics import SourceMetrics
from fairlead_serve.pool_files import NAMESPACE, PoolFile, digest, parse_pool_file
from fairlead_serve.pool_reports import conditions, pool_state, wanted_engines
from fairlead_serve.probing import keyless_words
from fairlead_serve.state_files import Marks, Memory, StateFiles

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""Seconds between two rounds while no engine's health changes."""
SETTLED_SECONDS = 5.0
"""Longest pause in seconds between two reports of the state."""
_MOST_EVENTS = 1000


class KnowsHealth(Protocol):
    """The engines' health as the source needs it: `probing.HealthWatch`, or a fixed table in tests."""

    def watch(self, addresses: Iterable[str]) -> None:
        """Probe these addresses (host:port) from now on, and no others."""

    def health(self, address: str, model: str) -> Health:
        """Return the health of an engine that must serve this model."""

    @property
    def models(self) -> Mapping[str, ToldModels]:
        """The models of each address where an engine listed its models."""


class PoolSource:
    """One served pool. `step` is one round; `now` returns Unix seconds. Make it inside a running event loop."""

    def __init__(
        self,
        files: StateFiles,
        control_plane: ControlPlane,
        health: KnowsHealth,
        policies: PolicyCatalogue,
        now: Callable[[], float],
        metrics: SourceMetrics | None = None,
    ) -> None:
        self.metrics = metrics or SourceMetrics()
        self._files = files
        self._control_plane = control_plane
        self._health = health
        self._policies = policies
        self._now = now
        self._file = files.read_pool(policies)
        self._content = ""
        self._marks = Marks()
        self._problem: str | None = None
        self._memory: Memory | None = files.read_memory()
        self._exchange: StateExchange | None = None
        self._answer: PoolObservations | None = None
        self._events: list[PoolEvent] = []
        self._told: tuple[object, float] = (None, float("-inf"))
        self._retry_at = float("-inf")
        self.waiting_words = ""
        """The reason why the pool cannot be reported yet; empty when it can be reported."""

    async def step(self) -> float:
        """Run one round. Return the seconds until the next round; a change of an engine's health starts it earlier."""
        now = self._now()
        self._read_files()
        self.metrics.file_refused.set(self._problem is not None)
        wanted = wanted_engines(self._file, self._marks)
        known = self._memory.engines if self._memory is not None else ()
        self._health.watch({one.address for one in wanted} | {engine.address for engine in known})
        memory = await self._identity(wanted)
        if memory is None:
            return LOOK_SECONDS
        memory = self._advanced(memory, wanted, now)
        self._remember(memory)
        await self._tell(memory, wanted, now)
        self._count(memory)
        return LOOK_SECONDS

    def _count(self, memory: Memory) -> None:
        states = Counter(engine.state.value for engine in memory.engines)
        for state in InstanceState:
            self.metrics.engines.labels(state.value).set(states[state.value])
        self.metrics.untold_events.set(len(self._events))

    def _read_files(self) -> None:
        """Read the pool's file and the marks again. If the file is invalid, its last valid content is used."""
        self._marks = self._files.read_marks()
        try:
            content = self._files.content()
            if content == self._content:
                self._problem = None
                return
            file = parse_pool_file(content, self._policies)
            self._check_same_pool(file)
        except InvalidInput as problem:
            if str(problem) != self._problem:
                self._problem = str(problem)
                logger.warning("the pool's file is refused; the last good one stays in force", extra={"error": self._problem})
            return
        if self._content:
            logger.info("the pool's file was read again", extra={"file": str(self._files.pool_file), "engines": len(file.pool.engines)})
        self._file, self._content, self._problem = file, content, None

    def _check_same_pool(self, file: PoolFile) -> None:
        """Raise InvalidInput if the file changes something that is fixed for a running pool."""
        if not self._content or self._memory is None:
            return
        again = "stop `fairlead serve` and start it again"
        if file.pool.name != self._memory.name:
            raise InvalidInput("name", file.pool.name, f"keep {self._memory.name}, or {again}")
        if file.pool.model not in {None, self._memory.model}:
            raise InvalidInput("model", file.pool.model, f"keep {self._memory.model}, or {again}")
        if self._memory.engines and file.pool.divides != self._memory.divides:
            raise InvalidInput("engines[].role", sorted(file.pool.roles), f"keep the roles of the pool, or {again}")
        if file.pool.engine.type not in {None, self._memory.engine_type}:
            raise InvalidInput("engine.type", file.pool.engine.type, f"keep {self._memory.engine_type}, or {again}")

    async def _identity(self, wanted: Sequence[WantedEngine]) -> Memory | None:
        """Return the stored memory of this pool (its identity and the states of its engines), either from the last run
        or new. None while the pool's model is unknown, or while an earlier pool of another name cannot be deleted.
        """
        pool, memory = self._file.pool, self._memory
        if self._exchange is not None:
            return memory
        if memory is not None and (
            memory.name != pool.name
            or (memory.engines and memory.divides != pool.divides)
            or pool.model not in {None, memory.model}
            or pool.engine.type not in {None, memory.engine_type}
        ):
            if memory.name != pool.name:
                gone = await self._control_plane.delete_pool(PoolKey(namespace=NAMESPACE, name=memory.name))
                if isinstance(gone, Later):
                    self._wait(gone.problem)
                    return None
            memory = None
        if memory is None:
            told = self._first_told(wanted)
            model = pool.model or (told.names[0] if told is not None else None)
            if model is None:
                answered = any(self._health.health(one.address, "").ready for one in wanted)
                self._wait(keyless_words(self._files.pool_file) if answered else "no engine answers yet, and the file names no model")
                return None
            engine_type = pool.engine.type or (told.engine_type if told is not None else "vllm")
            memory = Memory(name=pool.name, uid=uuid.uuid4().hex, model=model, engine_type=engine_type)
        self.waiting_words = ""
        self._memory = memory
        self._exchange = StateExchange(pool.key, self._control_plane, Pace(busy=1.0, settled=SETTLED_SECONDS), self._now)
        return memory

    def _wait(self, words: str) -> None:
        """Record the reason why the pool cannot be reported yet; a changed reason is logged."""
        if words != self.waiting_words:
            logger.warning("there is no pool yet", extra={"error": words})
        self.waiting_words = words

    def _first_told(self, wanted: Sequence[WantedEngine]) -> ToldModels | None:
        """Return the models of the first engine in the file that lists its models; None if no engine does."""
        told = self._health.models
        return next((told[one.address] for one in wanted if one.address in told), None)

    def _advanced(self, memory: Memory, wanted: Sequence[WantedEngine], now: float) -> Memory:
        warming = self._file.pool.routing.warming
        found = next_round(
            memory.engines,
            wanted,
            self._health_of(memory, wanted),
            self._answer,
            warming=Warming(seconds=warming.duration_seconds, first_weight=warming.first_weight),
            drain_timeout_seconds=self._file.pool.drain.timeout_seconds,
            uids={one.address: uuid.uuid5(uuid.UUID(memory.uid), f"{one.name} {one.address}").hex for one in wanted},
            now=now,
        )
        self._drop_marks(memory.engines, found.engines)
        self._events += found.events
        for event in found.events:
            logger.info("pool event", extra={"reason": event.reason, "instance": event.instance, "text": event.message})
        spec = self._file.spec_digest(memory.model, memory.engine_type)
        generation = memory.generation + (spec != memory.spec_digest)
        return replace(memory, engines=found.engines, spec_digest=spec, generation=generation)

    def _drop_marks(self, before: Sequence[ServedEngine], after: Sequence[ServedEngine]) -> None:
        """Remove the marks of engines that have left, because these marks would otherwise drain a later engine with the
        same name.
        """
        uids = {engine.name: engine.uid for engine in after}
        gone = {engine.name for engine in before if uids.get(engine.name) != engine.uid}
        if not gone & self._marks.engines.keys():
            return
        with self._files.writing():
            known = self._files.read_marks()
            self._marks = replace(known, engines={name: marks for name, marks in known.engines.items() if name not in gone})
            self._files.write_marks(self._marks)

    def _health_of(self, memory: Memory, wanted: Sequence[WantedEngine]) -> dict[str, Health]:
        places = {engine.name: engine.address for engine in memory.engines} | {one.name: one.address for one in wanted}
        return {name: self._health.health(address, memory.model) for name, address in places.items()}

    async def _tell(self, memory: Memory, wanted: Sequence[WantedEngine], now: float) -> None:
        """Report the state if it has changed, if the API's response is needed, or if SETTLED_SECONDS have passed; then
        report the events.
        """
        assert self._exchange is not None
        busy = any(engine.leaving or engine.state is InstanceState.WARMING for engine in memory.engines)
        said = (memory.engines, memory.spec_digest, self._marks, self._problem, memory.conditions)
        if now < self._retry_at or (not busy and said == self._told[0] and now - self._told[1] < SETTLED_SECONDS):
            return
        warming = self._file.pool.routing.warming
        shares = warm_shares(memory.engines, Warming(seconds=warming.duration_seconds, first_weight=warming.first_weight), now)
        memory = replace(memory, version=memory.version + 1)
        self._remember(memory)
        state = pool_state(
            self._files, self._file, self._marks, memory, shares, content_digest=digest(self._content), problem=self._problem
        )
        answer = await self._exchange.exchange(state)
        self._answer = answer.trusted
        if answer.trusted is None:
            self.metrics.untaken.inc()
            self._retry_at = now + answer.retry_in
            return
        self._told = (said, now)
        fresh = conditions(
            memory,
            self._file,
            wanted,
            self._health_of(memory, wanted),
            answer.known,
            problem=self._problem,
            api_problem=answer.problem,
            now=now,
        )
        self._remember(replace(memory, conditions=fresh))
        await self._tell_events()

    async def _tell_events(self) -> None:
        """Deliver the events, oldest first; undelivered events are kept, up to the newest thousand."""
        events = self._events[-_MOST_EVENTS:]
        outcome = await self._control_plane.post_events(self._file.pool.key, events) if events else None
        self._events = events if isinstance(outcome, Later) else []

    def _remember(self, memory: Memory) -> None:
        if memory != self._memory or memory.version == 0:
            self._files.write_memory(memory)
        self._memory = memory


async def run(source: PoolSource, changed: asyncio.Event) -> None:
    """Run rounds until cancelled; a change of an engine's health starts a round at once."""
    while True:
        changed.clear()
        outcome, begun = "ok", asyncio.get_running_loop().time()
        try:
            pause = await source.step()
        except Exception:
            logger.exception("a round failed; it starts again")
            pause, outcome = 1.0, "broke"
        source.metrics.rounds.labels(outcome).observe(asyncio.get_running_loop().time() - begun)
        try:
            async with asyncio.timeout(pause):
                await changed.wait()
        except TimeoutError:
            pass

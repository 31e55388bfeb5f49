"""KV on its way from one engine to another: prefixes fetched before a prefill, and prompts sent on to be decoded."""

from collections.abc import Callable

from fairlead.routing.contracts.schedulers import Dispatch
from fairlead_simulator.engine_model.costs import TransferCost
from fairlead_simulator.engine_model.kv_memory import PREFIX_BLOCK_TOKENS
from fairlead_simulator.simulation.events import EventQueue
from fairlead_simulator.simulation.fleet import Fleet
from fairlead_simulator.simulation.instances import SimulatedInstance
from fairlead_simulator.simulation.jobs import Job
from fairlead_simulator.simulation.routers import Routers

Lost = Callable[[Job, str, float], None]


class Transfers:
    """All transfers of a run; active ones share a source's link. `lost` is called for a request whose target
    is gone.
    """

    def __init__(self, cost: TransferCost, fleet: Fleet, events: EventQueue, routers: Routers, lost: Lost) -> None:
        self.tokens = 0
        """Tokens whose KV was transferred."""
        self._cost = cost
        self._fleet = fleet
        self._events = events
        self._routers = routers
        self._lost = lost
        self._active: dict[str, int] = {}
        """Active transfers by source."""

    def fetch(self, job: Job, dispatch: Dispatch, source: SimulatedInstance, now: float) -> None:
        """Prefix blocks of the prompt go from `source` to where it will be computed, before it is."""
        count = min(source.kv.holds(job.blocks), (dispatch.hit_tokens + PREFIX_BLOCK_TOKENS - 1) // PREFIX_BLOCK_TOKENS)
        tokens = min(dispatch.transfer_tokens, count * PREFIX_BLOCK_TOKENS)
        seconds = self._begin(source, tokens)
        self._events.at(now + seconds, self._fetched, (source, dispatch.instance, job, job.blocks[:count]))

    def send_on(self, source: SimulatedInstance, job: Job, now: float) -> None:
        """The KV of a prefilled prompt goes to the instance that decodes it."""
        self._events.at(now + self._begin(source, job.input_tokens), self._sent_on, (source, job))

    def _begin(self, source: SimulatedInstance, tokens: int) -> float:
        """Seconds that a transfer of this many tokens takes."""
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

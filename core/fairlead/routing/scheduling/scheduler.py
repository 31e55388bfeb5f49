"""The scheduler of one pool: handles requests from their submission to their end, on the caller's clock.

    submit --> [admission] --> policy --> queue --> Dispatch --> first_token --> complete
                  |                         |           |
               Refusal            moves, timeouts     retry / fail / cancel / decline

Every accepted request ends in exactly one way: by a refusal, `complete`, `fail`, `cancel` or `decline`. A call for a
request that has ended, or for an unknown id, does nothing. Each step is a separate module of this package. All steps
work on one `SchedulerState`, and all dispatches and refusals leave through `Outcomes`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from fairlead.capabilities import EngineCapability, Figure
from fairlead.kv_events.engine_caches import EngineCaches
from fairlead.reports.bindings import Binding, BindingChange
from fairlead.reports.decisions import Attempt
from fairlead.reports.engines import EngineMemory
from fairlead.reports.loads import HeldDemand, InstanceInFlight
from fairlead.reports.moves import CacheTransfer, MoveOutcome
from fairlead.reports.shares import OthersShare, PoolShare
from fairlead.routing.admission.loads import PoolLoads, pool_loads
from fairlead.routing.admission.refusals import shutting_down
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.routing.contracts.copies import KeptTurn, PrefixCopy
from fairlead.routing.contracts.decisions import Decision
from fairlead.routing.contracts.estimates import EstimateReport
from fairlead.routing.contracts.faults import Fault
from fairlead.routing.contracts.handovers import Handovers
from fairlead.routing.contracts.loads import GivenWork, InstanceLoad
from fairlead.routing.contracts.policies import LearnsOnline, PolicyInForce
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, PrefixMemory, SchedulerRecords
from fairlead.routing.knowledge import engine_memories, prefix_memories
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.queues.accounting import TrackedRequest, discrepancies
from fairlead.routing.scheduling.circuits import Circuits
from fairlead.routing.scheduling.copying import Copying
from fairlead.routing.scheduling.dispatching import Dispatching
from fairlead.routing.scheduling.fetching import heard
from fairlead.routing.scheduling.learning import FORGET_SECONDS, forget_older, recall_engines
from fairlead.routing.scheduling.moving import Moving
from fairlead.routing.scheduling.others import Others
from fairlead.routing.scheduling.outcomes import Outcome, Outcomes
from fairlead.routing.scheduling.placing import Placing
from fairlead.routing.scheduling.progress import Progress
from fairlead.routing.scheduling.recording import Recorder
from fairlead.routing.scheduling.retrying import Retrying
from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead.routing.scheduling.state import SchedulerState
from fairlead.routing.scheduling.table_changes import forget_departed, misplaced, take_table
from fairlead.routing.scheduling.trying import Trying
from fairlead.routing.scheduling.waiting import Waiting
from fairlead.tables import RoutingTable
from fairlead.targets import instance_of, rank_of


class PoolScheduler:
    """A `Scheduler` for the pool of `table`, with a policy from `policies`.

    `router_id` and `seed` make record ids unique and policies deterministic; every start of a process must use another
    seed. `sample_rate` (0-1) is the share of decisions that are kept although nothing went wrong with their requests.
    Raises UnknownName or InvalidInput when the table's policy or parameters cannot be used.
    """

    def __init__(
        self,
        table: RoutingTable,
        router_id: str,
        seed: int,
        *,
        sample_rate: float = 0.05,
        settings: SchedulerSettings | None = None,
        policies: PolicyCatalogue = BUILT_IN,
    ) -> None:
        settings = settings or SchedulerSettings()
        self._seed = seed
        self._policies = policies
        self._next_sweep = 0.0
        self._next_forgetting = 0.0
        parameters = policies.check_parameters(table.routing.policy, table.routing.parameters)
        policy = PolicyInForce.of(policies.build(table.routing, seed))
        recorder = Recorder(
            table.pool,
            router_id,
            seed,
            sample_rate,
            settings.records_limit,
            load_samples=settings.load_samples,
            decisions=settings.decisions,
        )
        self._state = state = SchedulerState(table, policy, parameters, recorder, settings)
        self.caches: EngineCaches = state.caches
        """The blocks that engines report to hold. The caller adds the engines' KV events, if the engines send KV
        events.
        """
        self._moving = moving = Moving(state)
        placing = Placing(state, moving)
        self._dispatching = Dispatching(state, moving)
        self._outcomes = Outcomes(state, self._dispatching, Trying(state, placing))
        self._waiting = Waiting(state, placing, self._outcomes)
        self._circuits = Circuits(state, self._waiting)
        self._retrying = Retrying(state, moving, self._dispatching, self._outcomes)
        self._others = Others(state, router_id)
        self._copying = Copying(state)
        self._progress = Progress(state, moving, self._dispatching, self._outcomes, self._circuits)
        take_table(state, table, policies, seed)

    def submit(self, request: RoutingRequest, now: float) -> tuple[Outcome, ...]:
        """Admit the request, choose an instance and queue the request; see `Scheduler.submit`. Raises ValueError when a
        request with this id is already in flight.
        """
        self._waiting.place_new(self._admit(request, submitted_at=now, now=now), now)
        outcomes = self._outcomes.take((), now)
        if not request.warms:
            self._state.recorder.loads.arrived(request.prompt_tokens, now)
        return outcomes

    def _admit(self, request: RoutingRequest, *, submitted_at: float, now: float) -> TrackedRequest:
        state = self._state
        state.view.now = now
        state.expecting.expire(now)
        tracked = TrackedRequest(request, submitted_at)
        state.accounting.admit(tracked)
        return tracked

    def tick(self, now: float) -> tuple[Outcome, ...]:
        """Do the work that is due now: end prefills that cannot be observed, place or refuse held requests, send
        requests from queues, rebalance the queues and apply their limits.

        If the policy has failed since the last tick, raise its last exception and do nothing else; the next tick
        continues. A request that the policy failed to place was refused.
        """
        state = self._state
        state.view.now = now
        self._others.age(now)
        state.failures.raise_last()
        state.bindings.expire(now)
        state.expecting.expire(now)
        self._circuits.judge(now)
        self._dispatching.finish_unseen_prefills(now)
        self._waiting.place_held(now)
        self._waiting.expire(now)
        if state.policy.sweeps and state.queues and now >= self._next_sweep:
            self._next_sweep = now + state.settings.sweep_seconds
            self._moving.rebalance(tuple(sorted(state.queues)), now)
        forget_departed(state)
        if now >= self._next_forgetting:
            self._next_forgetting = now + FORGET_SECONDS
            forget_older(state, now)
        return self._outcomes.take(tuple(state.queues), now)

    def prefilled(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        """Record that the prompt has been computed: its blocks are cached on the instance, and its tokens are no longer
        pending.
        """
        return self._progress.prefilled(request_id, now)

    def first_token(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        """Record the first token; see `Scheduler.first_token`."""
        return self._progress.first_token(request_id, now)

    def transferred(self, request_id: str, now: float, transfer: CacheTransfer | None = None) -> None:
        """Record that the transfer of the KV blocks that the request fetches from another instance has ended, so that
        the link of that instance is free again. The blocks have arrived or will never arrive.

        Unknown ids are ignored.
        """
        tracked = self._state.requests.get(request_id)
        if tracked is None:
            return
        if transfer is not None:
            self._state.view.now = now
            heard(self._state, tracked, transfer, now)
        self._state.accounting.transferred(tracked)

    def copy_due(self, turns: Iterable[KeptTurn], now: float) -> PrefixCopy | None:
        """Return the copy of a shared prefix to make now; see `Scheduler.copy_due`."""
        return self._copying.due(turns, now)

    def copied(self, copy: PrefixCopy, transfer: CacheTransfer, now: float) -> None:
        """Record the end of the copy; see `Scheduler.copied`."""
        self._copying.done(copy, transfer, now)

    def generated(self, request_id: str, now: float, output_tokens: int) -> None:
        """Record the number of tokens of the request's answer that have arrived so far."""
        self._progress.generated(request_id, now, output_tokens)

    def complete(self, request_id: str, now: float, output_tokens: int, cached_tokens: int | None) -> tuple[Outcome, ...]:
        """Record that the response to the request is complete. The engine's count of cached tokens, if it reports one,
        replaces the estimate in the load samples.
        """
        return self._progress.complete(request_id, now, output_tokens, cached_tokens)

    def retry(self, request_id: str, now: float, failed_instance: str, *, reached: bool = True, to: str | None = None) -> Outcome:
        """Retry the request before the first byte of its response. Return a dispatch to the next fallback or, without
        one, to the least loaded candidate that was not tried yet; see `Scheduler.retry`. The request is not queued
        again.
        """
        return self._retrying.retry(request_id, now, failed_instance, reached=reached, to=to, by_proxy=to is not None)

    def carry_on(
        self, request_id: str, now: float, left: str, *, carried_tokens: int, why: str, unlike: str | None = None
    ) -> Dispatch | None:
        """Continue the request's answer, which has begun, on another instance; see `Scheduler.carry_on`."""
        return self._retrying.carry_on(request_id, now, left, carried_tokens=carried_tokens, why=why, unlike=unlike)

    def can_carry_on(self, request_id: str, now: float, left: str) -> bool:
        """Return whether another instance could complete the answer; see `Scheduler.can_carry_on`."""
        return self._retrying.can_carry_on(request_id, now, left)

    def second_opinion(
        self, request_id: str, now: float, instance: str, *, counts: bool, reached: bool = True, beyond: Collection[str] = ()
    ) -> Dispatch | None:
        """Return a dispatch to another instance after the engine refused the request as invalid; see
        `Scheduler.second_opinion`.
        """
        if counts:
            self._circuits.failed(instance, now, Fault.REFUSED, request_id)
        return self._retrying.second_opinion(request_id, now, instance, reached=reached, beyond=beyond)

    def attempt_failed(self, request_id: str, instance: str, failure: str, now: float) -> None:
        """Record that an instance failed the request; see `Scheduler.attempt_failed`."""
        tracked = self._state.requests.get(request_id)
        if tracked is not None:
            after = max(0.0, now - tracked.request.arrived_at)
            attempt = Attempt(instance=instance_of(instance), rank=rank_of(instance), failure=failure, after_seconds=after)
            tracked.attempts = (*tracked.attempts, attempt)

    def fail(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        """Record that the request failed after the first byte of its response, or that its client gave up."""
        return self._progress.abandon(request_id, MoveOutcome.FAILED, now)

    def cancel(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        """Record that the client disconnected."""
        return self._progress.abandon(request_id, MoveOutcome.CANCELLED, now)

    def decline(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        """Record that the engine refused the request as invalid. The request counts neither as failed nor as cancelled,
        because nothing was computed.
        """
        return self._progress.abandon(request_id, MoveOutcome.REFUSED, now, declined=True)

    def give_up(self, request_id: str, now: float) -> tuple[Outcome, ...]:
        """Refuse a request that still waits in this scheduler, because the caller no longer lets it wait. A dispatched
        request continues.
        """
        tracked = self._state.requests.get(request_id)
        if tracked is not None:
            self._waiting.give_up(tracked, now)
        return self._outcomes.take((), now)

    def shut_down(self, now: float) -> tuple[Outcome, ...]:
        """Refuse all requests that still wait in this scheduler, because the router stops. Dispatched requests
        continue.
        """
        for tracked in tuple(self._state.waiting.values()):
            self._outcomes.refuse(tracked, shutting_down(tracked.request, self._state.table.pool), now)
        return self._outcomes.take((), now)

    def instance_failed(self, instance: str, now: float, fault: Fault = Fault.UNREACHED, request_id: str | None = None) -> None:
        """Record a failure of the instance, with the request on which it failed, if there is one. When the circuit
        opens, requests waiting for the instance are placed on other instances; the next `tick` returns the outcomes.
        """
        self._circuits.failed(instance, now, fault, request_id)

    def instance_worked(self, instance: str, now: float) -> None:
        """Record that the instance served a request: its circuit closes."""
        self._circuits.worked(instance)

    def instance_heard(self, instance: str, now: float) -> None:
        """Record that the engine's HTTP server responds."""
        for load in self._state.loads_of(instance):
            load.heard_at = now

    def instance_stalled(self, target: str, now: float, *, stalled: bool) -> None:
        """Record whether the engine is stalled: it has work but makes no progress; see `Scheduler.instance_stalled`."""
        load = self._state.loads.get(target)
        if load is not None and load.is_stalled is not stalled:
            self._circuits.stalled(load, now, stalled=stalled)

    def take_given(self, target: str) -> GivenWork:
        """Return the work in progress at the target's engine; see `Scheduler.take_given`."""
        load = self._state.loads.get(target)
        if load is None:
            return GivenWork(requests=0)
        prefilled, load.longest_prefilled_microseconds = load.longest_prefilled_microseconds, 0
        return GivenWork(
            requests=load.prefilling + load.decoding,
            longest_prefill_seconds=max((microseconds for _, microseconds in load.in_flight.values()), default=0) / 1e6,
            prefilled_seconds=prefilled / 1e6,
        )

    def broken(self, now: float) -> tuple[str, ...]:
        """Instances that get no requests: their circuit is open, or all ranks of their engine are
        stalled.
        """
        state = self._state
        shut = dict.fromkeys(instance_of(target) for target, load in state.loads.items() if load.is_shut(now))
        return tuple(instance for instance in shut if all(load.is_shut(now) for load in state.present_loads(instance)))

    def observe_engine(self, target: str, kv_usage: float | None, now: float, waiting: int | None = None) -> None:
        """Record a reading of the engine's own metrics; see `Scheduler.observe_engine`."""
        load = self._state.loads.get(target)
        if load is not None:
            load.kv_usage, load.engine_waiting, load.engine_told_at = kv_usage, waiting, now
            self._state.accounting.changed.add(target)

    def update_table(self, table: RoutingTable, now: float) -> tuple[Outcome, ...]:
        """Use a newer routing table, or the same version with new figures measured on its engines.

        If the table's policy or parameters cannot be used, raises UnknownName or InvalidInput and changes nothing.
        """
        current = self._state.table
        if table.uid == current.uid and (table.version < current.version or table == current):
            return ()
        self._state.view.now = now
        take_table(self._state, table, self._policies, self._seed)
        self._waiting.place_again(misplaced(self._state, now), now)
        self._waiting.place_held(now)
        return self._outcomes.take(tuple(self._state.queues), now)

    def apply_bindings(self, bindings: Sequence[Binding], now: float, lost: Collection[str] = ()) -> int:
        """Apply the API's bindings of this pool's sessions; see `Scheduler.apply_bindings`. Return the number of this
        router's moves that they undo.
        """
        state = self._state
        for binding in bindings:
            if binding.shared_at is not None:
                state.names.hear(binding.session, binding.shared_at, now)
        return sum(state.bindings.apply(binding, now, lost) for binding in bindings)

    def prefix_memories(self, now: float) -> tuple[PrefixMemory, ...]:
        """Return the prefixes that the pool's instances are believed to hold; see `Scheduler.prefix_memories`."""
        return prefix_memories.keep(self._state.prefixes, self._state.table, self._state.loads, now)

    def recall_prefixes(self, memories: Iterable[PrefixMemory], now: float) -> int:
        """Restore the prefixes that an earlier process had recorded; see `Scheduler.recall_prefixes`."""
        return prefix_memories.recall(self._state.prefixes, self._state.table, self._state.loads, memories, now)

    def engine_memory(self, now: float) -> EngineMemory:
        """Return this router's measurements of the pool's engines; see `Scheduler.engine_memory`."""
        state = self._state
        speed, step = state.prefill_times.measured(now), state.decode_times.figure(now)
        known = EngineCapability(prefill_tokens_per_second=speed, decode_step_seconds=step)
        return engine_memories.keep(state.table, known, state.decode_times.coefficients, now)

    def recall_engines(self, memory: EngineMemory | None, now: float) -> None:
        """Use observations from before a restart; see `Scheduler.recall_engines`."""
        recall_engines(self._state, memory, now)

    def recall_changes(self, changes: Sequence[BindingChange], now: float) -> None:
        """Restore the binding changes that this router made before a restart."""
        for change in changes:
            self._state.bindings.recall(change, now)

    def report_missing(self, sessions: Collection[str], now: float) -> int:
        """Report again the sessions whose binding the API has confirmed but no longer knows; see
        `Scheduler.report_missing`.
        """
        changes, missing = self._state.bindings.missing(sessions, now)
        for change in changes:
            self._state.recorder.bound(change)
        return missing

    def take_records(self, now: float, *, samples: bool = True, final: bool = False) -> SchedulerRecords:
        """Return all records made since the last call; see `Scheduler.take_records`."""
        return self._state.recorder.take(self._state.loads, now, samples=samples, final=final)

    def keep_sessions(self, sessions: Mapping[str, float]) -> None:
        """Keep all decisions of these sessions, each until the given time; see `Scheduler.keep_sessions`."""
        self._state.recorder.decisions.sessions = sessions

    def know_routers(self, count: int) -> None:
        """Set the number of live routers, including this router, that send to the pool's instances; the initial value
        is 1.
        """
        self._state.view.routers = max(1, count)

    def share(self, why: str, now: float) -> PoolShare | None:
        """Return the load share to send to other routers; see `Scheduler.share`."""
        return self._others.share(why, now)

    def know_others(self, share: OthersShare, now: float) -> None:
        """Use the load shares of the other routers that decide alone; see `Scheduler.know_others`."""
        self._others.hear(share, now)

    def choose(self, request: RoutingRequest, now: float) -> Decision | None:
        """Return the decision that the policy would make now, without accepting the request; None if no instance
        accepts requests.

        The call changes the policy's memory in the same way as a real choice.
        """
        state = self._state
        state.view.now = now
        return state.policy.choose(request, state.view, now) if state.view.candidates() else None

    @property
    def name(self) -> str:
        """The id of this scheduler's router."""
        return self._others.router

    @property
    def routers(self) -> int:
        """The number of live routers, including this router, that this scheduler assumes."""
        return self._state.view.routers

    @property
    def assumed_routers(self) -> int:
        """The number of routers, including this router, that are assumed to have as many requests in flight as this
        router.
        """
        return self._state.view.assumed_routers

    @property
    def table(self) -> RoutingTable:
        """The version of the routing table that is in use."""
        return self._state.table

    @property
    def learns_online(self) -> LearnsOnline | None:
        """The current policy if it learns from finished requests, else None. The value changes when the table names
        another policy.
        """
        return self._state.policy.learns_online

    @property
    def binds_beginnings(self) -> bool:
        """Whether the current policy binds requests without a session, using the beginnings of their prompts."""
        return self._state.policy.binds_beginnings is not None

    @property
    def handovers(self) -> Handovers:
        """The record of which engines transfer KV blocks. The caller records each request that prefilled and decoded on
        different instances; `transferred` records each fetch.
        """
        return self._state.handovers

    def load(self, instance: str) -> InstanceLoad | None:
        """Return the live counters of an instance, for reading only; None if the instance is unknown."""
        return self._state.loads.get(instance)

    def loads(self) -> tuple[InstanceLoad, ...]:
        """Return the live counters, for reading only, of every instance in the table and of removed instances that
        still have requests.
        """
        return tuple(self._state.loads.values())

    def binding(self, session: str) -> Binding | None:
        """Return the session's binding as this router knows it; None if the session is not bound."""
        return self._state.bindings.get(session)

    def waiting(self) -> int:
        """The number of requests that are queued or held in this router."""
        return len(self._state.waiting)

    def held(self) -> HeldDemand:
        """Return the demand of the requests that are held because no instance accepts requests."""
        return self._state.held.demand()

    def in_flight(self) -> tuple[InstanceInFlight, ...]:
        """Return the queued and dispatched requests of each instance, summed over its ranks. Removed instances are
        listed while they still have requests.
        """
        pool, accounting = self._state.table.pool, self._state.accounting
        rows: dict[str, InstanceInFlight] = {}
        for target, load in sorted(self._state.loads.items()):
            instance, in_flight, waiting = instance_of(target), accounting.in_flight(target), load.waiting
            if (known := rows.get(instance)) is not None:
                in_flight, waiting = in_flight + known.in_flight, waiting + known.waiting
            rows[instance] = InstanceInFlight(pool=pool, instance=instance, in_flight=in_flight, waiting=waiting)
        return tuple(rows.values())

    def carried(self) -> tuple[InstanceInFlight, ...]:
        """Return the result of `in_flight` without the requests of other routers."""
        return self.in_flight()

    def prefill_estimate(self, instance: str | None = None) -> EstimateReport:
        """Return the measured prefill times of one instance, with the errors of their predictions. None = of all
        instances together.
        """
        return self._state.prefill_times.report(instance)

    @property
    def prefill_speed(self) -> float:
        """Uncached prompt tokens that an instance prefills per second: the measured speed or, without one, the declared
        speed.
        """
        return self._state.prefill_times.speed

    def prefill_figure(self, now: float, instance: str | None = None) -> Figure:
        """Return the prefill speed of an instance, with source, spread and age. None = of all instances together."""
        return self._state.prefill_times.figure(now, instance)

    def decode_estimate(self, instance: str | None = None) -> EstimateReport:
        """Return the measured decode times per token of one instance, with the errors of their predictions. None = of
        all instances together.
        """
        return self._state.decode_times.report(instance)

    def decode_figure(self, now: float, instance: str | None = None) -> Figure:
        """Return the seconds per output token after the first on an instance (None = on all instances together), with
        source and age.
        """
        return self._state.decode_times.figure(now, instance)

    @property
    def knows_decode_times(self) -> bool:
        """Whether enough decode steps were observed to predict their duration."""
        return self._state.decode_times.is_settled

    def pool_loads(self, now: float) -> PoolLoads:
        """Return the prefill and decode loads of the pool: predicted times divided by their SLOs."""
        self._state.view.now = now
        return pool_loads(self._state.view)

    def discrepancies(self) -> tuple[str, ...]:
        """Compare each instance's counters with a new count of the requests in flight. Return the differences in words;
        always empty unless accounting has a bug.
        """
        return (*discrepancies(self._state.accounting), *self._circuits.discrepancies())

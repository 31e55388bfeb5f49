"""Circuits: an instance that fails is not chosen for a while, and requests waiting for it are placed on other
instances.

The cause of a failure is the instance or the request. If an engine refused the connection, the request cannot be the
cause. Any other failure is a *suspicion* until the outcome of the request on another instance is known:

- another instance serves the request, or works on it for clearly longer than the first instance did before its
  failure: the failure counts against the first instance
- another instance fails the request in the same way: the request is at fault, and no failure counts. The request
  is not tried again, unless the failure was a lost connection
- the request was not sent to another instance: the failure counts, unless it was a refusal (4xx)
- the client disconnects before any of these cases occurs: the failure does not count

Several failures in a row open a circuit. A response that begins, continues or ends between two failures ends the row.
While the engine responds, each request still running there increases the number of failures that is needed. So a few
failures do not open the circuit of an engine that serves many requests.

The data-parallel ranks of an instance share its server and its circuit. Another rank of the instance does not count as
another instance, except for requests of a rank that hangs.
"""

from collections import Counter
from collections.abc import Iterable

from fairlead.instances import Role
from fairlead.routing.contracts.faults import Fault
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.knowledge.circuit import Circuit
from fairlead.routing.queues.accounting import Stage, Suspicion, TrackedRequest
from fairlead.routing.scheduling.state import SchedulerState
from fairlead.routing.scheduling.waiting import Waiting
from fairlead.targets import instance_of, rank_of

HEARD_SECONDS = 5.0
"""Maximum age, in seconds, of an engine's last response for the engine to count as alive. Routers query engines once a
second.
"""
PROOF_SECONDS = 1.0
"""Minimum seconds for which a failed request must run on another instance before the failure counts against the first
instance. It must also run there for twice as long as it took to fail.
"""


class Circuits:
    """Opens and closes the circuits of a pool's instances."""

    def __init__(self, state: SchedulerState, waiting: Waiting) -> None:
        self._state = state
        self._waiting = waiting
        self._open_cases: dict[str, TrackedRequest] = {}
        """Requests that an instance failed, by id, for which it is not yet decided whether the failure counts."""
        self._counted: Counter[str] = Counter()
        """Number of failures per instance that count against it for the present, because their requests have not ended.
        A failure no longer counts if its request turns out to be at fault.
        """

    # ── what speaks against an instance ──

    def failed(self, instance: str, now: float, fault: Fault = Fault.UNREACHED, request_id: str | None = None) -> None:
        """Record a failure of the instance, with the request on which it failed, if there is one. A refusal (4xx) of a
        request that is no longer in flight does not count, because no other instance can contradict it.

        When the circuit opens, the requests queued for the instance are placed on other instances. The next outcomes
        contain their dispatches.
        """
        state = self._state
        load = next(iter(state.loads_of(instance)), None)
        tracked = None if request_id is None else state.requests.get(request_id)
        in_flight = tracked is not None and tracked.first_token_at is None and tracked.stage in (Stage.PREFILLING, Stage.DECODING)
        if load is None or (fault is Fault.REFUSED and not in_flight):
            return
        state.view.now = now
        if fault is Fault.STALLED and self._hangs_alone(instance):
            return  # that is known, and says nothing of the server
        targets = state.targets_of(instance)
        is_in_doubt = not state.suspected.isdisjoint(targets)
        state.suspected.update(targets)
        if fault is Fault.UNREACHED:
            self._count(load, now)
        elif tracked is not None and in_flight:
            self._suspect(tracked, load, fault, now, is_in_doubt=is_in_doubt)
        else:
            self._count(load, now, beside=self._beside(load, now))

    def _hangs_alone(self, target: str) -> bool:
        """Return whether the target is a rank that makes no progress. Other ranks of its instance may still work."""
        load = self._state.loads.get(target)
        return load is not None and load.is_stalled and rank_of(target) is not None

    def _suspect(self, tracked: TrackedRequest, load: InstanceLoad, fault: Fault, now: float, *, is_in_doubt: bool) -> None:
        circuit, instance = self._state.circuit(load.entry.id), instance_of(load.entry.id)
        sent_at = now if tracked.dispatched_at is None else tracked.dispatched_at
        found = Suspicion(instance, fault, now - sent_at, is_in_doubt=is_in_doubt)
        if circuit is not None and circuit.is_probe(tracked.request.id):
            found.is_probe = True
            circuit.suspected(now)
            self._state.sync_circuit(instance, circuit)
        self._open_cases[tracked.request.id] = tracked
        alike = [one for one in tracked.suspicions if one.instance != instance and one.fault.is_like(fault)]
        tracked.suspicions = (*tracked.suspicions, found)
        others = any(self._is_witness(one.instance) for one in alike)
        if alike and self._is_witness(instance):
            tracked.is_at_fault = tracked.is_at_fault or others
            for one in alike:
                self._excuse(one)
        if others:
            self._excuse(found)

    def _is_witness(self, instance: str) -> bool:
        """Return whether the instance can show that a request is at fault: no final failure counts against the
        instance. If such an instance fails a request in the same way as another instance did, the request is at fault.
        """
        circuit = self._state.circuits.get(instance)
        return circuit is None or circuit.failures <= self._counted[instance]

    def discrepancies(self) -> tuple[str, ...]:
        """Count the failures in `_counted` again, from the requests. Return the differences in words; empty unless
        there is a bug.
        """
        cases = (one for tracked in self._open_cases.values() for one in tracked.suspicions)
        fresh = Counter(one.instance for one in cases if one.counted)
        return () if fresh == self._counted else (f"failures that may be excused: {dict(self._counted)}, counted again {dict(fresh)}",)

    def _excuse(self, one: Suspicion) -> None:
        one.excused = True
        if not one.counted:
            return
        self._close((one,))
        circuit = self._state.circuits.get(one.instance)
        if circuit is not None:
            circuit.excused()
            self._state.sync_circuit(one.instance, circuit)

    def _close(self, suspicions: Iterable[Suspicion]) -> None:
        """Remove these failures from `_counted`: failures that count against an instance now count finally."""
        for one in suspicions:
            if one.counted:
                one.counted = False
                self._counted[one.instance] -= 1
                if not self._counted[one.instance]:
                    del self._counted[one.instance]

    def _count(self, load: InstanceLoad, now: float, beside: int = 0) -> None:
        """Count a failure against the instance. `beside` is the number of requests still running there."""
        state, instance = self._state, instance_of(load.entry.id)
        circuit = state.circuits.setdefault(instance, Circuit(state.settings.circuit))
        circuit.failed(now, beside)
        state.sync_circuit(instance, circuit)
        if circuit.broken_until > now:
            waiting = [queue.in_order(now) for target in state.targets_of(instance) if (queue := state.queues.get(target)) is not None]
            self._waiting.place_again([tracked for queue in waiting for tracked in queue], now)

    def _beside(self, load: InstanceLoad, now: float) -> int:
        """Return the number of requests still running on the instance; 0 unless the engine is known to be alive."""
        if now - load.heard_at > HEARD_SECONDS:
            return 0
        return sum(one.prefilling + one.decoding for one in self._state.loads_of(load.entry.id))

    def stalled(self, load: InstanceLoad, now: float, *, stalled: bool) -> None:
        """Record whether the engine, or this rank of the engine, is stalled: it has work but makes no progress. A stall
        is observed directly, so a single stall is enough to avoid the instance.
        """
        state, instance = self._state, load.entry.id
        state.view.now = now
        load.is_stalled = stalled
        state.view.invalidate()
        if stalled and instance in state.queues:
            self._waiting.place_again(tuple(state.queues[instance].in_order(now)), now)

    # ── what shows whose fault it was ──

    def answered(self, tracked: TrackedRequest, instance: str, now: float) -> None:
        """Record that the instance responds to this request: the instance works, and the instances that failed the
        request before are at fault.
        """
        if self._state.suspected or self._state.circuits:
            self.worked(instance)
        if tracked.suspicions:
            # a computed prompt proves nothing yet of those that failed to decode it
            proven = [one for one in tracked.suspicions if tracked.decode in (None, instance) or self._only_prefills(one.instance)]
            self._blame([one for one in proven if one.instance != instance_of(instance)], now)
            self._close(proven)
            tracked.suspicions = tuple(one for one in tracked.suspicions if one not in proven)

    def _only_prefills(self, instance: str) -> bool:
        return any(load.entry.role is Role.PREFILL for load in self._state.loads_of(instance))

    def judge(self, now: float) -> None:
        """Decide whether failures count against their instances, for each failed request that has run on another
        instance for long enough or has ended without a response.
        """
        for request_id, tracked in tuple(self._open_cases.items()):
            is_over = self._state.requests.get(request_id) is not tracked
            if is_over or not tracked.suspicions:
                del self._open_cases[request_id]
            if is_over:  # what nobody contradicted of a refusal is true
                self._blame([one for one in tracked.suspicions if not one.excused and one.fault is not Fault.REFUSED], now)
                self._close(tracked.suspicions)
            elif self._has_run_longer(tracked, now):
                self._blame(tracked.suspicions, now)

    def left(self, tracked: TrackedRequest, now: float) -> None:
        """Record that the client disconnected. The request's undecided failures are dropped. They count only if the
        request has already run on another instance for long enough.

        If they always counted, an instance after whose failure many clients disconnected would be blamed for each of
        their requests, although no other instance has served these requests.
        """
        if self._has_run_longer(tracked, now):
            self._blame(tracked.suspicions, now)
        self.forget(tracked)

    def forget(self, tracked: TrackedRequest) -> None:
        """Forget the request's undecided failures. The request's outcome then no longer affects any instance. Failures
        that are already counted are kept.
        """
        self._close(tracked.suspicions)
        tracked.suspicions = ()

    def _has_run_longer(self, tracked: TrackedRequest, now: float) -> bool:
        if not tracked.suspicions or tracked.dispatched_at is None or tracked.stage not in (Stage.PREFILLING, Stage.DECODING):
            return False
        last = tracked.suspicions[-1]
        return instance_of(tracked.decodes_on) != last.instance and now - tracked.dispatched_at >= max(PROOF_SECONDS, 2 * last.seconds)

    def _blame(self, suspicions: Iterable[Suspicion], now: float) -> None:
        for one in suspicions:
            load = next(iter(self._state.loads_of(one.instance)), None)
            circuit = self._state.circuits.get(one.instance)
            if load is None or one.counted:
                continue
            one.counted = True
            self._counted[one.instance] += 1
            if one.is_probe and circuit is not None and circuit.is_open:
                circuit.probe_failed(now)
                self._state.sync_circuit(one.instance, circuit)
            else:
                self._count(load, now, beside=self._beside(load, now))

    # ── what speaks for an instance ──

    def worked(self, instance: str) -> None:
        """Record that the instance served a request: its circuit closes."""
        state = self._state
        if state.suspected:
            state.suspected.difference_update(state.targets_of(instance))
        circuit = state.circuits.pop(instance_of(instance), None) if state.circuits else None
        if circuit is not None:
            circuit.worked()
            state.sync_circuit(instance, circuit)

    def lives(self, instance: str) -> None:
        """Record that a response from the instance continues."""
        circuit = self._state.circuit(instance)
        if circuit is not None:
            circuit.lives()

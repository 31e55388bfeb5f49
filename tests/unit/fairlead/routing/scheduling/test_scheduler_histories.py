"""Random histories of a scheduler: in all of them each request ends once, counters are exact, and no unfit instance is
chosen.
"""

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from fairlead.instances import InstanceState, Role
from fairlead.reports.bindings import Binding, BindingReason
from fairlead.reports.decisions import DecisionReason
from fairlead.reports.moves import Move
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.parameters import DISCIPLINES
from fairlead.routing.contracts.policies import PolicyInForce
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.contracts.weighing import NOBODY
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead.tables import EarlyRejectionFacts, InstanceEntry, PoolKey
from fairlead_testing.builders.routing import POOL, entry, request, table
from fairlead_testing.examples import examples
from fairlead_testing.worlds.watched_policy import is_spared

NAMES = tuple(f"i{number}" for number in range(5))
STATES = st.sampled_from(
    [InstanceState.SERVING] * 4 + [InstanceState.WARMING, InstanceState.CORDONED, InstanceState.DRAINING, InstanceState.LOST]
)
ROLES = st.sampled_from([Role.BOTH] * 3 + [Role.PREFILL, Role.DECODE])
FITNESS = st.tuples(STATES, ROLES)
INSTANCES = st.dictionaries(st.sampled_from(NAMES), FITNESS, max_size=5)
Fitness = dict[str, tuple[InstanceState, Role]]
PROMPTS = st.lists(st.integers(0, 2), max_size=5)


class SchedulerHistory(RuleBasedStateMachine):
    """A scheduler, a clock, and the expected state of every request."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.version = 1
        self.counter = 0
        self.alive: dict[str, str | None] = {}
        """For each request that has not ended, the instance to which it was last dispatched."""
        self.decodes: dict[str, str | None] = {}
        self.unreachable: dict[str, set[str]] = {}
        self.first_tokens: set[str] = set()
        self.changed_roles: set[str] = set()
        """Instances that changed their role while requests were queued there. The requests keep the reason of their
        decision.
        """
        self.ended: set[str] = set()
        self.moves_total = 0

    @initialize(
        policy=st.sampled_from(BUILT_IN.names),
        instances=INSTANCES,
        window=st.integers(0, 2),
        mode=st.sampled_from(["Disabled", "Load", "Predicted", "AfterPrefill"]),
        discipline=st.sampled_from(DISCIPLINES),
        estimate=st.sampled_from(["configured", "bilinear"]),
        speculative=st.booleans(),
    )
    def start(self, policy: str, instances: Fitness, window: int, mode: str, discipline: str, estimate: str, speculative: bool) -> None:
        parameters: dict[str, Any] = {"queue_discipline": discipline, "queue_limit": 4, "queue_timeout_seconds": 8}
        parameters |= {"prefill_estimate": estimate, "estimate_min_samples": 10, "early_prefixes": speculative}
        if policy == "ear":
            parameters |= {"hot_tokens": 3000, "cooldown_seconds": 2}
        self.table = table(
            [entry(name, state, role=role) for name, (state, role) in sorted(instances.items())],
            policy=policy,
            parameters=parameters,
            window=window,
            speed=1000.0,
            rejection=EarlyRejectionFacts(mode=mode, headroom=2.0),
            kv_cache_tokens=20_000,
            decode_base_seconds=0.02,
            decode_seconds_per_request=0.02,
            kv_transfer_bytes_per_second=1e9,
        )
        self.scheduler = PoolScheduler(self.table, "router-0", 3, sample_rate=1.0, settings=SchedulerSettings(sweep_seconds=0.1))
        self.snapshot()

    def snapshot(self) -> None:
        loads = self.scheduler.loads()
        self.unfit_to_decode = {load.entry.id for load in loads if load.entry.role is Role.PREFILL or not self.may_be_sent(load)}
        able = [load.entry for load in loads if load.entry.id not in self.unfit_to_decode]
        decoding = [one for one in able if one.role is Role.DECODE] or able
        self.unfit = {load.entry.id for load in loads if not self.fits(load, decoding)}
        self.lacking_decodes = {load.entry.id for load in loads if self.fits(load, [load.entry])} & self.unfit
        self.waiting = {load.entry.id: load.waiting for load in self.scheduler.loads()}

    def fits(self, load: InstanceLoad, decoding: Sequence[InstanceEntry]) -> bool:
        """Return whether an instance may be chosen now.

        This is computed here, because the view updates `lacks_decode` only when it is asked.
        """
        able = load.entry.role is not Role.PREFILL or any(load.entry.pairs_with(one) for one in decoding)
        return able and self.may_be_sent(load)

    def may_be_sent(self, load: InstanceLoad) -> bool:
        """Return whether the instance may get requests by its state and its circuit. Only the last view spares a
        load.
        """
        accepting = [one for one in self.scheduler.loads() if one.entry.accepting]
        return load.entry.accepting and (load.broken_until <= self.now or is_spared(load, accepting, self.now))

    def see(self, outcomes: Sequence[Dispatch | Refusal], unfit: Set[str | None] | None = None) -> None:
        """Process the scheduler's answers, and assert that no instance was chosen that was unfit before the call.

        A call that ends a request (with its `unfit`) may make the request's own instance fit. If the request was the
        probe of an open circuit, there is room for another probe. If the instance decodes, prefill instances that
        lacked one are fit too.
        """
        if unfit is not None:
            unfit = unfit - self.lacking_decodes
        for outcome in outcomes:
            name = outcome.request.id
            assert name in self.alive, "an outcome is about a request that has not ended"
            if isinstance(outcome, Dispatch):
                assert self.alive[name] is None or name not in self.first_tokens
                assert outcome.instance not in (self.unfit if unfit is None else unfit)
                chosen = next(one for one in self.table.instances if one.id == outcome.instance)
                assert chosen.accepting
                computes_all = outcome.reason is DecisionReason.DECODE_ONLY
                assert (chosen.role is Role.DECODE) == computes_all or chosen.id in self.changed_roles
                assert outcome.address == chosen.address
                assert outcome.miss_tokens >= 1
                self.see_decode(outcome, chosen, unfit)
                self.decodes[name] = outcome.decode
                self.alive[name] = outcome.instance
            else:
                assert isinstance(outcome.reason, RejectionReason)
                assert outcome.status in (429, 502, 503)
                assert outcome.retry_after_seconds >= 1
                assert outcome.message
                self.end(name)
        for load in self.scheduler.loads():
            computes_all = load.entry.role is Role.DECODE and load.takes_decodes(self.now)
            if load.entry.id in self.unfit and not (load.is_candidate(self.now) or computes_all):
                assert load.waiting <= self.waiting[load.entry.id], "nothing is queued where nothing may be sent"
        self.snapshot()

    def see_decode(self, outcome: Dispatch, chosen: InstanceEntry, unfit: Set[str | None] | None) -> None:
        """Assert that a prefill instance comes with an accepting decode instance, and that any other instance decodes
        itself.

        Blocks are fetched from another instance.
        """
        assert (outcome.decode is not None) == (chosen.role is Role.PREFILL)
        assert outcome.transfer_from != outcome.instance
        assert (outcome.transfer_tokens > 0) == (outcome.transfer_from is not None)
        if outcome.decode is not None:
            decodes = next(one for one in self.table.instances if one.id == outcome.decode)
            assert decodes.accepting
            assert decodes.role is not Role.PREFILL
            assert decodes.revision == chosen.revision or "" in (decodes.revision, chosen.revision)
            assert outcome.decode_address == decodes.address
            assert unfit is not None or outcome.decode not in self.unfit_to_decode

    def end(self, name: str) -> None:
        del self.alive[name]
        self.first_tokens.discard(name)
        self.ended.add(name)

    def any_request(self, data: st.DataObject) -> str:
        """Return a request in flight, or sometimes one that has ended or never existed."""
        names = [*sorted(self.alive), *sorted(self.ended)[:2], "ghost"]
        return data.draw(st.sampled_from(names))

    @rule(
        tokens=st.integers(0, 6000),
        blocks=PROMPTS,
        session=st.sampled_from([None, "s", "t", "u"]),
        streamed=st.booleans(),
        count=st.integers(1, 4),
    )
    def submit(self, tokens: int, blocks: list[int], session: str | None, streamed: bool, count: int) -> None:
        for _ in range(count):
            self.submit_one(tokens, blocks, session, streamed)

    def submit_one(self, tokens: int, blocks: list[int], session: str | None, streamed: bool) -> None:
        self.counter += 1
        name = f"r{self.counter:04d}"
        chained = tuple(hash(tuple(blocks[: depth + 1])) & 0xFFFFFFFF for depth in range(len(blocks)))
        self.alive[name] = None
        prompt = max(tokens, 512 * len(blocks))
        asked = request(name, prompt, blocks=chained, session=session, at=self.now, streamed=streamed)
        self.see(self.scheduler.submit(asked, self.now))

    @rule(seconds=st.sampled_from([0.01, 0.1, 0.5, 1.0, 3.0, 6.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.snapshot()
        self.see(self.scheduler.tick(self.now))

    @rule(data=st.data())
    def first_token(self, data: st.DataObject) -> None:
        name = self.any_request(data)
        instance = self.alive.get(name)
        if instance is not None:
            self.first_tokens.add(name)
        self.see(self.scheduler.first_token(name, self.now), self.unfit - {instance})

    @rule(data=st.data())
    def prompt_is_computed(self, data: st.DataObject) -> None:
        name = self.any_request(data)
        self.see(self.scheduler.prefilled(name, self.now), self.unfit - {self.alive.get(name)})

    @rule(data=st.data())
    def blocks_arrive(self, data: st.DataObject) -> None:
        self.scheduler.transferred(self.any_request(data), self.now)

    @rule(data=st.data(), cached=st.sampled_from([None, 0, 512]))
    def complete(self, data: st.DataObject, cached: int | None) -> None:
        name = self.any_request(data)
        instance = self.alive.get(name)
        if instance is not None:
            self.end(name)
        self.see(self.scheduler.complete(name, self.now, 10, cached), self.unfit - {instance})

    @rule(data=st.data(), cancels=st.booleans())
    def give_up(self, data: st.DataObject, cancels: bool) -> None:
        name = self.any_request(data)
        instance = self.alive.get(name)
        if name in self.alive:
            self.end(name)
        outcomes = self.scheduler.cancel(name, self.now) if cancels else self.scheduler.fail(name, self.now)
        self.see(outcomes, self.unfit - {instance})

    @rule(data=st.data(), counts=st.booleans(), decode_fails=st.booleans(), reached=st.booleans())
    def retry(self, data: st.DataObject, counts: bool, decode_fails: bool, reached: bool) -> None:
        name = self.any_request(data)
        instance = self.alive.get(name)
        if instance is None or name in self.first_tokens:
            outcome = self.scheduler.retry(name, self.now, "i0")
            assert isinstance(outcome, Refusal)
            assert outcome.reason is RejectionReason.UPSTREAM_FAILED
            return
        decode = self.decodes.get(name)
        failed = decode if decode_fails and decode is not None else instance
        if counts:
            self.scheduler.instance_failed(failed, self.now)
            self.snapshot()
        outcome = self.scheduler.retry(name, self.now, failed, reached=reached)
        assert outcome.request.id == name
        unreachable = self.unreachable.setdefault(name, set()) | {failed}
        if not reached:
            self.unreachable[name].add(failed)
        if isinstance(outcome, Dispatch):
            assert outcome.instance != failed
            able = [load.entry for load in self.scheduler.loads() if load.takes_decodes(self.now)]
            chosen = next(one for one in self.table.instances if one.id == outcome.instance)
            decoding = [one for one in able if one.role is Role.DECODE] or able
            others = [one for one in decoding if one.pairs_with(chosen) and one.id not in unreachable]
            assert outcome.decode != failed or not others
        self.see([outcome])
        self.see(self.scheduler.tick(self.now))

    @rule(instance=st.sampled_from(NAMES), times=st.integers(1, 3), works=st.booleans())
    def circuit(self, instance: str, times: int, works: bool) -> None:
        for _ in range(times):
            if works:
                self.scheduler.instance_worked(instance, self.now)
            else:
                self.scheduler.instance_failed(instance, self.now)
        self.scheduler.observe_engine(instance, 0.1 * times, self.now)
        self.snapshot()
        self.see(self.scheduler.tick(self.now))

    @rule(
        instances=INSTANCES,
        moved=st.booleans(),
        revisions=st.sampled_from([("",), ("a", "b"), ("a", "", "b")]),
        policy=st.sampled_from([None, *BUILT_IN.names]),
        mode=st.sampled_from([None, "Disabled", "Predicted"]),
    )
    def table_changes(self, instances: Fitness, moved: bool, revisions: tuple[str, ...], policy: str | None, mode: str | None) -> None:
        self.version += 1
        entries: list[InstanceEntry] = []
        for number, (name, (state, role)) in enumerate(sorted(instances.items())):
            address = f"{name}:{self.version}" if moved else f"{name}:8000"
            entries.append(replace(entry(name, state, role=role), address=address, revision=revisions[number % len(revisions)]))
        roles = {one.id: one.role for one in self.table.instances}
        self.changed_roles |= {one.id for one in entries if roles.get(one.id, one.role) is not one.role}
        routing = self.table.routing
        if policy is not None and policy != routing.policy:
            kept = {key: value for key, value in routing.parameters.items() if key.startswith("queue_")}
            routing = replace(routing, policy=policy, parameters=kept)
        rejection = self.table.early_rejection if mode is None else replace(self.table.early_rejection, mode=mode)
        self.table = replace(self.table, version=self.version, instances=tuple(entries), routing=routing, early_rejection=rejection)
        unfit = {one.id for one in entries if not one.accepting}
        self.see(self.scheduler.update_table(self.table, self.now), unfit)
        assert self.scheduler.update_table(self.table, self.now) == ()

    @rule(session=st.sampled_from(["s", "t", "u"]), instance=st.sampled_from([*NAMES, None]), version=st.integers(1, 8))
    def bindings_arrive(self, session: str, instance: str | None, version: int) -> None:
        told = Binding(
            pool=POOL, session=session, instance=instance, version=version, reason=BindingReason.DRAIN, bound_at=self.now, migrated_at=None
        )
        self.scheduler.apply_bindings([told], self.now)

    @rule()
    def records_are_taken(self) -> None:
        records = self.scheduler.take_records(self.now)
        assert records.dropped == 0
        for move in (*records.migrations, *records.reroutes):
            self.check_move(move)
        changes = [one for one in records.bindings if not one.shared]  # that a name is shared moves nobody
        homes = Counter((one.session, one.previous, one.instance, one.at) for one in changes if one.previous is not None)
        assert Counter((move.session, move.source, move.target, move.at) for move in records.migrations) == homes
        if self.version == 1 and not PolicyInForce.of(BUILT_IN.build(self.table.routing, 1)).keeps_homes:
            assert records.bindings == ()
        for change in changes:
            assert change.instance != change.previous
            assert (change.previous is None) == (change.reason is BindingReason.COLD)
        for decision in records.decisions:
            assert (decision.chosen == "") == (decision.weighing.rule == NOBODY)
        for sample in records.loads:
            assert min(sample.running, sample.waiting, sample.pending_prefill_tokens, sample.in_flight) >= 0

    def check_move(self, move: Move[PoolKey, float]) -> None:
        assert move.source != move.target
        assert move.trigger is not BindingReason.COLD
        if move.predicted_source_ttft_seconds is None:
            assert move.benefit_seconds is None
            return
        assert move.benefit_seconds is not None
        assert move.predicted_target_ttft_seconds is not None
        if move.trigger is BindingReason.HOTSPOT:
            assert move.benefit_seconds > 0
            assert move.predicted_target_ttft_seconds < self.table.slo.ttft_seconds
        assert move.benefit_seconds == pytest.approx(move.predicted_source_ttft_seconds - move.predicted_target_ttft_seconds)

    @precondition(lambda self: self.alive)
    @rule()
    def everything_ends(self) -> None:
        for name in sorted(self.alive):
            if name in self.alive:
                instance = self.alive[name]
                self.end(name)
                self.see(self.scheduler.cancel(name, self.now), self.unfit - {instance})
        for load in self.scheduler.loads():
            assert (load.pending_prefill_tokens, load.pending_prefill_microseconds, load.dispatched_prefill_tokens) == (0, 0, 0)
            assert (load.waiting, load.prefilling, load.decoding, load.decode_tokens) == (0, 0, 0, 0)
            assert (load.incoming, load.incoming_tokens, load.transfers_out) == (0, 0, 0)

    @invariant()
    def counters_are_exact(self) -> None:
        assert self.scheduler.discrepancies() == ()

    @invariant()
    def every_request_is_counted_once(self) -> None:
        dispatched = sum(1 for instance in self.alive.values() if instance is not None)
        counted = self.scheduler.in_flight()
        incoming = sum(load.incoming for load in self.scheduler.loads())
        assert sum(one.in_flight for one in counted) - sum(one.waiting for one in counted) - incoming == dispatched
        assert self.scheduler.waiting() == len(self.alive) - dispatched

    @invariant()
    def nothing_waits_where_nothing_is_accepted(self) -> None:
        for load in self.scheduler.loads():
            assert not load.waiting or load.entry.accepting

    def teardown(self) -> None:
        for name in sorted(self.alive):
            self.scheduler.cancel(name, self.now)
        self.scheduler.tick(self.now + 1)
        assert all(one.in_flight == 0 for one in self.scheduler.in_flight())
        assert self.scheduler.waiting() == 0
        assert self.scheduler.discrepancies() == ()


def test_any_history_keeps_the_books_exact() -> None:
    run_state_machine_as_test(
        SchedulerHistory,
        settings=examples(120, suppress=[HealthCheck.filter_too_much]),
    )

"""Long busy histories of every policy, by seed: no unfit instance is chosen, nothing is left at the end of a request,
and every refusal helps its client.

`test_scheduler_histories.py` looks for the shortest history that breaks a rule. These histories are long enough to fill
queues, fetch prefixes and migrate.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest

from fairlead.instances import REACHABLE, InstanceState, Role
from fairlead.reports.bindings import Binding, BindingReason
from fairlead.reports.decisions import DecisionReason
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.parameters import DISCIPLINES
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead.tables import EarlyRejectionFacts, HoldingFacts, InstanceEntry, Outlook
from fairlead_testing.builders.routing import POOL, entry, request, table
from fairlead_testing.worlds.rare_moves import SCENARIOS
from fairlead_testing.worlds.watched_policy import watched_policies

MODES = ("Disabled", "Load", "Predicted", "AfterPrefill")
UNFIT = (InstanceState.CORDONED, InstanceState.DRAINING, InstanceState.LOST, InstanceState.STARTING)
STEPS = 260
SEEDS = range(8)
COOLDOWN = 6.0
OWN: dict[str, dict[str, Any]] = {
    "ear": {"hot_tokens": 2_500, "cooldown_seconds": COOLDOWN},
    "preble": {"rebalance_every": 3},
    "dualmap": {"hotness_window": 40, "hotness_min_samples": 10},
}


class History:
    """A scheduler, its clock, and the expected state of each request: waiting, prefilling or decoding."""

    def __init__(self, policy: str, seed: int, seen: Counter[str]) -> None:
        self.draw = Random(f"{policy}/{seed}")
        self.seen = seen
        self.now, self.submitted = 1000.0, 0
        self.stage: dict[str, str] = {}
        self.place: dict[str, str] = {}
        self.moved_at: dict[str, float] = {}
        self.split = policy == "static-pd" or seed % 4 == 3
        self.roles = [Role.PREFILL, Role.PREFILL, Role.DECODE, Role.PREFILL, Role.DECODE, Role.BOTH] if self.split else [Role.BOTH] * 6
        mode = self.draw.choice(MODES)
        parameters: dict[str, Any] = {"queue_discipline": self.draw.choice(DISCIPLINES), "queue_timeout_seconds": 9}
        parameters |= {
            "queue_limit": self.draw.choice([4, 8, 64]),
            "prefill_estimate": self.draw.choice(["configured", "linear", "bilinear"]),
        }
        parameters |= {"estimate_min_samples": 10, "early_prefixes": self.draw.random() < 0.3} | OWN.get(policy, {})
        if "least_gain_seconds" in BUILT_IN.parameters(policy):  # so little is computed here that few moves gain as much as the default
            parameters["least_gain_seconds"] = self.draw.choice([-3600.0, 0.0])
        self.table = table(
            [self.entry(position) for position in range(self.draw.randint(3, 6))],
            policy=policy,
            parameters=parameters,
            window=self.draw.choice([0, 1, 1, 2]),
            speed=1000.0,
            rejection=EarlyRejectionFacts(mode=mode, headroom=1.5),
            kv_cache_tokens=60_000,
            decode_base_seconds=0.01,
            decode_seconds_per_request=0.02,
            kv_bytes_per_token=1_000,
            kv_transfer_bytes_per_second=1e8,
        )
        settings = SchedulerSettings(sweep_seconds=0.1, held_limit=6)
        self.scheduler = PoolScheduler(self.table, "router-0", seed, sample_rate=1.0, settings=settings)

    def entry(self, position: int, state: InstanceState = InstanceState.SERVING) -> InstanceEntry:
        return entry(f"i{position}", state, role=self.roles[position])

    def run(self) -> None:
        happenings = [
            self.arrive,
            self.time_passes,
            self.first_token,
            self.complete,
            self.give_up,
            self.retry,
            self.fail,
            self.change,
            self.told,
        ]
        for step in range(STEPS):
            (happen,) = self.draw.choices(happenings, [30, 22, 30, 20, 4, 3, 3, 3, 1])
            happen()
            assert self.scheduler.discrepancies() == ()
            self.look_at_everyone()
            if step % 40 == 39:
                self.look_at_moves()
        for name in sorted(self.stage):
            self.end(name)
            self.take(self.scheduler.cancel(name, self.now))
        self.look_at_moves()
        self.look_at_everyone()
        for load in self.scheduler.loads():
            assert (load.pending_prefill_tokens, load.pending_prefill_microseconds, load.dispatched_prefill_tokens) == (0, 0, 0)
            assert (load.waiting, load.prefilling, load.decoding, load.decode_tokens, load.late_prefill_microseconds) == (0, 0, 0, 0, 0)
            assert (load.incoming, load.incoming_tokens, load.transfers_out) == (0, 0, 0)

    # ---- what happens

    def arrive(self) -> None:
        for _ in range(self.draw.randint(1, 4)):
            self.submitted += 1
            name = f"r{self.submitted}"
            family = self.draw.randrange(4)
            length = self.draw.randint(0, 6)
            blocks = tuple(1000 * family + depth + 1 if depth < 4 else 10**6 * self.submitted + depth for depth in range(length))
            tokens = 512 * length + self.draw.randint(0 if length else 1, 500)
            session = self.draw.choice([None, f"s{family}", f"s{family}{self.draw.randrange(2)}"])
            asked = request(name, tokens, blocks=blocks, session=session, at=self.now, streamed=self.draw.random() < 0.8)
            self.stage[name] = "waiting"
            self.take(self.scheduler.submit(asked, self.now))

    def time_passes(self) -> None:
        self.now += self.draw.choice([0.05, 0.2, 0.5, 1.0])
        self.take(self.scheduler.tick(self.now))

    def first_token(self) -> None:
        name = self.any("prefilling")
        if name is not None:
            self.stage[name] = "decoding"
            self.take(self.scheduler.first_token(name, self.now))

    def complete(self) -> None:
        name = self.any("decoding")
        if name is not None:
            self.end(name)
            self.take(self.scheduler.complete(name, self.now, 20, self.draw.choice([None, 512])))

    def give_up(self) -> None:
        name = self.draw.choice([*sorted(self.stage), "ghost"])
        self.end(name)
        self.take(self.draw.choice([self.scheduler.cancel, self.scheduler.fail])(name, self.now))

    def retry(self) -> None:
        name = self.any("prefilling")
        if name is not None:
            if self.draw.random() < 0.7:
                self.scheduler.instance_failed(self.place[name], self.now)
            self.take([self.scheduler.retry(name, self.now, self.place[name])])
            self.take(self.scheduler.tick(self.now))

    def fail(self) -> None:
        """Let an instance fail until its circuit opens, recover, or report its KV usage."""
        instance = f"i{self.draw.randrange(6)}"
        for _ in range(3):
            self.scheduler.instance_failed(instance, self.now)
        if self.draw.random() < 0.4:
            self.scheduler.instance_worked(instance, self.now)
        self.scheduler.observe_engine(instance, self.draw.random(), self.now)
        self.take(self.scheduler.tick(self.now))

    def change(self) -> None:
        """Let instances appear, leave, drain, be lost (sometimes all of them) or change their roles.

        The outlook and the mode of early rejection may change too.
        """
        fit = self.draw.choice([0.0, 0.5, 0.8, 1.0, 1.0])
        if self.split and self.draw.random() < 0.4:
            self.draw.shuffle(self.roles)
        states = [InstanceState.SERVING if self.draw.random() < fit else self.draw.choice(UNFIT) for _ in range(self.draw.randint(2, 6))]
        entries = tuple(self.entry(position, state) for position, state in enumerate(states))
        outlook = self.draw.choice(tuple(Outlook))
        opens_at = self.draw.choice([None, self.now + 30.0])
        holding = HoldingFacts(hold_for_seconds=2.0, held_requests=self.draw.choice([2, 8]))
        version = self.table.version + 1
        self.table = replace(self.table, version=version, instances=entries, outlook=outlook, opens_at=opens_at, holding=holding)
        if self.draw.random() < 0.3:
            self.table = replace(self.table, early_rejection=replace(self.table.early_rejection, mode=self.draw.choice(MODES)))
        self.take(self.scheduler.update_table(self.table, self.now))

    def told(self) -> None:
        """Receive the binding of another router, and fetched blocks."""
        session, instance = f"s{self.draw.randrange(4)}", self.draw.choice([None, "i0", "i1"])
        reason = BindingReason.SLO
        one = Binding(
            pool=POOL,
            session=session,
            instance=instance,
            version=self.draw.randint(1, 99),
            reason=reason,
            bound_at=self.now,
            migrated_at=None,
        )
        self.look_at_moves()
        self.scheduler.apply_bindings([one], self.now)
        self.moved_at.pop(session, None)
        self.scheduler.transferred(self.any("prefilling") or "ghost", self.now)

    # ---- what must hold

    def any(self, stage: str) -> str | None:
        names = [name for name, where in self.stage.items() if where == stage]
        return self.draw.choice(names) if names else None

    def end(self, name: str) -> None:
        self.stage.pop(name, None)
        self.place.pop(name, None)

    def take(self, outcomes: Sequence[Dispatch | Refusal]) -> None:
        entries = {one.id: one for one in self.table.instances}
        for outcome in outcomes:
            name = outcome.request.id
            assert name in self.stage, "an outcome is about a request that has not ended"
            if isinstance(outcome, Refusal):
                self.look_at(outcome)
                self.end(name)
                continue
            assert self.stage[name] != "decoding"
            self.stage[name], self.place[name] = "prefilling", outcome.instance
            chosen = entries[outcome.instance]
            assert chosen.accepting
            assert (chosen.role is Role.DECODE) == (outcome.reason is DecisionReason.DECODE_ONLY)
            self.seen["decode-only"] += chosen.role is Role.DECODE
            assert (outcome.decode is not None) == (chosen.role is Role.PREFILL)
            if outcome.decode is not None:
                assert entries[outcome.decode].accepting
                assert entries[outcome.decode].role is not Role.PREFILL
            if outcome.transfer_from is not None:
                assert outcome.transfer_from != outcome.instance
                assert entries[outcome.transfer_from].state in REACHABLE, "a queued request forgets a source that is lost"
                self.seen["fetched"] += 1
            self.seen["dispatched"] += 1

    def look_at(self, refusal: Refusal) -> None:
        assert refusal.reason in RejectionReason
        assert refusal.status == (429 if refusal.reason in CONTENDED else 502 if refusal.reason is RejectionReason.UPSTREAM_FAILED else 503)
        assert refusal.retry_after_seconds == int(refusal.retry_after_seconds)
        assert 1 <= refusal.retry_after_seconds <= 600
        assert refusal.message
        assert "\n" not in refusal.message
        self.seen[refusal.reason] += 1
        self.seen[f"refused, {self.table.early_rejection.mode}, {self.table.routing.parameters['queue_discipline']}"] += 1

    def look_at_everyone(self) -> None:
        waiting = sum(where == "waiting" for where in self.stage.values())
        assert self.scheduler.waiting() == waiting
        loads = self.scheduler.loads()
        assert sum(load.prefilling + load.decoding for load in loads) == len(self.stage) - waiting

    def look_at_moves(self) -> None:
        records = self.scheduler.take_records(self.now)
        for move in (*records.migrations, *records.reroutes):
            assert move.source != move.target
            self.seen[move.trigger] += 1
            if move.trigger is BindingReason.HOTSPOT:
                assert move.benefit_seconds is not None
                assert move.predicted_target_ttft_seconds is not None
                assert move.benefit_seconds > 0
                assert move.predicted_target_ttft_seconds < self.table.slo.ttft_seconds
        for migration in records.migrations:
            if migration.trigger is BindingReason.HOT_MIGRATION and self.table.routing.policy == "ear":
                assert migration.at - self.moved_at.get(migration.session, 0.0) >= COOLDOWN
            self.moved_at[migration.session] = migration.at
        for rejection in records.rejections:
            assert rejection.count >= 1
            assert rejection.retry_after_seconds >= 1


CONTENDED = {
    RejectionReason.PREDICTED_TTFT,
    RejectionReason.DECODE_OVERLOADED,
    RejectionReason.AFTER_PREFILL,
    RejectionReason.QUEUE_FULL,
    RejectionReason.QUEUE_TIMEOUT,
}


@cache
def histories(policy: str) -> Counter[str]:
    """Run histories with all seeds, and return counts of their events."""
    seen: Counter[str] = Counter()
    with watched_policies(seen):
        for seed in SEEDS:
            History(policy, seed, seen).run()
    return seen


@pytest.mark.parametrize("policy", BUILT_IN.names)
def test_no_one_unfit_is_ever_named_and_nothing_stays_counted(policy: str) -> None:
    assert histories(policy)["dispatched"] > 400


def test_the_histories_come_by_everything_that_they_check() -> None:
    seen: Counter[str] = sum((histories(policy) for policy in BUILT_IN.names), Counter())
    named = ("fallbacks", "alternate", "decode", "transfer_from", "fetched", "overloaded", "move", "decode-only")
    never = {RejectionReason.SHUTTING_DOWN, RejectionReason.POLICY_FAILED}  # test_scheduler_basics.py
    refused = [reason for reason in RejectionReason if reason not in never]
    moved = [reason for reason in BindingReason if reason not in SCENARIOS]  # test_rare_moves.py
    combined = [f"refused, {mode}, {discipline}" for mode in MODES for discipline in DISCIPLINES]
    rare = {BindingReason.SLO}  # staying is seldom predicted late where somebody else is in time
    least = {what: 1 if what in rare else 10 for what in (*named, *refused, *moved, *combined)}
    assert {what: seen[what] for what in least if seen[what] < least[what]} == {}

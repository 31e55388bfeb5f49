"""Random histories of three routers, one of which decides. Messages are late or lost, but each request ends once, the
accounts of every router are exact, and nothing is left anywhere.
"""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from fairlead.instances import InstanceState, Role
from fairlead.reports.bindings import BindingChange
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead.tables import EarlyRejectionFacts
from fairlead_testing.builders.routing import entry, request, table
from fairlead_testing.examples import examples
from fairlead_testing.worlds.router_wire import Wire

NAMES = tuple(f"i{number}" for number in range(4))
INSTANCES = st.dictionaries(
    st.sampled_from(NAMES),
    st.tuples(
        st.sampled_from([InstanceState.SERVING] * 4 + [InstanceState.DRAINING, InstanceState.LOST]),
        st.sampled_from([Role.BOTH] * 2 + [Role.PREFILL, Role.DECODE]),
    ),
    max_size=4,
)
Fitness = dict[str, tuple[InstanceState, Role]]
FRONTS = st.integers(1, 2)
ROUTERS = st.integers(0, 2)


class SharedHistory(RuleBasedStateMachine):
    """Three routers. Router 0 decides for those whose connection to it works."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.version = 1
        self.counter = 0
        self.owners: dict[str, int] = {}
        """For each request that has not ended, the router at which it arrived."""
        self.sent: dict[str, str] = {}
        """For each of these requests that was dispatched, its instance."""
        self.first_tokens: set[str] = set()
        self.changes: list[BindingChange] = []

    @initialize(
        policy=st.sampled_from(BUILT_IN.names),
        instances=INSTANCES,
        window=st.integers(0, 2),
        mode=st.sampled_from(["Disabled", "Load", "Predicted", "AfterPrefill"]),
    )
    def start(self, policy: str, instances: Fitness, window: int, mode: str) -> None:
        self.table = table(
            [entry(name, state, role=role) for name, (state, role) in sorted(instances.items())],
            policy=policy,
            parameters={"queue_limit": 4, "queue_timeout_seconds": 8},
            window=window,
            speed=1000.0,
            rejection=EarlyRejectionFacts(mode=mode, headroom=2.0),
            kv_cache_tokens=20_000,
            decode_base_seconds=0.02,
            decode_seconds_per_request=0.02,
            kv_transfer_bytes_per_second=1e9,
        )
        self.routers = [
            SharedScheduler(self.table, f"router-{number}", number, sample_rate=1.0, settings=SchedulerSettings(sweep_seconds=0.1))
            for number in range(3)
        ]
        for router in self.routers:
            router.know_routers(3)
        self.wires: dict[int, Wire] = {}
        for number in (1, 2):
            self.connect(number)

    def see(self, number: int, outcomes: Sequence[Dispatch | Refusal]) -> None:
        """Check the outcomes for a router: they are about requests that arrived there and have not ended."""
        for outcome in outcomes:
            name = outcome.request.id
            assert self.owners.get(name) == number
            if isinstance(outcome, Dispatch):
                assert name not in self.sent, "it was sent already"
                self.sent[name] = outcome.instance
            else:
                self.forget(name)

    def forget(self, name: str) -> None:
        del self.owners[name]
        self.sent.pop(name, None)
        self.first_tokens.discard(name)

    def hear(self) -> None:
        """Process the outcomes that delivered words caused for the decider's own requests."""
        for wire in self.wires.values():
            self.see(0, wire.decided)
            wire.decided.clear()

    def draw_sent(self, data: st.DataObject) -> str | None:
        return data.draw(st.sampled_from(sorted(self.sent))) if self.sent else None

    @rule(number=ROUTERS, tokens=st.integers(1, 4000), session=st.sampled_from([None, "s", "t"]), streamed=st.booleans())
    def submit(self, number: int, tokens: int, session: str | None, streamed: bool) -> None:
        self.counter += 1
        name = f"r{self.counter:04d}"
        self.owners[name] = number
        asked = request(name, tokens, blocks=(1, 2), session=session, at=self.now, streamed=streamed)
        self.see(number, self.routers[number].submit(asked, self.now))

    @rule(number=FRONTS, count=st.integers(1, 5))
    def words_are_heard(self, number: int, count: int) -> None:
        for _ in range(count):
            if number in self.wires:
                self.see(number, self.wires[number].carry_one(self.now))
        self.hear()

    @rule(number=FRONTS)
    def the_wire_breaks(self, number: int) -> None:
        wire = self.wires.get(number)
        if wire is not None:
            outcomes = wire.part(self.now)
            self.hear()
            del self.wires[number]
            self.see(number, outcomes)

    @rule(number=FRONTS)
    def connect(self, number: int) -> None:
        if number not in self.wires:
            self.wires[number] = Wire(self.routers[number], self.routers[0], self.now)

    @rule(seconds=st.sampled_from([0.01, 0.1, 1.0, 5.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for number, router in enumerate(self.routers):
            self.see(number, router.tick(self.now))

    @rule(data=st.data())
    def first_token(self, data: st.DataObject) -> None:
        name = self.draw_sent(data)
        if name is not None:
            number = self.owners[name]
            self.first_tokens.add(name)
            self.see(number, self.routers[number].first_token(name, self.now))

    @rule(data=st.data())
    def prompt_is_computed(self, data: st.DataObject) -> None:
        name = self.draw_sent(data)
        if name is not None:
            number = self.owners[name]
            self.see(number, self.routers[number].prefilled(name, self.now))

    @rule(data=st.data(), how=st.sampled_from(["complete", "fail", "cancel", "decline"]))
    def end(self, data: st.DataObject, how: str) -> None:
        if not self.owners:
            return
        name = data.draw(st.sampled_from(sorted(self.sent if how == "complete" and self.sent else self.owners)))
        number = self.owners[name]
        router = self.routers[number]
        if how == "complete" and name in self.sent:
            self.forget(name)
            self.see(number, router.complete(name, self.now, 10, 0))
        else:
            self.forget(name)
            self.see(number, {"fail": router.fail, "decline": router.decline}.get(how, router.cancel)(name, self.now))

    @rule(data=st.data(), counts=st.booleans(), reached=st.booleans())
    def retry(self, data: st.DataObject, counts: bool, reached: bool) -> None:
        name = self.draw_sent(data)
        if name is None or name in self.first_tokens:
            return
        number, failed = self.owners[name], self.sent[name]
        router = self.routers[number]
        if counts:
            router.instance_failed(failed, self.now)
        outcome = router.retry(name, self.now, failed, reached=reached)
        del self.sent[name]
        self.see(number, [outcome])
        self.see(number, router.tick(self.now))

    @rule(number=ROUTERS, instances=INSTANCES)
    def a_router_gets_a_newer_table(self, number: int, instances: Fitness) -> None:
        self.version += 1
        entries = tuple(entry(name, state, role=role) for name, (state, role) in sorted(instances.items()))
        self.see(number, self.routers[number].update_table(replace(self.table, version=self.version, instances=entries), self.now))

    @rule(number=ROUTERS)
    def records_are_taken(self, number: int) -> None:
        records = self.routers[number].take_records(self.now)
        assert records.dropped == 0
        self.changes += records.bindings

    @invariant()
    def books_are_exact(self) -> None:
        for router in getattr(self, "routers", ()):
            assert router.discrepancies() == ()

    def teardown(self) -> None:
        for name, number in sorted(self.owners.items()):
            self.routers[number].cancel(name, self.now)
        for wire in self.wires.values():
            wire.carry(self.now)
        ids = [change.id for change in self.changes if change.id]
        assert len(ids) == len(set(ids))
        for router in self.routers:
            router.tick(self.now + 1)
            assert router.waiting() == 0
            assert router.discrepancies() == ()
            assert not router._state.requests
            assert not router._state.guests


def test_whatever_gets_lost_between_routers_the_books_stay_exact() -> None:
    run_state_machine_as_test(
        SharedHistory,
        settings=examples(80, suppress=[HealthCheck.filter_too_much]),
    )

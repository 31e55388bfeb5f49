"""Which router wins a session: the rule alone, and routers that follow it while reports are delayed, repeated and lost
and processes restart.
"""

from collections import deque
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fairlead.binding_races import Held, Verdict, judge, next_version
from fairlead.reports.batches import ReportReceipt
from fairlead.reports.bindings import Binding, BindingChange, BindingReason
from fairlead.routing.knowledge.bindings import SessionBindings
from fairlead.tables import PoolKey
from fairlead_testing.examples import examples

POOL = PoolKey(namespace="n", name="p")
HOSTS = ("a", "b", "c", "d")


def change(instance: str, based_on: int = 0, after: str | None = None) -> BindingChange:
    return BindingChange(
        id="x", pool=POOL, session="s", instance=instance, reason=BindingReason.COLD, at=0.0, based_on=based_on, after=after
    )


def held(instance: str | None, version: int, made_by: str | None = None) -> Held:
    return Held(instance=instance, version=version, router="r0", change=made_by)


@pytest.mark.parametrize(
    ("wanted", "present", "verdict"),
    [
        (3, 3, Verdict.TOUCH),
        (3, 5, Verdict.BIND),
        (None, 5, Verdict.TOUCH),  # from a router that knows of no ranks
        (3, None, Verdict.TOUCH),  # it has found out
        (None, None, Verdict.TOUCH),
    ],
)
def test_another_rank_of_the_instance_is_another_home(wanted: int | None, present: int | None, verdict: Verdict) -> None:
    assert judge(replace(change("a", 3), rank=wanted), replace(held("a", 3), rank=present)) is verdict
    if verdict is Verdict.BIND:
        assert judge(replace(change("a", 2), rank=wanted), replace(held("a", 3), rank=present)) is Verdict.CONFLICT


@pytest.mark.parametrize(
    ("wanted", "present", "verdict"),
    [
        (change("a"), held(None, 0), Verdict.BIND),
        (change("a", 9), held(None, 0), Verdict.BIND),  # the database was restored from before this session
        (change("a"), held(None, 7), Verdict.BIND),
        (change("a", 8), held(None, 7), Verdict.CONFLICT),
        (change("a"), held("a", 3), Verdict.TOUCH),
        (change("b", 2), held("a", 3), Verdict.CONFLICT),
        (change("b", 3), held("a", 3), Verdict.BIND),
        (change("b", 4), held("a", 3), Verdict.CONFLICT),
        (change("b", 2**62), held("a", 3), Verdict.CONFLICT),
        (change("b", 2, "own"), held("a", 3, "own"), Verdict.BIND),
        (change("b", 2, "own"), held("a", 3, "another's"), Verdict.CONFLICT),
        (change("b", 2), held("a", 3, None), Verdict.CONFLICT),
    ],
)
def test_the_first_writer_wins_except_where_there_is_no_race(wanted: BindingChange, present: Held, verdict: Verdict) -> None:
    assert judge(wanted, present) is verdict


def test_a_router_that_moved_twice_on_old_news_does_not_beat_the_first_writer() -> None:
    first = replace(change("c", 1), id="one")
    second = replace(change("d", 1, after="one"), id="two")
    present = held("b", 2, "another's")
    assert [judge(wanted, present) for wanted in (first, second)] == [Verdict.CONFLICT, Verdict.CONFLICT]


class Router:
    """A router's knowledge, its spool, and the messages that are in transit to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.bindings = SessionBindings(POOL, 1e9, {})
        self.told: Binding | None = None
        """The newest binding received from the API, which the router keeps on disk."""
        self.spool: deque[tuple[BindingChange, ...]] = deque()
        self.receipts: deque[ReportReceipt] = deque()
        self.stream: deque[Binding] = deque()
        self.changes = 0


class Races(RuleBasedStateMachine):
    """A session, three routers and an API."""

    def __init__(self) -> None:
        super().__init__()
        self.held = Held(instance=None, version=0, router="")
        self.routers = [Router(f"r{number}") for number in range(3)]
        self.history: list[tuple[int, str]] = []
        self.answered: dict[str, ReportReceipt] = {}
        self.ignored: set[str] = set()
        self.now = 0.0

    def binding(self) -> Binding:
        made_by = self.held
        return Binding(
            pool=POOL,
            session="s",
            instance=made_by.instance,
            version=made_by.version,
            reason=BindingReason.SLO,
            bound_at=0.0,
            migrated_at=None,
            change=made_by.change,
        )

    def tell(self) -> None:
        for router in self.routers:
            router.stream.append(self.binding())

    def bind(self, wanted: BindingChange, router: str) -> None:
        before = self.held
        if before.instance is not None and wanted.after not in self.ignored:
            assert wanted.previous == before.instance, "it won over a binding its router did not know"
        self.held = Held(instance=wanted.instance, version=next_version(wanted, before), router=router, change=wanted.id)
        self.history.append((self.held.version, wanted.instance))
        self.tell()

    @rule(which=st.integers(0, 2), host=st.sampled_from(HOSTS), cut=st.booleans())
    def move(self, which: int, host: str, cut: bool) -> None:
        router = self.routers[which]
        known = router.bindings.get("s")
        if known is not None and known.instance == host:
            return
        self.now += 1
        router.changes += 1
        made = router.bindings.bind("s", host, BindingReason.SLO, self.now, 0, f"{router.name}-{router.changes}")
        if cut or not router.spool or router.spool[-1][0].id in self.answered:
            router.spool.append((made,))
        else:
            router.spool.append((*router.spool.pop(), made))

    @rule(which=st.integers(0, 2))
    def use(self, which: int) -> None:
        self.now += 1e9
        router = self.routers[which]
        refresh = router.bindings.touch("s", self.now)
        if refresh is not None:
            router.changes += 1
            router.spool.append((replace(refresh, id=f"{router.name}-{router.changes}"),))

    @rule(which=st.integers(0, 2), answer_is_lost=st.booleans(), unknown=st.booleans())
    def report(self, which: int, answer_is_lost: bool, unknown: bool) -> None:
        router = self.routers[which]
        if not router.spool:
            return
        batch = router.spool[0]
        receipt = self.answered.get(batch[0].id)
        if receipt is None:
            lost: list[str] = []
            for wanted in batch:
                if unknown:
                    self.ignored.add(wanted.id)
                    lost.append(wanted.id)
                    continue
                verdict = judge(wanted, self.held)
                if verdict is Verdict.BIND:
                    self.bind(wanted, router.name)
                elif verdict is Verdict.CONFLICT:
                    lost.append(wanted.id)
            conflicts = (self.binding(),) if lost else ()
            receipt = self.answered[batch[0].id] = ReportReceipt(id=batch[0].id, duplicate=False, conflicts=conflicts, lost=tuple(lost))
        if not answer_is_lost:
            router.spool.popleft()
            router.receipts.append(receipt)

    @rule(which=st.integers(0, 2))
    def hear_receipt(self, which: int) -> None:
        router = self.routers[which]
        if router.receipts:
            receipt = router.receipts.popleft()
            for binding in receipt.conflicts:
                router.bindings.apply(binding, self.now, receipt.lost)

    @rule(which=st.integers(0, 2))
    def hear_stream(self, which: int) -> None:
        router = self.routers[which]
        if router.stream:
            router.told = router.stream.popleft()
            router.bindings.apply(router.told, self.now)

    @rule(which=st.integers(0, 2))
    def stream_breaks(self, which: int) -> None:
        """Break a stream: messages in transit are lost, and the new connection begins with the present binding."""
        self.routers[which].stream = deque([self.binding()] if self.held.version else [])

    @rule(which=st.integers(0, 2))
    def restart(self, which: int) -> None:
        router = self.routers[which]
        router.bindings = SessionBindings(POOL, 1e9, {})
        router.receipts.clear()
        if router.told is not None and router.told.instance is not None:
            router.bindings.apply(router.told, self.now)
        for batch in router.spool:
            for made in batch:
                router.bindings.recall(made, self.now)
        self.stream_breaks(which)

    @rule()
    def session_ends(self) -> None:
        if self.held.instance is not None:
            self.held = replace(self.held, instance=None)
            self.tell()

    @rule(host=st.sampled_from(HOSTS))
    def api_moves_it(self, host: str) -> None:
        if self.held.instance not in (None, host):
            self.held = Held(instance=host, version=self.held.version + 1, router="api", change=f"api-{self.held.version}")
            self.history.append((self.held.version, host))
            self.tell()

    @invariant()
    def history_has_no_gap(self) -> None:
        versions = [version for version, _ in self.history]
        assert versions == list(range(1, len(versions) + 1))

    @invariant()
    def no_more_than_one_binding_is_open(self) -> None:
        if self.held.instance is not None:
            assert self.history[-1] == (self.held.version, self.held.instance)

    @rule()
    def everything_arrives(self) -> None:
        """Deliver all messages. Afterwards every router has the API's binding."""
        for which, router in enumerate(self.routers):
            while router.spool:
                self.report(which, answer_is_lost=False, unknown=False)
        for which, router in enumerate(self.routers):
            while router.receipts:
                self.hear_receipt(which)
            while router.stream:
                self.hear_stream(which)
            known = router.bindings.get("s")
            assert (None if known is None else known.instance) == self.held.instance

    def teardown(self) -> None:
        self.everything_arrives()


TestRaces = Races.TestCase
TestRaces.settings = examples(300, steps=40)

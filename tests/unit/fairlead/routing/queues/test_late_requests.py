"""When late requests may go, according to the pool's queues."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import InstanceState
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.queues.accounting import Accounting, TrackedRequest
from fairlead.routing.queues.late_requests import LATE_AMONG_OTHERS, WEIGHT, LateRequests
from fairlead_testing.builders.routing import entry, request, table

PARAMETERS = QueueParameters()


class Pool:
    """Two instances and the requests that wait there. A prefill takes a second per 1,000 tokens."""

    def __init__(self) -> None:
        self.accounting = Accounting(lambda prompt, hit: (prompt - hit) / 1000)
        self.accounting.loads = {name: InstanceLoad(entry=entry(name, InstanceState.SERVING)) for name in ("i0", "i1")}
        self.late = LateRequests(self.accounting)

    def queue(self, name: str, tokens: int) -> TrackedRequest:
        tracked = TrackedRequest(request=request(name, tokens), submitted_at=0.0)
        self.accounting.admit(tracked)
        self.accounting.enqueue(tracked, "i0", 0, 0.0)
        return tracked

    def may_go(self, window: int = 1, load: float = 1.0, routers: int = 1) -> bool:
        return self.late.may_go(PARAMETERS, table(2, window=window), 2, load, routers)


def test_they_may_go_while_the_pool_is_calm_however_much_waits() -> None:
    pool = Pool()
    pool.queue("r", 60_000)
    assert pool.may_go(load=0.89)
    assert not pool.may_go(load=0.9)


def test_they_may_go_while_little_but_late_requests_waits() -> None:
    """The mean is 0.3 s, which is 6 % of the SLO: 0.6 s on two instances."""
    pool = Pool()
    for number in range(30):
        pool.late.found(pool.queue(f"r{number}", 10_000), refuse=False)
    pool.queue("some", 590)
    assert pool.may_go()
    assert not pool.may_go(routers=2), "as much waits in the other router"
    pool.queue("more", 20)
    assert not pool.may_go()
    assert pool.may_go(window=0), "without queues nothing is held back"


def test_what_is_to_be_refused_is_kept_for_the_scheduler() -> None:
    pool = Pool()
    tracked = pool.queue("r", 1000)
    pool.late.found(pool.queue("waits", 1000), refuse=False)
    pool.late.found(tracked, refuse=True)
    assert pool.late.to_refuse == [tracked]


def test_answers_are_spared_while_more_of_them_are_late_than_of_first_tokens() -> None:
    pool = Pool()
    assert not pool.late.spare_answers, "nothing was seen yet"
    for _ in range(5):
        pool.late.saw_answer(late=True)
    assert pool.late.spare_answers
    late = pool.queue("r", 1000)
    for number in range(10):
        pool.late.found(pool.queue(f"r{number}", 1000), refuse=False)
    assert not pool.late.spare_answers, "as many first tokens are lost"
    for _ in range(200):
        pool.late.saw_first_token(late=False)
        pool.late.saw_answer(late=False)
    pool.late.found(late, refuse=False)
    pool.accounting.find_late(late)
    pool.late.found(late, refuse=False)
    assert not pool.late.spare_answers, "long past counts for nothing"


@given(st.lists(st.booleans(), max_size=300))
def test_among_routers_they_go_only_while_few_first_tokens_are_late_and_a_lone_one_goes_by_its_load(late: list[bool]) -> None:
    pool = Pool()
    share = 0.0
    for one in late:
        pool.late.saw_first_token(late=one)
        share += WEIGHT * (one - share)
    assert pool.may_go(load=0.5)
    assert pool.may_go(load=0.5, routers=2) == (share <= LATE_AMONG_OTHERS)
    assert pool.may_go(window=0, routers=2), "without queues nothing waits"

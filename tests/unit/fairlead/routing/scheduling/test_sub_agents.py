"""A burst of sub-agents with the same scaffold: it starts at an instance that has cached the scaffold, and spreads
before that instance is hot.
"""

from collections import Counter
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.session_trees import Lineage
from fairlead_testing.builders.routing import dispatches, request, table
from fairlead_testing.examples import examples

SPEED = 6250
"""The number of tokens that an instance prefills in a second."""
BLOCK = 512
SCAFFOLD = tuple(range(1, 41))
"""The tokens of the scaffold, which take 3.3 seconds to prefill."""


@dataclass(frozen=True)
class Burst:
    """The instances of the sub-agents, and how long the last one waited for its first token.

    `warm` is the instance that had cached the scaffold.
    """

    warm: str
    on: Counter[str]
    last_seconds: float


def burst(sub_agents: int, *, early: bool, own: int = 2, instances: int = 8, policy: str = "fairlead") -> Burst:
    """Send all sub-agents at once, each with `own` blocks beyond the scaffold, and return the outcome.

    An instance computes one prompt after the other, and caches what it has computed.
    """
    pool = PoolScheduler(table(instances, policy=policy, parameters={"early_prefixes": early}), "router-0", 0)
    (first,) = dispatches(pool.submit(request("main", BLOCK * 41, session="main", blocks=(*SCAFFOLD, 999)), 0.0))
    pool.first_token("main", 3.4)
    pool.complete("main", 4.0, 20, None)
    on, cached, last = Counter[str](), {first.instance}, 0.0
    events: list[tuple[float, str, str]] = [(5.0, "arrives", f"sub{number:03}") for number in range(sub_agents)]
    while events:
        now, what, name = heappop(events)
        if what == "arrives":
            blocks = (*SCAFFOLD, *(1000 + 10 * int(name.removeprefix("sub")) + place for place in range(own)))
            asked = request(name, BLOCK * len(blocks), session=name, at=now, blocks=blocks)
            outcomes = pool.submit(replace(asked, lineage=Lineage(parent="main")), now)
        elif what == "first token":
            last = now - 5.0
            heappush(events, (now + 1.0, "ends", name))
            outcomes = pool.first_token(name, now)
        else:
            outcomes = pool.complete(name, now, 30, None)
        for sent in dispatches(outcomes):
            on[sent.instance] += 1
            blocks_to_compute = own + (0 if sent.instance in cached else len(SCAFFOLD))
            cached.add(sent.instance)
            heappush(events, (now + BLOCK * blocks_to_compute / SPEED, "first token", sent.request.id))
    assert not pool.discrepancies()
    return Burst(warm=first.instance, on=on, last_seconds=last)


def test_few_sub_agents_all_start_where_the_scaffold_is_cached() -> None:
    for early in (False, True):
        found = burst(8, early=early)
        assert found.on == {found.warm: 8}


def test_many_spread_over_instances_that_have_begun_with_the_scaffold() -> None:
    late, early = burst(64, early=False), burst(64, early=True)
    assert late.on[late.warm] > 55, "the others get one at a time, as their scaffold counts only with its first token"
    assert early.on[early.warm] < 40
    assert min(number for name, number in early.on.items() if name != early.warm) > 5, "each that computes it is worth it"
    assert late.last_seconds > 9.0
    assert early.last_seconds < 6.0


@pytest.mark.parametrize("policy", ["fairlead", "min-ttft"])
@examples(25)
@given(st.integers(1, 96), st.integers(1, 6), st.integers(2, 8))
def test_the_last_first_token_of_a_burst_never_comes_much_later(policy: str, sub_agents: int, own: int, instances: int) -> None:
    late = burst(sub_agents, early=False, own=own, instances=instances, policy=policy)
    early = burst(sub_agents, early=True, own=own, instances=instances, policy=policy)
    assert early.on.total() == late.on.total() == sub_agents
    scaffold = BLOCK * len(SCAFFOLD) / SPEED
    assert early.last_seconds <= late.last_seconds + scaffold

"""Tasks in progress in the scheduler: which turns early rejection refuses, and which turns belong to a task in
progress.
"""

from dataclasses import replace

import pytest

from fairlead.instances import InstanceState, Role
from fairlead.reports.bindings import Binding, BindingReason
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.session_trees import Lineage
from fairlead.tables import EarlyRejectionFacts
from fairlead_testing.builders.routing import POOL, entry, having_seen, refusals, request, table

SECOND = 6250
"""The number of tokens that an instance prefills in a second. The TTFT target is 5 s."""


def pool(mode: str = "Load", *, policy: str = "fairlead", unfinished_first: bool = True) -> PoolScheduler:
    """Return a pool of one instance that has served a turn of the session `agent`."""
    of_table = table(1, policy=policy, rejection=EarlyRejectionFacts(mode=mode), parameters={"unfinished_first": unfinished_first})
    made = having_seen(PoolScheduler(of_table, "router-0", 0))
    made.submit(turn("first", "agent"), 0.0)
    made.first_token("first", 0.1)
    made.complete("first", 0.2, 1, None)
    return made


def turn(name: str, session: str, tokens: int = SECOND // 10, at: float = 0.0, parent: str | None = None) -> RoutingRequest:
    asked = request(name, tokens, session=session, at=at, blocks=(hash(session) & 0xFFFF,))
    return asked if parent is None else replace(asked, lineage=Lineage(parent=parent))


def fill(of_pool: PoolScheduler) -> None:
    """Add as much to prefill as can be in time."""
    for number in range(3):
        of_pool.submit(turn(f"full{number}", f"other{number}", int(1.6 * SECOND), at=1.0), 1.0)


def asked(of_pool: PoolScheduler, one: RoutingRequest) -> tuple[Dispatch | Refusal, ...]:
    fill(of_pool)
    return of_pool.submit(one, 1.0)


def test_early_rejection_refuses_the_first_turn_of_a_task_and_no_later_one() -> None:
    (refused,) = refusals(asked(pool(), turn("begins", "new", SECOND, at=1.0)))
    assert refused.reason is RejectionReason.PREDICTED_TTFT
    assert not refusals(asked(pool(), turn("goes on", "agent", SECOND, at=1.0)))


def test_without_the_parameter_all_turns_are_refused_alike() -> None:
    assert refusals(asked(pool(unfinished_first=False), turn("goes on", "agent", SECOND, at=1.0)))


def test_a_sub_agent_belongs_to_the_task_of_the_session_that_its_client_names() -> None:
    assert not refusals(asked(pool(), turn("sub", "explorer", SECOND, at=1.0, parent="agent")))
    assert refusals(asked(pool(), turn("sub", "explorer", SECOND, at=1.0, parent="unheard of")))


def test_a_task_whose_first_turn_was_refused_has_not_begun() -> None:
    full = pool()
    assert refusals(asked(full, turn("begins", "new", SECOND, at=1.0)))
    assert refusals(full.submit(turn("again", "new", SECOND, at=1.1), 1.1)), "or a client would get in by asking twice"


def test_a_session_that_another_router_serves_is_under_way() -> None:
    full = pool()
    home = next(load.entry.id for load in full.loads())
    bound = Binding(
        pool=POOL,
        session="elsewhere",
        instance=home,
        version=1,
        reason=BindingReason.COLD,
        bound_at=0.5,
        migrated_at=None,
        context_tokens=SECOND,
    )
    full.apply_bindings((bound,), 0.5)
    assert not refusals(asked(full, turn("goes on", "elsewhere", SECOND, at=1.0)))


def test_a_turn_that_becomes_late_in_its_queue_is_refused_only_if_it_is_the_first() -> None:
    full = pool()
    full.submit(turn("in flight", "other", int(2.4 * SECOND), at=1.0), 1.0)
    full.submit(turn("begins", "new", int(2.4 * SECOND), at=1.0), 1.0)
    full.submit(turn("goes on", "agent", int(2.4 * SECOND), at=1.0), 1.0)
    ended = [one.request.id for at in range(20, 90) for one in refusals(full.tick(at / 10))]
    assert ended == ["begins"]


@pytest.mark.parametrize("policy", ["dualmap", "ear", "cache-affinity"])
def test_the_parameter_is_for_all_policies_that_give_sessions_homes(policy: str) -> None:
    assert not refusals(asked(pool(policy=policy), turn("goes on", "agent", SECOND, at=1.0)))
    assert refusals(asked(pool(policy=policy), turn("begins", "new", SECOND, at=1.0)))


@pytest.mark.parametrize("unfinished_first", [True, False])
def test_what_is_computed_of_a_turn_of_a_task_under_way_is_not_refused_for_nothing(unfinished_first: bool) -> None:
    """`AfterPrefill` decides when the prompt has been computed, and then refuses only first turns."""
    rejection, parameters = EarlyRejectionFacts(mode="AfterPrefill"), {"unfinished_first": unfinished_first}
    roles = (entry("p", role=Role.PREFILL), entry("d", role=Role.DECODE))
    slow = table(roles, policy="fairlead", rejection=rejection, parameters=parameters, decode_base_seconds=0.2)
    full, refused = PoolScheduler(slow, "router-0", 1), []
    for number, session in enumerate(("agent", "decodes long", "agent", "new")):
        full.submit(turn(f"r{number}", session, at=float(number)), float(number))
        refused += [one.request.session for one in refusals(full.first_token(f"r{number}", number + 0.5))]
        if not number:
            full.complete("r0", 0.6, 1, None)
    assert refused == (["new"] if unfinished_first else ["agent", "new"])
    assert not full.discrepancies()


def test_counters_stay_true_while_tasks_are_protected() -> None:
    full = pool()
    fill(full)
    full.submit(turn("goes on", "agent", SECOND, at=1.0), 1.0)
    full.update_table(
        replace(full.table, version=2, instances=tuple(replace(one, state=InstanceState.DRAINING) for one in full.table.instances)), 2.0
    )
    full.tick(100.0)
    assert not full.discrepancies()

from fairlead.reports.bindings import Binding, BindingReason
from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.policies.sticky import Sticky
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_testing.builders.routing import POOL, ScriptedView, cause, dispatches, left, request, table


def sticky_pool(home: str | None = None) -> tuple[Sticky, ScriptedView]:
    pool = table(4, policy="sticky")
    policy = Sticky()
    policy.table_changed(pool)
    bound = {} if home is None else {"s": binding(home)}
    return policy, ScriptedView(pool, {one.id: InstanceLoad(entry=one) for one in pool.instances}, bindings=bound)


def binding(instance: str) -> Binding:
    return Binding(pool=POOL, session="s", instance=instance, version=1, reason=BindingReason.COLD, bound_at=0.0, migrated_at=None)


def test_a_new_session_is_placed_by_its_hash_whatever_the_load() -> None:
    policy, view = sticky_pool()
    first = policy.choose(request("r", session="s"), view, 0.0)
    assert first.reason is DecisionReason.SESSION_COLD
    view.loads[first.instance].pending_prefill_tokens = 10**6
    assert policy.choose(request("q", session="s"), view, 0.0).instance == first.instance


def test_a_bound_session_stays_even_on_the_most_loaded_host() -> None:
    policy, view = sticky_pool("i02")
    view.loads["i02"].pending_prefill_tokens = 10**6
    decision = policy.choose(request("r", session="s"), view, 0.0)
    assert (decision.instance, decision.reason) == ("i02", DecisionReason.SESSION_BOUND)


def test_a_session_whose_host_broke_goes_clockwise_to_the_next() -> None:
    policy, view = sticky_pool("i02")
    view.loads["i02"].broken_until = 9.0
    decision = policy.choose(request("r", session="s"), view, 0.0)
    assert decision.instance != "i02"
    assert decision.reason is DecisionReason.SESSION_HOST_GONE
    assert left(policy, request("r", session="s"), view) == cause("instance-lost")


def test_requests_without_a_session_stick_by_their_prefix() -> None:
    scheduler = PoolScheduler(table(6, policy="sticky", window=0), "router-0", 1)
    placed = {
        dispatches(scheduler.submit(request(f"r{number}", 2_048, blocks=(1, 2, number)), float(number)))[0].instance for number in range(8)
    }
    assert len(placed) == 1

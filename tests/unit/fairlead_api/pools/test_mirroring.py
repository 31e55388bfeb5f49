"""The API's answers to the operator's states of pools."""

from dataclasses import replace

from fairlead.pool_states import InstanceTrouble
from fairlead_api.pools.mirroring import InstanceFacts, PoolUseView, RouterView, Traffic, observations


def test_without_live_routers_everything_is_acknowledged_and_with_an_ignorant_one_nothing() -> None:
    instances = [InstanceFacts(id="a", table_version=3, bound_sessions=1, cache_tokens=2)]

    def acknowledged(*routers: RouterView) -> tuple[bool, bool]:
        found = observations(4, routers, instances, Traffic())
        return found.table_acknowledged, found.instances[0].acknowledged

    assert acknowledged() == (True, True)
    assert acknowledged(RouterView(acknowledged=3, in_flight={})) == (False, True)
    assert acknowledged(RouterView(acknowledged=4, in_flight={}), RouterView(acknowledged=None, in_flight={})) == (False, False)


def test_a_stall_that_several_routers_find_counts_from_the_last_of_them() -> None:
    def found(seconds: float) -> RouterView:
        trouble = InstanceTrouble(instance="a", trouble="EngineStalled", words=f"for {seconds:g}", seconds=seconds)
        return RouterView(acknowledged=4, in_flight={}, troubled_engines=(trouble,))

    instances = [InstanceFacts(id="a", table_version=3, bound_sessions=1, cache_tokens=2)]
    [told] = observations(4, [found(70.0), found(5.0), found(60.0)], instances, Traffic()).troubled_engines
    assert (told.seconds, told.words) == (5.0, "for 5")


def test_while_figures_are_behind_nobody_says_how_long_a_pool_was_idle_and_what_is_held_is_told() -> None:
    use = PoolUseView(held_requests=2, held_prompt_tokens=300, idle_seconds=900.0)
    routers = [RouterView(acknowledged=4, in_flight={}, use=use)]
    fresh, behind = (observations(4, routers, [], Traffic(behind_seconds=lag)) for lag in (0.0, 700.0))
    assert fresh.demand is not None and fresh.demand.idle_seconds == 900.0
    assert behind.demand == replace(fresh.demand, idle_seconds=None)
    assert behind.figures_behind_seconds == 700.0

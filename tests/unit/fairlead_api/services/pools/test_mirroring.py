"""What the operator is answered."""

from fairlead_api.services.pools.mirroring import InstanceFacts, RouterView, Traffic, observations


def test_without_live_routers_everything_is_acknowledged_and_with_an_ignorant_one_nothing() -> None:
    instances = [InstanceFacts(id="a", table_version=3, bound_sessions=1, cache_tokens=2)]

    def acknowledged(*routers: RouterView) -> tuple[bool, bool]:
        found = observations(4, routers, instances, Traffic())
        return found.table_acknowledged, found.instances[0].acknowledged

    assert acknowledged() == (True, True)
    assert acknowledged(RouterView(acknowledged=3, in_flight={})) == (False, True)
    assert acknowledged(RouterView(acknowledged=4, in_flight={}), RouterView(acknowledged=None, in_flight={})) == (False, False)

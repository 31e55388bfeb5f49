"""Pools that disappeared without a report to the control API: which are reported late, and which never."""

from collections.abc import Callable

import pytest

from fairlead.tables import PoolKey
from fairlead_operator.cluster import ClusterRefused, ClusterUnavailable, Resource
from fairlead_operator.polling import UntoldDeletions
from fairlead_operator.reconciling.finalizing import FINALIZER
from fairlead_testing.fakes.cluster import FakeCluster
from fairlead_testing.worlds.operator_stages import KEY, SETTINGS, FakeControlPlane, VirtualStage

OTHER = PoolKey(namespace="elsewhere", name="chat-2")


async def looks(api: FakeControlPlane, cluster: FakeCluster, count: int = 2, namespaces: tuple[str, ...] = ()) -> None:
    deletions = UntoldDeletions(namespaces, 60.0)
    for _ in range(count):
        await deletions.look(api, cluster)


async def test_a_pool_that_the_cluster_has_no_more_is_told_in_the_second_look() -> None:
    api, cluster = FakeControlPlane(unheard=(KEY,)), FakeCluster()
    await looks(api, cluster, 1)
    assert api.deleted == [], "whoever has it may tell it in a moment, as after an outage"
    await looks(api, cluster, 2)
    assert api.deleted == [KEY]


async def test_a_pool_that_is_heard_in_between_is_not_told() -> None:
    api, cluster, deletions = FakeControlPlane(unheard=(KEY,)), FakeCluster(), UntoldDeletions((), 60.0)
    for unheard in ((KEY,), (), (KEY,)):
        api.unheard = unheard
        await deletions.look(api, cluster)
    api.up = False
    await deletions.look(api, cluster)
    api.up = True
    await deletions.look(api, cluster)
    assert api.deleted == []


async def test_pools_of_other_namespaces_are_none_of_its_business() -> None:
    api = FakeControlPlane(unheard=(KEY, OTHER))
    await looks(api, FakeCluster(), namespaces=("default",))
    assert api.deleted == [KEY]


async def test_a_pool_that_is_there_is_never_told_as_gone() -> None:
    api, cluster = FakeControlPlane(unheard=(KEY,)), FakeCluster()
    cluster.put(Resource.POOLS, {"metadata": {"name": "chat", "namespace": "default"}})
    await looks(api, cluster, 5)
    assert api.deleted == []


def list_is_refused(verb: str, resource: Resource, name: str) -> ClusterRefused | None:
    return ClusterRefused(403, "Forbidden", "no right to list") if verb == "find" else None


def definition_is_gone(verb: str, resource: Resource, name: str) -> ClusterRefused | None:
    return ClusterRefused(404, "NotFound", "the server could not find the requested resource") if verb == "find" else None


def one_alone_is_not_answered(verb: str, resource: Resource, name: str) -> ClusterUnavailable | None:
    return ClusterUnavailable("no answer") if verb == "get" else None


@pytest.mark.parametrize("trouble", [list_is_refused, definition_is_gone, one_alone_is_not_answered])
async def test_without_a_whole_list_and_a_look_at_it_alone_nothing_is_told(
    trouble: Callable[[str, Resource, str], ClusterRefused | ClusterUnavailable | None],
) -> None:
    api, cluster = FakeControlPlane(unheard=(KEY,)), FakeCluster(refuse=trouble)
    await looks(api, cluster, 3)
    assert api.deleted == []


class Empty(FakeCluster):
    """A cluster whose lists are always empty."""

    async def find(self, resource: Resource, namespace: str, selector: str) -> list[dict[str, object]]:
        return []


async def test_a_wrong_list_alone_tells_nothing() -> None:
    api, cluster = FakeControlPlane(unheard=(KEY,)), Empty()
    cluster.put(Resource.POOLS, {"metadata": {"name": "chat", "namespace": "default"}})
    await looks(api, cluster, 3)
    assert api.deleted == []


async def test_a_pool_whose_finalizer_was_taken_off_by_hand_is_told_when_it_is_gone() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    assert FINALIZER in stage.pool()["metadata"]["finalizers"]
    stage.api.up = False
    del stage.cluster.objects[Resource.POOLS, "chat"]
    assert stage.reconciler is not None
    assert await stage.reconciler.finalize() is None
    assert await stage.round() == SETTINGS.pace.settled, "it is tried again"
    stage.api.up = True
    assert await stage.round() is None
    assert stage.api.deleted == [KEY]
    assert await stage.round() is None
    assert stage.api.deleted == [KEY], "once"


async def test_a_namesake_that_is_there_already_is_not_told_as_gone() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    former = stage.reconciler
    assert former is not None
    assert await former.report_deletion() is None
    assert stage.api.deleted == []

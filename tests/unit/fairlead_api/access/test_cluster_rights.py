"""Roles of people of the cluster, derived from its RBAC."""

from datetime import UTC, datetime, timedelta

import pytest

from fairlead_api.access.cluster_rights import FRESH, KEPT, ClusterRights, ClusterUser, Granted
from fairlead_api.infra.errors import ClusterUnavailable
from fairlead_client.resources.access import AccessRole

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ADA = ClusterUser(name="ada", groups=("dev",))


class Cluster:
    """A cluster that allows (verb, subresource, namespace), and counts the reviews."""

    def __init__(self, *allowed: tuple[str, str, str]) -> None:
        self.allowed = set(allowed)
        self.asked = 0
        self.away = False

    async def user_of(self, token: str) -> ClusterUser | None:
        return ADA

    async def allows(self, user: ClusterUser, verb: str, subresource: str, namespace: str) -> bool:
        self.asked += 1
        if self.away:
            raise ClusterUnavailable("away")
        return (verb, subresource, namespace) in self.allowed


def rights(cluster: Cluster) -> ClusterRights:
    async def namespaces() -> list[str]:
        return ["b", "a", "c"]

    return ClusterRights(cluster, namespaces)


async def granted(cluster: Cluster) -> Granted:
    return await rights(cluster).of(ADA, NOW)


async def test_nobody_has_rights_whom_the_cluster_gives_none() -> None:
    found = await granted(Cluster())
    assert (found.role, found.namespaces) == (AccessRole.NONE, {})


async def test_a_role_for_the_whole_cluster_needs_no_question_about_namespaces() -> None:
    cluster = Cluster(("patch", "", ""))
    assert (await granted(cluster)).role is AccessRole.ADMIN
    assert cluster.asked == 1


async def test_roles_of_namespaces_are_kept_where_they_are_higher() -> None:
    everywhere = ("list", "", "")
    in_namespaces = [("patch", "", "a"), ("patch", "scale", "b"), ("list", "", "b"), ("list", "", "c")]
    found = await granted(Cluster(everywhere, *in_namespaces))
    assert (found.role, found.namespaces) == (AccessRole.VIEWER, {"a": AccessRole.ADMIN, "b": AccessRole.OPERATOR})


async def test_rights_taken_away_end_within_seconds_and_are_kept_for_a_while_when_the_cluster_is_away() -> None:
    cluster = Cluster(("patch", "", ""))
    asking = rights(cluster)
    assert (await asking.of(ADA, NOW)).role is AccessRole.ADMIN
    cluster.allowed.clear()
    assert (await asking.of(ADA, NOW + FRESH / 2)).role is AccessRole.ADMIN
    assert (await asking.of(ADA, NOW + FRESH)).role is AccessRole.NONE
    cluster.away = True
    assert (await asking.of(ADA, NOW + FRESH + KEPT)).role is AccessRole.NONE
    with pytest.raises(ClusterUnavailable):
        await asking.of(ADA, NOW + FRESH + KEPT + timedelta(seconds=1))

"""How the operator interprets the Kubernetes API's answers."""

from typing import Any, cast

import pytest

from fairlead_operator.cluster import ClusterRefused, HttpCluster, Resource
from fairlead_process.kubernetes_api import KubernetesApi

POD = {"metadata": {"name": "chat-b1", "namespace": "default"}}


class Refusing:
    """An API that refuses every call with a 409 of this reason."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    async def call(self, method: str, path: str, *, absent: int | None = None, **rest: Any) -> None:
        if absent != 409:
            raise ClusterRefused(409, self.reason, f"{method} {path}: 409")


def refusing(reason: str) -> HttpCluster:
    return HttpCluster(cast(KubernetesApi, Refusing(reason)))


async def test_what_exists_is_not_created_again() -> None:
    assert not await refusing("AlreadyExists").create(Resource.PODS, "default", POD)


async def test_a_creation_that_meets_another_at_the_quota_is_refused_and_not_taken_for_done() -> None:
    with pytest.raises(ClusterRefused, match="409"):
        await refusing("Conflict").create(Resource.PODS, "default", POD)

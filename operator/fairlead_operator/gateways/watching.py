"""Reads the statuses that gateways write on pools, and the InferenceObjectives, and wakes the workers of pools for
which something changed.

This module polls every two seconds and does not watch, because kopf ends its process if it may not watch a kind, and a
cluster may lack such a kind until gateways are installed. It does nothing while no pool has `spec.gateway`.
"""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from fairlead.instance_marks import POOL_LABEL
from fairlead.tables import PoolKey
from fairlead_operator.cluster import ClusterError, Resource
from fairlead_operator.gateways.finding import FindsObjects, find_known, find_objectives
from fairlead_operator.gateways.manifests import SERVICE_LABEL
from fairlead_operator.gateways.objectives import is_of
from fairlead_operator.settings import ServiceName

logger = logging.getLogger(__name__)

_NO_SUCH_KIND = "no such kind"


class GatewayNews:
    """The pools of this operator that have `spec.gateway`. For each of them, the gateway statuses and objectives are
    kept as they were last read.
    """

    def __init__(self) -> None:
        self._seen: dict[PoolKey, str | None] = {}

    def note(self, pool: PoolKey, *, wants: bool) -> None:
        """Record, after a pool's round, whether the pool has `spec.gateway` (`wants`)."""
        if wants:
            self._seen.setdefault(pool, None)
        else:
            self._seen.pop(pool, None)

    async def look(self, cluster: FindsObjects, routers: ServiceName | None, wake: Callable[[PoolKey], None]) -> None:
        """Read gateways' statuses and objectives once, and wake the workers of pools for which something changed.
        `routers` is the routers' Service. Raises ClusterError.
        """
        by_namespace: defaultdict[str, list[PoolKey]] = defaultdict(list)
        for pool in self._seen:
            by_namespace[pool.namespace].append(pool)
        addresses = await _addresses(cluster, routers) if routers is not None and by_namespace.keys() - {routers.namespace} else ""
        for namespace, pools in by_namespace.items():
            found, objectives = await _found(cluster, namespace), await find_objectives(cluster, namespace)
            for pool in pools:
                shown = _NO_SUCH_KIND if found is None else found.get(pool.name)
                asked = [[one["metadata"]["name"], one["spec"]] for one in objectives if is_of(one, pool.name)]
                essence = json.dumps([addresses, shown, asked], sort_keys=True)
                if pool in self._seen and self._seen[pool] != essence:
                    self._seen[pool] = essence
                    wake(pool)

    async def watch(self, cluster: FindsObjects, routers: ServiceName | None, wake: Callable[[PoolKey], None], seconds: float) -> None:
        """Call `look` forever, with pauses of `seconds`."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.look(cluster, routers, wake)
            except ClusterError as error:
                logger.warning("gateways cannot be read", extra={"error": str(error)})
            except Exception:  # one bad answer must not end the looking
                logger.exception("reading gateways failed because of a bug")


async def _addresses(cluster: FindsObjects, routers: ServiceName) -> str:
    slices = await cluster.find(Resource.ENDPOINT_SLICES, routers.namespace, f"{SERVICE_LABEL}={routers.name}")
    return json.dumps([[one.get("endpoints"), one.get("ports")] for one in slices], sort_keys=True)


async def _found(cluster: FindsObjects, namespace: str) -> Mapping[str, object] | None:
    """Return the relevant parts of a namespace's GAIE InferencePools, by pool name; None if the cluster has no such
    kind.
    """
    documents = await find_known(cluster, Resource.GATEWAY_POOLS, namespace, POOL_LABEL)
    return None if documents is None else {one["metadata"]["name"]: _essence(one) for one in documents}


def _essence(document: Mapping[str, Any]) -> object:
    metadata = document["metadata"]
    return [
        metadata.get("generation"),
        metadata.get("labels"),
        metadata.get("ownerReferences"),
        (document.get("status") or {}).get("parents"),
    ]

"""Leader election: only the operator that holds the Lease acts; all others watch the Lease and wait.

Clocks of different machines are never compared. The holder measures from the moment it sent its last successful
renewal, and stops acting after two thirds of the Lease's duration. All others measure from the moment they saw that
renewal, and take over after the whole duration.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from fairlead_operator.cluster import Cluster, ClusterError, ClusterRefused, ClusterUnavailable, Resource
from fairlead_operator.settings import LeaseSettings
from fairlead_operator.times import format_time

logger = logging.getLogger(__name__)


class Lease:
    """The Lease object and this operator's hold on it.

    `monotonic` counts seconds and never goes back; `clock` gives Unix seconds, for people.
    """

    def __init__(
        self, settings: LeaseSettings, identity: str, cluster: Cluster, monotonic: Callable[[], float], clock: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._cluster = cluster
        self._monotonic = monotonic
        self._clock = clock
        self._held_until: float | None = None
        self._seen: tuple[object, ...] = ()
        self._seen_at = 0.0
        self.holder = ""
        """The holder of the Lease when it was last read; empty if nobody held it."""
        self.problem = ""
        """The reason why the last attempt to take or renew the Lease failed; empty if the attempt succeeded."""

    @property
    def hold_seconds(self) -> float:
        """Seconds for which the holder may act after it sent a renewal."""
        return self._settings.seconds * 2 / 3

    @property
    def seconds_left(self) -> float:
        """Seconds for which this operator may still act without another renewal; 0 if it may not act."""
        return 0.0 if self._held_until is None else max(0.0, self._held_until - self._monotonic())

    def is_held(self) -> bool:
        """Return whether this operator may act now."""
        return self.seconds_left > 0

    async def hold(self) -> bool:
        """Take or renew the Lease if nobody else holds it.

        Returns whether this operator now holds the Lease. Raises ClusterError; the present hold is then unchanged.
        """
        began = self._monotonic()
        found = await self._cluster.get(Resource.LEASES, self._settings.namespace, self._settings.name)
        if found is None:
            taken = await self._cluster.create(Resource.LEASES, self._settings.namespace, self._fresh()) is not None
        elif self._is_anothers(found):
            taken = False
        else:
            taken = await self._write(found, self._claim(found))
        if taken:
            self.holder = self._identity
        self._held_until = began + self.hold_seconds if taken else None
        return taken

    async def release(self) -> None:
        """Release the Lease, so that the next operator takes it at once. Raises ClusterError."""
        held, self._held_until = self._held_until is not None, None
        found = await self._cluster.get(Resource.LEASES, self._settings.namespace, self._settings.name) if held else None
        if found is not None and (found.get("spec") or {}).get("holderIdentity") == self._identity:
            await self._write(found, {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": format_time(self._clock())})

    def _is_anothers(self, found: dict[str, Any]) -> bool:
        """Return whether another operator holds the Lease and renewed it within its duration, as observed by this
        operator.
        """
        spec = found.get("spec") or {}
        record = (spec.get("holderIdentity"), spec.get("acquireTime"), spec.get("renewTime"), spec.get("leaseTransitions"))
        if record != self._seen:
            self._seen, self._seen_at = record, self._monotonic()
        self.holder = spec.get("holderIdentity") or ""
        duration = float(spec.get("leaseDurationSeconds") or self._settings.seconds)
        return self.holder not in {"", self._identity} and self._monotonic() - self._seen_at < duration

    def _claim(self, found: dict[str, Any]) -> dict[str, Any]:
        spec, now = found.get("spec") or {}, format_time(self._clock())
        claim: dict[str, Any] = {"leaseDurationSeconds": self._settings.seconds, "renewTime": now}
        if spec.get("holderIdentity") != self._identity:
            transitions = int(spec.get("leaseTransitions") or 0) + 1
            claim |= {"holderIdentity": self._identity, "acquireTime": now, "leaseTransitions": transitions}
        return claim

    def _fresh(self) -> dict[str, Any]:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._settings.name, "namespace": self._settings.namespace},
            "spec": self._claim({}),
        }

    async def _write(self, found: dict[str, Any], spec: dict[str, Any]) -> bool:
        """Write the Lease if it is unchanged since it was read. Return whether it was written. If two operators try at
        the same time, only one of them succeeds.
        """
        body = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "spec": spec}
        try:
            return await self._cluster.patch(Resource.LEASES, self._settings.namespace, self._settings.name, body)
        except ClusterRefused as error:
            if error.status == 409:
                return False
            raise


class FencedCluster:
    """A cluster client that lets only the holder of the Lease make changes. If an operator was suspended and lost the
    Lease, its next write is refused here.
    """

    def __init__(self, cluster: Cluster, lease: Lease) -> None:
        self._cluster = cluster
        self._lease = lease

    async def get(self, resource: Resource, namespace: str, name: str, *, subresource: str = "") -> dict[str, Any] | None:
        return await self._cluster.get(resource, namespace, name, subresource=subresource)

    async def find(self, resource: Resource, namespace: str, selector: str) -> list[dict[str, Any]]:
        return await self._cluster.find(resource, namespace, selector)

    async def create(self, resource: Resource, namespace: str, body: dict[str, Any]) -> dict[str, Any] | None:
        self._demand()
        return await self._cluster.create(resource, namespace, body)

    async def patch(self, resource: Resource, namespace: str, name: str, body: dict[str, Any], *, subresource: str = "") -> bool:
        self._demand()
        return await self._cluster.patch(resource, namespace, name, body, subresource=subresource)

    async def apply(self, resource: Resource, namespace: str, body: dict[str, Any], *, force: bool) -> dict[str, Any]:
        self._demand()
        return await self._cluster.apply(resource, namespace, body, force=force)

    async def delete(self, resource: Resource, namespace: str, name: str) -> bool:
        self._demand()
        return await self._cluster.delete(resource, namespace, name)

    def _demand(self) -> None:
        if not self._lease.is_held():
            raise ClusterUnavailable("this operator no longer holds the Lease; another operator continues")


class LeaderElection:
    """Takes and renews the Lease, and continues after any error; `lease` remembers the last error."""

    def __init__(self, lease: Lease, retry_seconds: float) -> None:
        self._lease = lease
        self._retry_seconds = retry_seconds

    async def win(self) -> None:
        """Wait until this operator holds the Lease."""
        while True:
            await self._try()
            if self._lease.is_held():
                logger.info("leading: this operator holds the lease and acts")
                return
            await asyncio.sleep(self._retry_seconds)

    async def lead(self) -> None:
        """Renew the Lease; returns when it is lost."""
        while self._lease.is_held():
            await asyncio.sleep(min(self._retry_seconds, self._lease.seconds_left))
            await self._try()
        logger.warning("standby: the lease is lost", extra={"holder": self._lease.holder or None})

    async def _try(self) -> None:
        """Try once to take or renew the Lease.

        If this operator holds the Lease, the attempt ends at the latest when the hold ends, because the operator must
        then stop acting. Otherwise it ends after at most `hold_seconds`, because a later success would be of no use.
        """
        try:
            async with asyncio.timeout(self._lease.seconds_left or self._lease.hold_seconds):
                await self._lease.hold()
            self._lease.problem = ""
        except (ClusterError, TimeoutError) as error:
            problem = str(error) or "no answer in time"
            if problem != self._lease.problem:
                logger.warning("lease not renewed", extra={"error": problem})
            self._lease.problem = problem

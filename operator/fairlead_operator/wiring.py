"""Putting the operator together: the only place that makes connections, clocks, ids and chance."""

import asyncio
import contextlib
import logging
import os
import random
import socket
import time
import uuid
from collections.abc import Iterator
from typing import Protocol

import kopf

from fairlead.errors import InvalidInput
from fairlead_client.internal import SystemApi
from fairlead_operator.backoff import ServerBackoff
from fairlead_operator.cluster import ClusterError, ClusterUnavailable, HttpCluster
from fairlead_operator.control_plane import PacedControlPlane
from fairlead_operator.filtering import ChildChanges
from fairlead_operator.health import Health
from fairlead_operator.leader_election import FencedCluster, LeaderElection, Lease
from fairlead_operator.manifests import POOL_LABEL
from fairlead_operator.queues import PoolQueues
from fairlead_operator.reconciling import Dependencies, PoolReconciler
from fairlead_operator.settings import OperatorSettings, read_settings
from fairlead_process.policies import installed_policies

logger = logging.getLogger(__name__)

_RELEASE_SECONDS = 2.0


class ServesPools(Protocol):
    """What is waited for at the start."""

    async def serves_pools(self) -> bool:
        """Whether the server answers and knows our resource. Raises ClusterError."""


class EndlessPauses:
    """ServerBackoff between a framework's retries at one request: an outage of any length must not end the operator."""

    def __iter__(self) -> Iterator[float]:
        """1, 2, 4, … seconds, then 15 for ever."""
        pause = 1.0
        while True:
            yield pause
            pause = min(15.0, pause * 2)


def new_id() -> str:
    """A random id for an Event's name."""
    return uuid.uuid4().hex[:16]


async def start(memo: kopf.Memo, kopf_settings: kopf.OperatorSettings) -> None:
    """Read the settings, connect, wait for the Kubernetes API, and put what handlers need into `memo`.

    Raises PermanentError with one line, which ends the process.
    """
    memo.closing = contextlib.AsyncExitStack()
    try:
        settings = read_settings(os.environ)
        cluster = await HttpCluster.connect(settings.kubeconfig)
        health = Health()
        if settings.health_port:
            await health.serve(settings.health_host, settings.health_port)
    except (InvalidInput, ClusterUnavailable, OSError) as error:
        raise kopf.PermanentError(str(error)) from error
    memo.closing.push_async_callback(health.close)
    memo.closing.push_async_callback(cluster.close)
    try:
        await wait_for_kubernetes(cluster, health)
        await _configure(kopf_settings, settings, cluster)
    except asyncio.CancelledError:  # told to stop while waiting: the framework does not call `stop` then
        await stop(memo)
        raise
    _act(memo, settings, cluster, health)


def _act(memo: kopf.Memo, settings: OperatorSettings, cluster: HttpCluster, health: Health) -> None:
    """Make the queues, and try for the Lease; they act while it is held."""
    closing: contextlib.AsyncExitStack = memo.closing
    identity = settings.identity or f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
    lease = Lease(settings.lease, identity, cluster, time.monotonic, time.time)
    place = settings.control_plane
    api = SystemApi(place.url, place.token, timeout_seconds=place.timeout_seconds, connect_seconds=1.0)
    backoff = ServerBackoff(settings.pace.longest_pause, time.monotonic, random.random)
    memo.children = ChildChanges()
    dependencies = Dependencies(
        settings=settings,
        cluster=FencedCluster(cluster, lease),
        control_plane=PacedControlPlane(api, backoff, place.calls_at_once),
        policies=installed_policies(),
        clock=time.time,
        new_id=new_id,
        child_changes=memo.children.count,
    )
    memo.queues = PoolQueues(lambda key: PoolReconciler(key, dependencies), settings.pace, random.random)
    health.watch(lease, memo.queues)
    election = LeaderElection(lease, settings.lease.retry_seconds, begin=memo.queues.begin, halt=memo.queues.halt)
    task = asyncio.create_task(election.run(), name="election")

    async def step_down() -> None:
        """Stop acting first, then let the next one have the Lease."""
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await memo.queues.halt()
        try:
            await asyncio.wait_for(lease.release(), _RELEASE_SECONDS)
        except (ClusterError, TimeoutError) as error:
            logger.warning("lease not released, it runs out", extra={"error": str(error)})

    closing.push_async_callback(api.close)
    closing.push_async_callback(step_down)


async def wait_for_kubernetes(cluster: ServesPools, health: Health) -> None:
    """Until the Kubernetes API answers and knows our resource; says what it waits for in one line, with pauses of 1, 2, 4, … 15 seconds."""
    for pause in EndlessPauses():
        try:
            if await cluster.serves_pools():
                health.waiting_for = ""
                return
            health.waiting_for = "the CRD inferencepools.fairlead.dev; apply crds/"
        except ClusterError as error:
            health.waiting_for = f"the Kubernetes API; {error}"
        logger.warning("waiting", extra={"for": health.waiting_for, "next_look_seconds": pause})
        await asyncio.sleep(pause)


async def _configure(kopf_settings: kopf.OperatorSettings, settings: OperatorSettings, cluster: HttpCluster) -> None:
    """The framework only watches. It scans for new resources only with the right to; limited to namespaces, an operator needs no such right."""
    kopf_settings.peering.standalone = True
    kopf_settings.posting.enabled = False
    kopf_settings.watching.server_timeout = 300
    kopf_settings.networking.error_backoffs = EndlessPauses()
    for group, version, plural in (("", "v1", "pods"), ("", "v1", "services"), ("policy", "v1", "poddisruptionbudgets")):
        kopf_settings.watching.label_selectors[group, version, plural] = POOL_LABEL
    kopf_settings.scanning.disabled = bool(settings.namespaces)
    if not settings.namespaces:
        with contextlib.suppress(ClusterError):
            if not await cluster.may_list_definitions():
                logger.warning("no right to list CustomResourceDefinitions: one that is installed anew is noticed at the next start")
                kopf_settings.scanning.disabled = True


async def stop(memo: kopf.Memo) -> None:
    """Undo `start`, as far as it came."""
    await memo.closing.aclose()

"""Starts the operator. Only this module creates connections, clocks and random numbers.

Kopf begins to watch when its startup handlers return. The operator's startup handler returns when the operator holds
the Lease, so a standby watches nothing and writes nothing. An operator that loses the Lease stops kopf; `main` then
starts it again, as a standby.
"""

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
import time
import uuid
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol, cast

import aiohttp
import kopf

from fairlead import pool_roles
from fairlead.errors import InvalidInput
from fairlead.instance_marks import POOL_LABEL
from fairlead.pools import GROUP, VERSION
from fairlead.tables import PoolKey
from fairlead_client.internal import SystemApi
from fairlead_operator.backoff import ServerBackoff
from fairlead_operator.cluster import FIELD_MANAGER, ClusterError, ClusterUnavailable, HttpCluster
from fairlead_operator.control_plane import PacedControlPlane
from fairlead_operator.device_turns import DeviceTurns
from fairlead_operator.health import Health
from fairlead_operator.leader_election import FencedCluster, LeaderElection, Lease
from fairlead_operator.metrics import OperatorMetrics
from fairlead_operator.observing.nodes import LeavingNodes
from fairlead_operator.polling import UntoldDeletions
from fairlead_operator.pool_identity import PoolIdentity
from fairlead_operator.pool_worker import PoolWorker, PoolWorkers, Turns
from fairlead_operator.reconciling.dependencies import Dependencies
from fairlead_operator.reconciling.finalizing import FINALIZER
from fairlead_operator.reconciling.pool_reconciler import PoolReconciler
from fairlead_operator.settings import OperatorSettings, read_settings
from fairlead_operator.sleepers import HttpEngines
from fairlead_operator.watch_streams import EndlessPauses, Watches, take_whole_answers
from fairlead_process.clock import SteadyClock
from fairlead_process.kubernetes_api import open_session
from fairlead_process.policies import installed_policies


class NothingHandled(kopf.DiffBaseStorage):
    """A storage for kopf that stores nothing on pools.

    By default, kopf stores the last handled spec of an object in an annotation, to tell updates from creations. The
    operator does not need this, because every reconciliation reads the whole pool. The annotation would store each
    pool's spec a second time and cost a write per change.
    """

    def build(self, *, body: kopf.Body, extra_fields: object = None) -> kopf.BodyEssence:
        """Return an empty essence (the part of an object that kopf compares), because the operator does not let kopf
        compare objects. For a full essence, kopf would copy every object at every event.
        """
        return cast(kopf.BodyEssence, dict[str, Any]())

    def fetch(self, *, body: kopf.Body) -> None:
        """Return None: nothing was handled before."""

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Write nothing."""


logger = logging.getLogger(__name__)

_RELEASE_SECONDS = 2.0

_WATCHES = 7
"""Number of streams that kopf keeps open: of pools, their roles, pods, Services, budgets, definitions and namespaces.
"""


class ServesPools(Protocol):
    """The call by which the start of the operator checks whether the Kubernetes API is ready."""

    async def serves_pools(self) -> bool:
        """Return whether the server responds and knows Fairlead's resources. Raises ClusterError."""


def post_event(pool: PoolIdentity, *, type_: str, reason: str, message: str) -> None:
    """Have kopf post a Kubernetes Event about the pool. Kopf retries, and logs a warning when it gives up."""
    kopf.event(cast(kopf.Body, pool.reference()), type=type_, reason=reason, message=message)


async def start(memo: kopf.Memo, kopf_settings: kopf.OperatorSettings) -> None:
    """Read the settings, connect, wait for the Kubernetes API and the Lease; put the handlers' dependencies into
    `memo`.

    Raises PermanentError with one line, which ends the process.
    """
    memo.closing = contextlib.AsyncExitStack()
    try:
        settings = read_settings(os.environ)
        cluster = await HttpCluster.connect(settings.kubeconfig)
        health = Health(memo.get("metrics"))
        if settings.health_port:
            await health.serve(settings.health_host, settings.health_port)
    except (InvalidInput, ClusterUnavailable, OSError) as error:
        raise kopf.PermanentError(str(error)) from error
    memo.closing.push_async_callback(health.close)
    memo.closing.push_async_callback(cluster.close)
    try:
        await wait_for_kubernetes(cluster, health)
        await configure(kopf_settings, settings, cluster)
        lease = _lease(settings, cluster)
        memo.workers, watches = _pool_workers(memo, settings, FencedCluster(cluster, lease), health.metrics)
        health.watch(lease, memo.workers)
        election = LeaderElection(lease, settings.lease.retry_seconds)
        await election.win()
    except asyncio.CancelledError:  # told to stop while waiting: then kopf does not call `stop`
        await stop(memo)
        raise
    connections = settings.pace.reconciles_at_once + _WATCHES * max(1, len(settings.namespaces))
    memo.login = partial(log_in, settings.kubeconfig, connections, health.reads.trace)
    leading = asyncio.create_task(lead(election, memo), name="leading")
    memo.closing.push_async_callback(_step_down, leading, lease)
    for name, watch in watches.items():
        watching = asyncio.create_task(watch(), name=name)
        memo.closing.callback(watching.cancel)


def _lease(settings: OperatorSettings, cluster: HttpCluster) -> Lease:
    identity = settings.identity or f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
    return Lease(settings.lease, identity, cluster, time.monotonic, SteadyClock())


def _pool_workers(
    memo: kopf.Memo, settings: OperatorSettings, cluster: FencedCluster, metrics: OperatorMetrics
) -> tuple[PoolWorkers, dict[str, Callable[[], Coroutine[Any, Any, None]]]]:
    """Return an empty collection of pools' workers, and a mapping from names to loops. The loops wake workers after
    changes that no Kubernetes event reports: requests held for pools at zero, gateways' statuses, nodes that are taken
    away, and deleted pools that the control API still knows.
    """
    place = settings.control_plane
    api = SystemApi(place.urls, place.token, timeout_seconds=place.timeout_seconds, connect_seconds=1.0)
    memo.closing.push_async_callback(api.close)
    policies = installed_policies()
    policies.entry("fairlead")  # loads numpy while this is a standby: a leader that imports for a second renews no Lease
    backoff = ServerBackoff(settings.pace.longest_pause, time.monotonic, random.random)
    control_plane = PacedControlPlane(api, backoff, place.calls_at_once)
    engines = HttpEngines()
    memo.closing.push_async_callback(engines.close)
    dependencies = Dependencies(
        settings=settings,
        cluster=cluster,
        control_plane=control_plane,
        policies=policies,
        clock=SteadyClock(),
        post_event=post_event,
        nodes=LeavingNodes(settings.leaving_nodes),
        engines=engines,
        turns=DeviceTurns(metrics.waiting, settings.pace.longest_unread),
    )
    turns = Turns(pace=settings.pace, places=asyncio.Semaphore(settings.pace.reconciles_at_once), chance=random.random, metrics=metrics)

    workers = PoolWorkers(lambda pool: PoolWorker(PoolReconciler(pool, dependencies), str(pool), turns))

    def wake(pool: PoolKey) -> None:
        for worker in workers.of(pool):
            worker.wake()

    dependencies.turns.wake = wake
    deletions = UntoldDeletions(settings.namespaces, settings.pace.longest_unread)
    watches: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "sleeping pools": partial(dependencies.sleeping.watch, control_plane, wake, settings.pace.busy),
        "gateways": partial(dependencies.gateways.watch, cluster, settings.picker.service, wake, settings.pace.gateways),
        "nodes": partial(dependencies.nodes.watch, cluster, wake, settings.pace.nodes),
        "deletions": partial(deletions.watch, control_plane, cluster, settings.pace.deletions),
    }
    return workers, watches


class Leads(Protocol):
    """The renewal of the Lease."""

    async def lead(self) -> None:
        """Renew the Lease; returns when it is lost."""


async def lead(election: Leads, memo: kopf.Memo) -> None:
    """Renew the Lease as long as it is held, then stop kopf.

    Until kopf has stopped, FencedCluster blocks its writes. A signal stops kopf and the process. It stops the process
    even if kopf is already stopping because the Lease was lost; without the handler here, kopf would ignore the signal
    then.
    """

    def end() -> None:
        memo.is_ended = True
        memo.stop_flag.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, end)
    await election.lead()
    memo.stop_flag.set()


async def _step_down(leading: asyncio.Task[None], lease: Lease) -> None:
    """Release the Lease for the next operator, after all work has stopped."""
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
    try:
        await asyncio.wait_for(lease.release(), _RELEASE_SECONDS)
    except (ClusterError, TimeoutError) as error:
        logger.warning("lease not released; it expires after its duration", extra={"error": str(error)})


async def wait_for_kubernetes(cluster: ServesPools, health: Health) -> None:
    """Wait until the Kubernetes API responds and knows Fairlead's resources. Log the cause of the wait in one line, and
    pause 1, 2, 4, … 15 seconds between attempts.
    """
    for pause in EndlessPauses():
        try:
            if await cluster.serves_pools():
                health.waiting_for = ""
                return
            health.waiting_for = "the CRDs inferencepools and inferencepoolroles.fairlead.dev; apply crds/"
        except ClusterError as error:
            health.waiting_for = f"the Kubernetes API; {error}"
        logger.warning("waiting", extra={"for": health.waiting_for, "next_look_seconds": pause})
        await asyncio.sleep(pause)


async def configure(kopf_settings: kopf.OperatorSettings, settings: OperatorSettings, cluster: HttpCluster) -> None:
    """Configure kopf.

    Kopf scans for new resources only if the operator has the right to; an operator limited to namespaces needs no such
    right.
    """
    kopf_settings.peering.standalone = True
    kopf_settings.persistence.finalizer = FINALIZER
    kopf_settings.persistence.diffbase_storage = NothingHandled()
    kopf_settings.persistence.progress_storage = kopf.AnnotationsProgressStorage()  # only after a bug: no handler of ours asks for a retry
    kopf_settings.background.instant_exit_zero_time_cycles = (
        100  # a cancelled call ends within; a daemon that is late costs the pool a write
    )
    kopf_settings.queueing.exit_timeout = 0.5
    kopf_settings.posting.loggers = False
    kopf_settings.posting.reporting_component = f"{GROUP}/operator"
    kopf_settings.posting.reporting_instance = FIELD_MANAGER
    kopf_settings.posting.event_name_prefix = "fairlead-"
    kopf_settings.watching.server_timeout = 300
    kopf_settings.networking.error_backoffs = EndlessPauses()
    ours = (GROUP, VERSION, pool_roles.PLURAL)
    for group, version, plural in (("", "v1", "pods"), ("", "v1", "services"), ("policy", "v1", "poddisruptionbudgets"), ours):
        kopf_settings.watching.label_selectors[group, version, plural] = POOL_LABEL
    kopf_settings.scanning.disabled = bool(settings.namespaces)
    if not settings.namespaces:
        with contextlib.suppress(ClusterError):
            if not await cluster.may_list_definitions():
                logger.warning("no right to list CustomResourceDefinitions: a new resource kind is noticed only at the next start")
                kopf_settings.scanning.disabled = True


async def log_in(kubeconfig: str | None, connections: int, trace: aiohttp.TraceConfig) -> kopf.AiohttpSession:
    """Create kopf's HTTP session, with at most `connections` connections; it reports its requests to `trace`.

    A session created by kopf has no bound. If many pools appear at once, it opens a connection for each of them, and
    the renewal of the Lease would have to wait for all of these.
    """
    server, session = await open_session(kubeconfig, connections, trace, middlewares=(Watches(asyncio.sleep), take_whole_answers))
    return kopf.AiohttpSession(server=server, aiohttp_session=session)


async def stop(memo: kopf.Memo) -> None:
    """Undo those steps of `start` that were carried out."""
    await memo.closing.aclose()

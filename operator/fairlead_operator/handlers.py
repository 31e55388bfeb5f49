"""The handlers that kopf calls, a few lines each.

A daemon reconciles each pool, and the deletion handler finalizes it; kopf adds and removes the finalizer. Events of
pods and of other children wake the pool's worker. Events of the operator's own writes (status, annotations) are
ignored, because otherwise every step would cause the next. For that purpose, the relevant parts of each object (its
essence) are kept in kopf's memo of the object, which disappears with the object.

The handlers contain no other logic, because it could only be tested with kopf.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import kopf

from fairlead.instance_marks import CORDONED_ANNOTATION, DRAIN_ANNOTATION, WEIGHT_ANNOTATION
from fairlead.pool_roles import PLURAL as ROLES
from fairlead.pools import GROUP, PLURAL, VERSION
from fairlead.tables import PoolKey
from fairlead_operator.observing.lost_marks import marks_shown, pool_of
from fairlead_operator.observing.pods import pod_health, trouble_of
from fairlead_operator.pool_worker import PoolWorker
from fairlead_operator.startup import start, stop

POOLS = (GROUP, VERSION, PLURAL)


@kopf.on.startup()
async def started(memo: kopf.Memo, settings: kopf.OperatorSettings, **_: Any) -> None:
    """Wait for the Kubernetes API and for the Lease; kopf watches nothing until this returns."""
    await start(memo, settings)


@kopf.on.login()
async def logged_in(memo: kopf.Memo, **_: Any) -> kopf.AiohttpSession:
    """Give kopf a session with the operator's credentials and a bounded number of connections."""
    session: kopf.AiohttpSession = await memo.login()
    return session


@kopf.on.cleanup()
async def stopped(memo: kopf.Memo, **_: Any) -> None:
    """Release the Lease and close the connections."""
    await stop(memo)


def worker_of(body: kopf.Body, memo: kopf.Memo) -> PoolWorker:
    """Return the worker of the pool to which `memo` belongs; it is created at the pool's first event."""
    if "worker" not in memo:
        memo.worker = memo.workers.add(_key(body))
    worker: PoolWorker = memo.worker
    return worker


@kopf.daemon(*POOLS, cancellation_timeout=5.0)
async def reconciled(body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    """Reconcile the pool's instances with its spec as long as the pool lives.

    Kopf cancels this daemon when the pool is deleted.
    """
    with contextlib.suppress(asyncio.CancelledError):
        await worker_of(body, memo).run()


@kopf.on.delete(*POOLS)
async def finalized(body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    """Drain the deleted pool's instances and report the deletion to the control API; then kopf removes the
    finalizer.
    """
    await worker_of(body, memo).finalize()


@kopf.on.event(*POOLS)
async def changed(event: kopf.RawEvent, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    """Wake the pool's worker. If the pool was deleted, report its deletion to the control API.

    The report also covers two pools that the finalizer could not report: a pool that disappeared while the control API
    was unreachable, and a pool whose finalizer somebody had removed. It is repeated until the API accepts it.
    """
    worker = worker_of(body, memo)
    if is_news(memo, event, pool_essence):
        worker.wake()
    if event["type"] == "DELETED":
        memo.workers.remove(_key(body), worker)
        await worker.report_deletion()


def of_a_pool(meta: kopf.Meta, **_: Any) -> bool:
    """Return whether an object belongs to a pool, even if somebody removed or changed its label."""
    return pool_of(meta) is not None


@kopf.on.event("", "v1", "pods", when=of_a_pool)
async def pod_changed(event: kopf.RawEvent, memo: kopf.Memo, namespace: str | None, meta: kopf.Meta, **_: Any) -> None:
    """Wake the worker of a pool whose pod was added, modified or deleted."""
    if is_news(memo, event, pod_essence):
        for worker in memo.workers.of(PoolKey(namespace=namespace or "", name=pool_of(meta) or "")):
            worker.wake()


@kopf.on.event("", "v1", "services", when=of_a_pool)
@kopf.on.event("policy", "v1", "poddisruptionbudgets", when=of_a_pool)
@kopf.on.event(GROUP, VERSION, ROLES, when=of_a_pool)
async def child_changed(event: kopf.RawEvent, memo: kopf.Memo, namespace: str | None, meta: kopf.Meta, **_: Any) -> None:
    """Let the pool's worker check its Service, budgets and role objects after one of these objects changed.

    Scaling an InferencePoolRole is such a change.
    """
    if is_news(memo, event, child_essence):
        for worker in memo.workers.of(PoolKey(namespace=namespace or "", name=pool_of(meta) or "")):
            worker.children_changed()


def _key(body: kopf.Body) -> PoolKey:
    return PoolKey(namespace=body.metadata["namespace"], name=body.metadata["name"])


Document = Mapping[str, Any]


def is_news(memo: kopf.Memo, event: kopf.RawEvent, essence: Callable[[Document], Hashable]) -> bool:
    """Return whether the object was deleted, or its `essence` differs from the last one seen."""
    seen, memo.seen = memo.get("seen"), essence(event["object"])
    return event["type"] == "DELETED" or memo.seen != seen


def pool_essence(pool: Document) -> Hashable:
    """Return the parts of a pool that matter: spec, deletion, finalizers, labels and annotations."""
    metadata = pool["metadata"]
    return (
        metadata.get("generation"),
        metadata.get("deletionTimestamp"),
        tuple(metadata.get("finalizers") or ()),
        tuple(sorted((metadata.get("labels") or {}).items())),
        tuple(sorted((metadata.get("annotations") or {}).items())),
    )


def pod_essence(pod: Document) -> Hashable:
    """Return the parts of a pod that matter: health, reasons that keep it from running, address, restarts, people's
    marks, deletion, and whether it has the operator's marks.
    """
    status = pod.get("status") or {}
    restarts = sum(int(container.get("restartCount") or 0) for container in status.get("containerStatuses") or [])
    trouble = trouble_of(pod["metadata"]["name"], status)
    annotations = pod["metadata"].get("annotations") or {}
    asked = tuple(annotations.get(name) for name in (CORDONED_ANNOTATION, DRAIN_ANNOTATION, WEIGHT_ANNOTATION))
    deleted = bool(pod["metadata"].get("deletionTimestamp"))
    marks = marks_shown(pod["metadata"])
    return (pod_health(status), trouble and trouble.reason, status.get("podIP"), restarts, asked, deleted, marks)


def child_essence(child: Document) -> Hashable:
    """Return the parts of a Service or PodDisruptionBudget that matter: spec, labels and owners, not status."""
    metadata = child["metadata"]
    return json.dumps([child.get("spec"), metadata.get("labels"), metadata.get("ownerReferences")], sort_keys=True)

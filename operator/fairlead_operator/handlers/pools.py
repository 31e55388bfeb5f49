"""Pools: a daemon reconciles each one, the deletion handler finalizes it. Kopf adds and removes the finalizer."""

import asyncio
import contextlib
from typing import Any, cast

import kopf

from fairlead.pools import GROUP, PLURAL, VERSION
from fairlead.tables import PoolKey
from fairlead_operator.filtering import is_news, pool_essence
from fairlead_operator.pool_worker import PoolWorker
from fairlead_operator.reconciling.finalizing import FINALIZER, FORMER_FINALIZER, drop_former_finalizer, has_finalizer

POOLS = (GROUP, VERSION, PLURAL)


def worker_of(body: kopf.Body, memo: kopf.Memo) -> PoolWorker:
    """The worker of the pool with this memo, created at the pool's first event."""
    if "worker" not in memo:
        memo.worker = memo.workers.add(_key(body))
    worker: PoolWorker = memo.worker
    return worker


@kopf.daemon(*POOLS, cancellation_timeout=5.0)
async def reconciled(body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    """Reconcile the pool's instances with its spec as long as the pool lives.

    Kopf cancels this when the pool is deleted.
    """
    with contextlib.suppress(asyncio.CancelledError):
        await worker_of(body, memo).run()


@kopf.on.delete(*POOLS)
async def finalized(body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    """Drain the deleted pool's instances and tell the control API; then kopf lets the pool go."""
    await worker_of(body, memo).finalize()


@kopf.on.event(*POOLS)
async def changed(event: kopf.RawEvent, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    """Wake the pool's worker.

    A pool that went while the control API was away, or without its finalizer, is reported as soon as the API answers.
    """
    worker = worker_of(body, memo)
    if is_news(memo, event, pool_essence):
        worker.wake()
    if event["type"] == "DELETED":
        memo.workers.remove(_key(body), worker)
        await worker.report_deletion()


@kopf.on.event(*POOLS, when=lambda body, **_: has_finalizer(body, FORMER_FINALIZER))
async def upgraded(body: kopf.Body, patch: kopf.Patch, memo: kopf.Memo, **_: Any) -> None:
    """Replace the former finalizer by the new one.

    A pool that is being deleted cannot get a new finalizer: it is finalized under the former one.
    """
    if body.metadata.get("deletionTimestamp") and not has_finalizer(body, FINALIZER):
        await worker_of(body, memo).finalize()
    patch.fns.append(lambda pool: drop_former_finalizer(cast(dict[str, Any], pool)))


def _key(body: kopf.Body) -> PoolKey:
    return PoolKey(namespace=body.metadata["namespace"], name=body.metadata["name"])

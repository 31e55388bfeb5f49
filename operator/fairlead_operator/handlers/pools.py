"""Pools: a daemon reconciles each one, the deletion handler finalizes it. Kopf adds and removes the finalizer."""

import asyncio
import contextlib
from typing import Any, cast

import kopf

from fairlead.pools import GROUP, PLURAL, VERSION
from fairlead_operator.filtering import is_news, pool_essence
from fairlead_operator.pool_worker import PoolWorker
from fairlead_operator.reconciling.finalizing import FINALIZER, FORMER_FINALIZER, drop_former_finalizer, has_finalizer

POOLS = (GROUP, VERSION, PLURAL)


@kopf.index(*POOLS)
async def workers(namespace: str | None, name: str, memo: kopf.Memo, **_: Any) -> dict[tuple[str | None, str], PoolWorker]:
    """The worker of every pool, for the events of its instances and children.

    A pool and its namesake that is being deleted have one worker each. (Kopf would run a plain function in a thread.)
    """
    if "worker" not in memo:
        memo.worker = memo.make_worker(namespace, name)
    return {(namespace, name): memo.worker}


@kopf.daemon(*POOLS, cancellation_timeout=5.0)
async def reconciled(memo: kopf.Memo, **_: Any) -> None:
    """Reconcile the pool's instances with its spec as long as the pool lives.

    Kopf cancels this when the pool is deleted.
    """
    with contextlib.suppress(asyncio.CancelledError):
        await memo.worker.run()


@kopf.on.delete(*POOLS)
async def finalized(memo: kopf.Memo, **_: Any) -> None:
    """Drain the deleted pool's instances and tell the control API; then kopf lets the pool go."""
    await memo.worker.finalize()


@kopf.on.event(*POOLS)
async def changed(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Wake the pool's worker.

    A pool that was deleted while the control API was away is reported as soon as the API is back.
    """
    if is_news(memo, event, pool_essence):
        memo.worker.wake()
    if event["type"] == "DELETED":
        await memo.worker.report_deletion()


@kopf.on.event(*POOLS, when=lambda body, **_: has_finalizer(body, FORMER_FINALIZER))
async def upgraded(body: kopf.Body, patch: kopf.Patch, memo: kopf.Memo, **_: Any) -> None:
    """Replace the former finalizer by the new one.

    A pool that is being deleted cannot get a new finalizer: it is finalized under the former one.
    """
    if body.metadata.get("deletionTimestamp") and not has_finalizer(body, FINALIZER):
        await memo.worker.finalize()
    patch.fns.append(lambda pool: drop_former_finalizer(cast(dict[str, Any], pool)))

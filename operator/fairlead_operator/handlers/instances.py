"""Instances: a change of a pool's pod wakes the pool's worker."""

from typing import Any

import kopf

from fairlead.instance_marks import POOL_LABEL
from fairlead.tables import PoolKey
from fairlead_operator.filtering import is_news, pod_essence


@kopf.on.event("", "v1", "pods", labels={POOL_LABEL: kopf.PRESENT})
async def pod_changed(event: kopf.RawEvent, memo: kopf.Memo, namespace: str | None, labels: kopf.Labels, **_: Any) -> None:
    """Handle an added, modified or deleted object."""
    if is_news(memo, event, pod_essence):
        for worker in memo.workers.of(PoolKey(namespace=namespace or "", name=labels[POOL_LABEL])):
            worker.wake()

"""Instances: a change of a pool's pod wakes the pool's worker."""

from typing import Any

import kopf

from fairlead_operator.filtering import is_news, pod_essence
from fairlead_operator.manifests import POOL_LABEL
from fairlead_operator.pool_worker import NO_WORKERS, Workers


@kopf.on.event("", "v1", "pods", labels={POOL_LABEL: kopf.PRESENT})
async def pod_changed(
    event: kopf.RawEvent, memo: kopf.Memo, namespace: str | None, labels: kopf.Labels, workers: Workers = NO_WORKERS, **_: Any
) -> None:
    """Handle an added, modified or deleted object."""
    if is_news(memo, event, pod_essence):
        for worker in workers.get((namespace, labels[POOL_LABEL]), ()):
            worker.wake()

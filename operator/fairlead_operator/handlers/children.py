"""Children: a change of a pool's Service or PodDisruptionBudget wakes the pool's queue."""

from typing import Any

import kopf

from fairlead_operator.manifests import POOL_LABEL


@kopf.on.event("", "v1", "services", labels={POOL_LABEL: kopf.PRESENT})
@kopf.on.event("policy", "v1", "poddisruptionbudgets", labels={POOL_LABEL: kopf.PRESENT})
async def child_changed(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Added, modified or deleted."""
    memo.children.count_event(memo.queues, event["type"], event["object"])

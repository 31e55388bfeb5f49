"""Instances: a change of a pool's pod wakes the pool's queue."""

from typing import Any

import kopf

from fairlead_operator.filtering import filter_pod_event
from fairlead_operator.manifests import POOL_LABEL


@kopf.on.event("", "v1", "pods", labels={POOL_LABEL: kopf.PRESENT})
async def pod_changed(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Added, modified or deleted."""
    filter_pod_event(memo.queues, event["type"], event["object"])

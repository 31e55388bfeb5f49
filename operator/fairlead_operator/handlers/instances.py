"""Instances: every change of a pool's pod is noticed by the pool's loop."""

from typing import Any

import kopf

from fairlead_operator.children import POOL_LABEL
from fairlead_operator.noticing import notice_pod


@kopf.on.event("", "v1", "pods", labels={POOL_LABEL: kopf.PRESENT})
async def pod_changed(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Added, modified or deleted."""
    notice_pod(memo.loops, event["type"], event["object"])

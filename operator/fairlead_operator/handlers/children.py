"""Children: every change of a pool's Service and PodDisruptionBudget is noticed by the pool's loop."""

from typing import Any

import kopf

from fairlead_operator.children import POOL_LABEL


@kopf.on.event("", "v1", "services", labels={POOL_LABEL: kopf.PRESENT})
@kopf.on.event("policy", "v1", "poddisruptionbudgets", labels={POOL_LABEL: kopf.PRESENT})
async def child_changed(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Added, modified or deleted."""
    memo.children.notice(memo.loops, event["type"], event["object"])

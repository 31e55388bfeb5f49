"""Children: after a change of a pool's Service, budgets or roles, the pool's worker checks all of them.

A scaled InferencePoolRole is such a change.
"""

from typing import Any

import kopf

from fairlead.instance_marks import POOL_LABEL
from fairlead.pool_roles import PLURAL
from fairlead.pools import GROUP, VERSION
from fairlead.tables import PoolKey
from fairlead_operator.filtering import child_essence, is_news


@kopf.on.event("", "v1", "services", labels={POOL_LABEL: kopf.PRESENT})
@kopf.on.event("policy", "v1", "poddisruptionbudgets", labels={POOL_LABEL: kopf.PRESENT})
@kopf.on.event(GROUP, VERSION, PLURAL, labels={POOL_LABEL: kopf.PRESENT})
async def child_changed(event: kopf.RawEvent, memo: kopf.Memo, namespace: str | None, labels: kopf.Labels, **_: Any) -> None:
    """Handle an added, modified or deleted object."""
    if is_news(memo, event, child_essence):
        for worker in memo.workers.of(PoolKey(namespace=namespace or "", name=labels[POOL_LABEL])):
            worker.children_changed()

"""Pools: a change of a pool wakes its queue."""

from typing import Any

import kopf

from fairlead.pools import GROUP, PLURAL, VERSION
from fairlead_operator.filtering import filter_pool_event


@kopf.on.event(GROUP, VERSION, PLURAL)
async def pool_changed(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Added, modified or deleted."""
    filter_pool_event(memo.queues, event["type"], event["object"])

"""Pools: every change of one is noticed by its loop."""

from typing import Any

import kopf

from fairlead.pools import GROUP, PLURAL, VERSION
from fairlead_operator.noticing import notice_pool


@kopf.on.event(GROUP, VERSION, PLURAL)
async def pool_changed(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Added, modified or deleted."""
    notice_pool(memo.loops, event["type"], event["object"])

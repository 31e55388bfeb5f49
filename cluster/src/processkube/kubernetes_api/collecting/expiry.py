"""Removes old Events. Like the real server, this server drops an Event an hour after it was last written."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from processkube.kubernetes_api.objects.objects import Object, parse_timestamp
from processkube.kubernetes_api.writing.resources import Resources

EVENT_LIFETIME = timedelta(hours=1)
_SWEEP_SECONDS = 60.0


async def expire_events(resources: Resources) -> None:
    """Remove expired events once a minute. Must run as a task; it ends only when cancelled."""
    while True:
        sweep(resources)
        await asyncio.sleep(_SWEEP_SECONDS)


def sweep(resources: Resources) -> int:
    """Remove expired events. Return the number of removed events."""
    oldest = resources.clock() - EVENT_LIFETIME
    over = [stored for stored in resources.store.list("events") if _last_written(stored.object) < oldest]
    for stored in over:
        resources.store.remove("events", stored.namespace, stored.name)
    return len(over)


def _last_written(event: Object) -> datetime:
    entries = event["metadata"].get("managedFields", [])
    times = [entry["time"] for entry in entries if entry.get("time")]
    return parse_timestamp(max(times, default=event["metadata"]["creationTimestamp"]))

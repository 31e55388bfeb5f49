"""How the router's process shares its files and its memory, as its settings say."""

from __future__ import annotations

from fairlead_process.doors import DoorPlan
from fairlead_router.settings import RouterSettings

OPERATORS = DoorPlan(name="operators", wanted=64)
PICKER = DoorPlan(name="picker", wanted=1024)
PICKER_HEALTH = DoorPlan(name="picker health", wanted=64)
OTHER_ROUTERS = DoorPlan(name="other routers", wanted=256)
EVENT_SOURCES = "KV events"
FILES_OF_SOURCE = 4
"""Of ZMQ: its socket, the one that watches it, the connection, and a replay."""


def door_plans(settings: RouterSettings) -> tuple[DoorPlan, ...]:
    """The ports that connections come in by, that of clients first: each of them may need one to an engine. Beside them
    the sources of KV events, to which the router connects.
    """
    clients = DoorPlan(name="clients", wanted=settings.max_connections, files=2)
    health = () if settings.picker_health_port is None else (PICKER_HEALTH,)
    events = DoorPlan(name=EVENT_SOURCES, wanted=settings.kv_event_sources, files=FILES_OF_SOURCE)
    return clients, OPERATORS, OTHER_ROUTERS, events, *(() if settings.picker_port is None else (PICKER,)), *health

"""How the router's process shares its files and its memory, as its settings say."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead_process.doors import DoorPlan
from fairlead_router.serving.body_memory import BYTES_EACH, memory_for_bodies
from fairlead_router.settings import MEBIBYTE, RouterSettings

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


PROCESS_BYTES = 256 * MEBIBYTE
"""The process without a request: the interpreter and its libraries, tables, what is known of engines' caches."""
MOST_FOR_VALUES = 288 * MEBIBYTE
"""Reading a body of as many JSON values as one may have (`protocols.requests`)."""

REMEDY = (
    "give it more memory (`router.resources` of the chart), or set FAIRLEAD_MAX_BODY_BYTES, FAIRLEAD_MAX_UPLOAD_BYTES,"
    " FAIRLEAD_BODY_MEMORY_BYTES or FAIRLEAD_KEPT_PROMPTS_BYTES lower"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimits:
    """What takes the memory of a router's process in the worst case, in bytes; `available` is what it has."""

    process: int
    kept_prompts: int
    reading: int
    """Reading one body: bodies are read one after the other."""
    bodies: int
    """Bodies in progress, as counted."""
    largest: int
    available: int

    @property
    def worst_case(self) -> int:
        """All of it at once."""
        return self.process + self.kept_prompts + self.reading + int(BYTES_EACH * self.bodies)

    @property
    def fit(self) -> bool:
        """Whether the process has enough."""
        return self.worst_case <= self.available

    def shown(self) -> dict[str, int]:
        """In MiB, for the log."""
        return {
            "body_memory_mib": self.bodies // MEBIBYTE,
            "worst_case_mib": self.worst_case // MEBIBYTE,
            "available_mib": self.available // MEBIBYTE,
        }


def memory_limits(settings: RouterSettings, available: int) -> MemoryLimits:
    """The worst case by the settings, in a process that has `available` bytes."""
    largest = max(settings.max_body_bytes, settings.max_upload_bytes)
    reading = max(6 * settings.max_body_bytes, min(32 * settings.max_body_bytes, MOST_FOR_VALUES))
    besides = PROCESS_BYTES + settings.kept_prompts_bytes + reading
    return MemoryLimits(
        process=PROCESS_BYTES,
        kept_prompts=settings.kept_prompts_bytes,
        reading=reading,
        bodies=settings.body_memory_bytes or memory_for_bodies(largest, besides, available),
        largest=largest,
        available=available,
    )

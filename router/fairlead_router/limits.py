"""Divides the open files and the memory of a router process according to its settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from fairlead_process.doors import DoorPlan
from fairlead_router.serving.body_memory import BYTES_EACH, SHARE_OF_MEMORY, memory_for_bodies
from fairlead_router.settings import MEBIBYTE, Sizes

OPERATORS = DoorPlan(name="operators", wanted=64)
PICKER = DoorPlan(name="picker", wanted=1024)
PICKER_HEALTH = DoorPlan(name="picker health", wanted=64)
OTHER_ROUTERS = DoorPlan(name="other routers", wanted=256)
PUBLISHERS = DoorPlan(name="engines that publish KV events", wanted=1024)
EVENT_SOURCES = "KV events"
FILES_OF_SOURCE = 4
"""Number of files that ZMQ opens for one event source: a socket, its monitor, the connection, and a socket for replays.
"""


def door_plans(settings: Sizes) -> tuple[DoorPlan, ...]:
    """Return the limits of the connections of each port (`DoorPlan`), and the limit of event sources, to which the
    router connects. The plan for the clients' port comes first; it counts two files for each client, because each
    client may need a connection to an engine.
    """
    clients = DoorPlan(name="clients", wanted=settings.max_connections, files=2)
    health = () if settings.picker_health_port is None else (PICKER_HEALTH,)
    events = DoorPlan(name=EVENT_SOURCES, wanted=settings.kv_event_sources, files=FILES_OF_SOURCE)
    picker = () if settings.picker_port is None else (PICKER,)
    publishers = () if settings.kv_events_port is None else (PUBLISHERS,)
    return clients, OPERATORS, OTHER_ROUTERS, events, *publishers, *picker, *health


PROCESS_BYTES = 256 * MEBIBYTE
"""Bytes of memory of the process without any request: the interpreter and its libraries, routing tables, and the
indexes of engines' caches.
"""
MOST_FOR_VALUES = 288 * MEBIBYTE
"""Bytes of memory for parsing a body with the maximum number of JSON values (`protocols.requests`)."""

READING_EACH, READING_VALUES_EACH = 6, 32
"""Bytes of memory for each byte of a body while the body is parsed. The first number is for a body of one long text,
the second for a body of many small values.
"""
MEMORY_STEP = 64 * MEBIBYTE

REMEDY = (
    "give it more memory (`router.resources` of the chart), or set FAIRLEAD_MAX_BODY_BYTES, FAIRLEAD_MAX_UPLOAD_BYTES,"
    " FAIRLEAD_BODY_MEMORY_BYTES or FAIRLEAD_KEPT_PROMPTS_BYTES lower"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimits:
    """The parts of a router process's memory in the worst case, in bytes. `available`: the process's memory."""

    process: int
    kept_prompts: int
    reading: int
    """Memory for parsing one body; bodies are parsed one after the other."""
    bodies: int
    """Maximum memory for the bodies of requests in flight; the router enforces this limit."""
    largest: int
    available: int

    @property
    def worst_case(self) -> int:
        """Bytes of memory that the process takes in the worst case: the sum of all parts."""
        return self.process + self.kept_prompts + self.reading + int(BYTES_EACH * self.bodies)

    @property
    def fit(self) -> bool:
        """Whether the available memory is enough for the worst case."""
        return self.worst_case <= self.available

    def shown(self) -> dict[str, int]:
        """Return the sizes in MiB, for the log."""
        return {
            "body_memory_mib": self.bodies // MEBIBYTE,
            "worst_case_mib": self.worst_case // MEBIBYTE,
            "available_mib": self.available // MEBIBYTE,
        }

    def words(self) -> str:
        """Return a text with the worst case and its parts."""
        parts = {
            "process": self.process,
            "kept prompts": self.kept_prompts,
            "reading one body": self.reading,
            "bodies in progress": int(BYTES_EACH * self.bodies),
        }
        return f"{_shown(self.worst_case)}: " + ", ".join(f"{name} {_shown(size)}" for name, size in parts.items())


def memory_limits(settings: Sizes, available: int) -> MemoryLimits:
    """Return the parts of the memory in the worst case under the settings, for a process that has `available` bytes."""
    largest, reading = _largest(settings), _reading(settings)
    besides = PROCESS_BYTES + settings.kept_prompts_bytes + reading
    return MemoryLimits(
        process=PROCESS_BYTES,
        kept_prompts=settings.kept_prompts_bytes,
        reading=reading,
        bodies=settings.body_memory_bytes or memory_for_bodies(largest, besides, available),
        largest=largest,
        available=available,
    )


def needed_memory(settings: Sizes) -> int:
    """Return the bytes of memory that a process should have for the worst case under the settings, rounded up to whole
    MEMORY_STEPs. If no setting limits the memory for bodies, bodies get their default share. The chart computes the
    same value (`fairlead.routerMemory`) from the same constants.
    """
    besides = PROCESS_BYTES + settings.kept_prompts_bytes + _reading(settings)
    if settings.body_memory_bytes is not None:
        least = besides + BYTES_EACH * settings.body_memory_bytes
    else:
        least = max(besides / (1 - BYTES_EACH * SHARE_OF_MEMORY), besides + BYTES_EACH * 2 * _largest(settings))
    return MEMORY_STEP * ceil(least / MEMORY_STEP)


def _largest(settings: Sizes) -> int:
    return max(settings.max_body_bytes, settings.max_upload_bytes)


def _reading(settings: Sizes) -> int:
    body = settings.max_body_bytes
    return max(READING_EACH * body, min(READING_VALUES_EACH * body, MOST_FOR_VALUES))


def budget_lines(settings: Sizes, available: int) -> Iterator[tuple[str, str]]:
    """Yield the lines of the help page about the limits of a process with these settings: pairs of a subject and a
    text.
    """
    limits, needed = memory_limits(settings, available), needed_memory(settings)
    doors = ", ".join(f"{plan.name} {plan.wanted}" for plan in door_plans(settings))
    yield "Connections", f"{doors}; fewer where the limit of open files is too low"
    yield "Heads", f"{_shown(settings.max_header_bytes)} at most for each request; not included in the memory below"
    yield "Bodies", f"{_shown(limits.bodies)} in progress together, {_shown(limits.largest)} each at most"
    yield "Worst case", limits.words()
    yield "Memory", f"{_shown(available)} here; {_shown(needed)} is enough" + ("" if limits.fit else f", so {REMEDY}")


def _shown(size: int) -> str:
    return f"{ceil(size / MEBIBYTE)} MiB" if size >= MEBIBYTE else f"{ceil(size / 1024)} KiB"

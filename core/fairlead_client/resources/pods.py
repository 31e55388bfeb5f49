"""The pod of an instance: its log, and Kubernetes' events about it."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLog:
    """The last lines of a container's log, oldest first; with a `search`, only the lines that contain the searched
    text, ignoring case. `read` is the number of last lines that were searched. `previous`: the log is that of the
    container before its last restart.
    """

    instance: str
    container: str
    containers: list[str]
    previous: bool
    restarts: int
    read: int
    lines: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent:
    """An event of Kubernetes about a pod; `kind` is Normal or Warning, `count` is how often the event was seen until
    `at`.
    """

    at: datetime | None
    kind: str
    reason: str
    message: str
    count: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvents:
    """The events about the pod of an instance, newest first. Kubernetes keeps them for an hour by default."""

    instance: str
    events: list[PodEvent]

"""The pod of an instance: its log, and Kubernetes' events about it."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLog:
    """The last lines of a container's log, oldest first. With a `search`, only the lines that contain the searched text
    are listed, ignoring case. `read` is the number of last lines that were searched. `previous` says that the log is
    from before the container's last restart.
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
    """An event of Kubernetes about a pod. `kind` is Normal or Warning, `count` is the number of times that the event
    was seen until `at`.
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

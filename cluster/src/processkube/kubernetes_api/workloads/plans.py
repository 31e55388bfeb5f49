"""A controller's decision: writes to make in order, and when to look again."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from processkube.kubernetes_api.objects.objects import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """A write that creates an object. The object's namespace is in its metadata."""

    item: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A write that replaces an object that was read; its status stays."""

    item: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeStatus:
    """A write that replaces the status of an object that was read."""

    item: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """A write that deletes an object, with the object's own grace period. `propagation` is as in `DeleteOptions`."""

    item: Object
    propagation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """A write that records an Event about an object."""

    about: Object
    reason: str
    message: str
    event_type: str = "Normal"


Write = Create | Change | ChangeStatus | Delete | Tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The writes of one look at a workload, in order."""

    writes: tuple[Write, ...] = field(default=())
    look_again_at: datetime | None = None
    """A time at which the same objects would lead to another decision; None when only a change can."""

"""A controller's decision: the writes to make, in order, and the time of the next look."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from processkube.kubernetes_api.objects.objects import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """A write that creates `item`."""

    item: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A write that replaces a stored object, except for its status, by `item`."""

    item: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeStatus:
    """A write that replaces the status of a stored object by the status of `item`."""

    item: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """A write that deletes an object with its usual grace period. `propagation` is as in `DeleteOptions`."""

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
    """The result of a controller's look at a workload: the writes to make, in order, and the time of the next look."""

    writes: tuple[Write, ...] = field(default=())
    look_again_at: datetime | None = None
    """The time at which the next look is needed even if no object has changed by then; None if no such look is needed.
    """

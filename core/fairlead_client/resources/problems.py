"""Refusals of the API, as RFC 9457 documents."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeMeanwhile:
    """A change that somebody else made to an object after a plan was made for this object. `by` is None for an unknown
    person; `diff` has the format of a plan's diff.
    """

    by: str | None
    diff: list[dict[str, Any]]
    at: datetime | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConflict:
    """The conflict between a plan and its object: the plan's change, and all changes that others made in the meantime,
    oldest first. `POST /v1/plans/{plan}/again` plans the same change for the object as it is now.
    """

    plan: str
    planned: list[dict[str, Any]]
    meanwhile: list[ChangeMeanwhile]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOfKey:
    """A session (its identity) and the name of the gateway key to which the session belongs; the key's id if the key is
    not known.
    """

    pool: str
    session: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An RFC 9457 problem document.

    `type` is a stable code (docs/api.md), `detail` one line with the fault, `remedy` the way to correct it (if the
    detail does not already say so). `field` and `value` are present if a person's input was wrong, `conflict` if
    somebody else changed the object of a plan, `sessions` if sessions of several gateway keys have the name that was
    given.
    """

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    request_id: str | None = None
    field: str | None = None
    value: Any = None
    remedy: str | None = None
    conflict: PlanConflict | None = None
    sessions: list[SessionOfKey] | None = None

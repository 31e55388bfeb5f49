"""Rules of saved views of the audit log: what a view may contain, who sees it, and who may change it. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.errors import Conflict
from fairlead_api.infra.times import parse_range
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.audit import AuditView, AuditViewChange, AuditViewRequest

LONGEST_NAME = 100
LONGEST_FILTER = 300
MOST_OWN = 50
"""Maximum number of views of one person."""
MOST_SHARED = 50
"""Maximum number of shared views of all people together, because everybody's page lists all of them."""
FIELDS = ("pool", "kind", "actor", "action", "object", "start", "end")


def new_view(view_id: str, request: AuditViewRequest, caller: Caller, now: datetime) -> AuditView:
    """Return the view that a person wants to save. Raises InvalidInput."""
    for field in ("pool", "actor", "action", "object"):
        _check_text(field, getattr(request, field), LONGEST_FILTER)
    _check_pool(request.pool)
    _check_times(request.start, request.end, now)
    return AuditView(
        id=view_id,
        name=_named(request.name),
        owner=caller.identity.subject,
        shared=request.shared,
        created_at=now,
        **{field: getattr(request, field) for field in FIELDS},
    )


def changed(view: AuditView, change: AuditViewChange) -> AuditView:
    """Return the view after a change. Raises InvalidInput."""
    if change.name is None and change.shared is None:
        raise InvalidInput("name", None, "give a new name, or shared, or both")
    name = view.name if change.name is None else _named(change.name)
    return replace(view, name=name, shared=view.shared if change.shared is None else change.shared)


def visible(view: AuditView, caller: Caller) -> bool:
    """Return whether the caller sees a view. Callers see their own views, and shared views of pools that they see. A
    shared view without a pool is visible to callers who see all pools.
    """
    if view.owner == caller.identity.subject:
        return True
    return view.shared and (caller.sight is None if view.pool is None else caller.sees(view.pool))


def role_to_write(view: AuditView, after: AuditView | None, caller: Caller) -> AccessRole | None:
    """Return the role that the caller needs to save the view, to change it to `after`, or to delete it (`after` is
    None). The caller needs the role in the namespace of the view's pool. None means that every caller who sees the view
    may do so.
    """
    if view.owner != caller.identity.subject:
        return AccessRole.ADMIN
    return AccessRole.OPERATOR if after is not None and after.shared else None


def admitted(view: AuditView, others: Iterable[AuditView]) -> None:
    """Raises Conflict if the owner already has another view of that name, or if the number of the owner's views or of
    shared views is at its limit.
    """
    own, shared = [one for one in others if one.owner == view.owner], [one for one in others if one.shared]
    if view.name in {one.name for one in own}:
        raise Conflict("view-exists", f"{view.owner} already has a view {view.name!r}; choose another name")
    if len(own) >= MOST_OWN:
        raise Conflict("too-many-views", f"{view.owner} has {MOST_OWN} saved views; delete one that is not used")
    if view.shared and len(shared) >= MOST_SHARED:
        raise Conflict("too-many-views", f"there are {MOST_SHARED} shared views; delete one that is not used")


def seen(views: Sequence[AuditView], caller: Caller) -> list[AuditView]:
    """Return the views that the caller sees, by name."""
    return sorted((one for one in views if visible(one, caller)), key=lambda one: (one.name, one.owner))


def _named(name: str) -> str:
    _check_text("name", name.strip(), LONGEST_NAME)
    return name.strip()


def _check_text(field: str, text: str | None, longest: int) -> None:
    if text is not None and not (text and len(text) <= longest and text.isprintable()):
        raise InvalidInput(field, text[: longest + 1], f"write 1 to {longest} printable characters")


def _check_pool(pool: str | None) -> None:
    try:
        _ = None if pool is None else PoolKey.parse(pool)
    except ValueError:
        raise InvalidInput("pool", pool, "write namespace/name") from None


def _check_times(start: str | None, end: str | None, now: datetime) -> None:
    """Raises InvalidInput unless the view's range is relative to the present, so that the view shows new entries each
    time it is opened.
    """
    for field, text in (("start", start), ("end", end)):
        if text is not None and not text.startswith("now"):
            raise InvalidInput(field, text[:100], "write a relative time, such as now-7d or now")
    parse_range(start, end, now)

"""Builds addresses of this site: the current one with its query, and links derived from it.

The URL holds the whole state of a page. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from fairlead.tables import PoolKey
from fairlead.targets import instance_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """The page being shown: path below the base path, and its query parameters without empty ones."""

    base: str
    path: str
    params: dict[str, str]

    def url(self, **changes: str | int | None) -> str:
        """Return the address of this page with some parameters changed (None removes a parameter).

        A change of any parameter except `cursor` also returns to the first page.
        """
        params: dict[str, str] = {name: value for name, value in self.params.items() if name != "cursor"}
        for name, value in changes.items():
            key = name.rstrip("_")
            if value is None or value == "":
                params.pop(key, None)
            else:
                params[key] = str(value)
        return self.base + self.path + (f"?{urlencode(params)}" if params else "")

    def ranged(self, ends: Mapping[str, str]) -> str:
        """Return the address of this page over another time range."""
        return self.url(from_=ends["from"], to=ends["to"])

    @property
    def filtered(self) -> bool:
        """Whether any filter narrows the page's list."""
        return any(value for name, value in self.params.items() if name not in {"from", "to", "sort", "view", "cursor", "limit"})

    def without_filters(self, ranged: bool) -> str:
        """Return the address of this page without the filters that narrow its list, over the same time if it is
        `ranged`.
        """
        kept = ("from", "to", "sort", "view") if ranged else ("sort", "view")
        return self.base + with_query(self.path, {name: self.params.get(name) for name in kept})

    def export(self, kind: str, part: str = "") -> str:
        """Return the address of this whole list, or of the named part of the page, as `csv` or `json`."""
        params = {name: value for name, value in self.params.items() if name not in {"cursor", "limit"}}
        return f"{self.base}{self.path}{part and '/' + part}.{kind}" + (f"?{urlencode(params)}" if params else "")

    @property
    def back(self) -> str:
        """Return path and query below the base path, to return to after a login."""
        return self.path + (f"?{urlencode(self.params)}" if self.params else "")


def segment(text: str) -> str:
    """Return one path segment, safe for any name."""
    return quote(text, safe="")


def with_query(path: str, params: Mapping[str, str | int | None]) -> str:
    """Return a path with the parameters that have a value."""
    kept = {name: str(value) for name, value in params.items() if value not in (None, "")}
    return f"{path}?{urlencode(kept)}" if kept else path


def pool_path(pool: str) -> str:
    """`namespace/name` → `/pools/namespace/name`."""
    key = PoolKey.parse(pool)
    return f"/pools/{segment(key.namespace)}/{segment(key.name)}"


def schedule_path(pool: str, schedule: str) -> str:
    """Return the page of one schedule."""
    return f"/schedules/{pool_path(pool).removeprefix('/pools/')}/{segment(schedule)}"


def instance_path(pool: str, instance: str) -> str:
    """Return the page of one instance, even if one of its ranks is named."""
    return f"{pool_path(pool)}/instances/{segment(instance_of(instance))}"


def session_path(pool: str, session: str) -> str:
    """Return the page of one session."""
    return f"/sessions/{pool_path(pool).removeprefix('/pools/')}/{segment(session)}"


def tree_path(pool: str, session: str) -> str:
    """Return the page of the tree that a session belongs to."""
    return f"/trees/{pool_path(pool).removeprefix('/pools/')}/{segment(session)}"

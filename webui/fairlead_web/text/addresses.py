"""Builds addresses of this web UI: the current address with its query, and links derived from it.

A page's URL contains the page's whole state. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from fairlead.tables import PoolKey
from fairlead.targets import instance_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """The address of the page that is shown: its path below the base path, and its query parameters that are
    not empty.
    """

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

    def write(self, path: str, *without: str) -> str:
        """Return the address of a write below this page. The address contains the page's filters and its place in
        lists, except the parameters named in `without`, so that the page after the write shows the same place
        (`Visit.back_to`).
        """
        return self.base + with_query(path, {name: value for name, value in self.params.items() if name not in without})

    def ranged(self, ends: Mapping[str, str]) -> str:
        """Return the address of this page over the time range with these query parameters."""
        return self.url(from_=ends["from"], to=ends["to"])

    @property
    def filtered(self) -> bool:
        """Whether any filter narrows the page's list."""
        return any(value for name, value in self.params.items() if name not in {"from", "to", "sort", "view", "cursor", "limit"})

    def without_filters(self, ranged: bool) -> str:
        """Return the address of this page without the filters that narrow its list. The time range is kept if the page
        is `ranged`.
        """
        kept = ("from", "to", "sort", "view") if ranged else ("sort", "view")
        return self.base + with_query(self.path, {name: self.params.get(name) for name in kept})

    def export(self, kind: str, part: str = "") -> str:
        """Return the address of a file with the whole list of this page. `part` names another table of the page, which
        the file then contains instead; `kind` is `csv` or `json`.
        """
        params = {name: value for name, value in self.params.items() if name not in {"cursor", "limit"}}
        return f"{self.base}{self.path}{part and '/' + part}.{kind}" + (f"?{urlencode(params)}" if params else "")

    @property
    def back(self) -> str:
        """The path and query below the base path, to which the browser returns after a login."""
        return self.path + (f"?{urlencode(self.params)}" if self.params else "")


def segment(text: str) -> str:
    """Return the text as one segment of a URL path, escaped so that any name is safe."""
    return quote(text, safe="")


def with_query(path: str, params: Mapping[str, str | int | None]) -> str:
    """Return a path with the given query parameters; parameters without a value are left out."""
    kept = {name: str(value) for name, value in params.items() if value not in (None, "")}
    return f"{path}?{urlencode(kept)}" if kept else path


def pool_path(pool: str) -> str:
    """Return the path of a pool's page: `namespace/name` → `/pools/namespace/name`."""
    key = PoolKey.parse(pool)
    return f"/pools/{segment(key.namespace)}/{segment(key.name)}"


def schedule_path(pool: str, schedule: str) -> str:
    """Return the path of one schedule's page."""
    return f"/schedules/{pool_path(pool).removeprefix('/pools/')}/{segment(schedule)}"


def instance_path(pool: str, instance: str) -> str:
    """Return the path of one instance's page. If `instance` names a rank of an instance, it is the page of that
    instance.
    """
    return f"{pool_path(pool)}/instances/{segment(instance_of(instance))}"


def session_path(pool: str, session: str) -> str:
    """Return the path of one session's page."""
    return f"/sessions/{pool_path(pool).removeprefix('/pools/')}/{segment(session)}"


def tree_path(pool: str, session: str) -> str:
    """Return the path of the page that shows the tree of sessions to which this session belongs."""
    return f"/trees/{pool_path(pool).removeprefix('/pools/')}/{segment(session)}"

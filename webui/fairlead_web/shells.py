"""The frame around every page: the signed-in person, pools, time range, preferences, breadcrumbs. Data only."""

from dataclasses import dataclass
from datetime import datetime

from fairlead_client.resources.access import AccessRole, Identity
from fairlead_client.resources.pools import PoolSummary
from fairlead_web.addresses import Here, pool_path
from fairlead_web.findings import Finding
from fairlead_web.time_ranges import PRESETS, TimeRange

SECTIONS = (
    ("overview", "Overview", "/"),
    ("pools", "Pools", "/pools"),
    ("sessions", "Sessions", "/sessions"),
    ("migrations", "Migrations", "/migrations"),
    ("decisions", "Decisions", "/decisions"),
    ("rejections", "Rejections", "/rejections"),
    ("schedules", "Schedules", "/schedules"),
    ("slo", "SLO", "/slo"),
    ("keys", "Keys", "/keys"),
    ("audit", "Audit", "/audit"),
)
THEMES = ("auto", "light", "dark")
TIME_MODES = ("relative", "local", "utc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """A reader's preferences, each kept in a cookie. `shortcuts` says that single-key shortcuts are on."""

    theme: str = "auto"
    time_mode: str = "relative"
    shortcuts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Crumb:
    """One step of the breadcrumbs; `path` None for the page itself."""

    words: str
    path: str | None = None


def crumbs_below(pool: str, *rest: Crumb) -> tuple[Crumb, ...]:
    """Breadcrumbs of a page below a pool."""
    return (Crumb(words="Pools", path="/pools"), Crumb(words=pool, path=pool_path(pool)), *rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The frame of one page: first the fields of the visit, then the fields of the page.

    `partial` names the sources that did not answer, and why. `stale_seconds` is the age of answers from memory while
    the database is away, None when all are fresh. `ranged` says that the page depends on the time range. When
    `live_topics` is empty, the page streams nothing.
    """

    here: Here
    identity: Identity | None
    pools: list[PoolSummary]
    csrf: str
    preferences: Preferences
    range: TimeRange
    range_problem: str | None
    partial: tuple[str, ...]
    stale_seconds: int | None
    as_of: datetime

    title: str
    section: str
    pool: str | None = None
    tab: str = ""
    ranged: bool = False
    live_topics: str = ""
    crumbs: tuple[Crumb, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def sections(self) -> tuple[tuple[str, str, str], ...]:
        """Name, words and path of the main navigation."""
        return SECTIONS

    @property
    def presets(self) -> tuple[tuple[str, str], ...]:
        """Words and `from` of the range presets."""
        return PRESETS

    @property
    def engines_file(self) -> str | None:
        """The file with the addresses of the page's pool, whose engines run already; None for a pool of pods."""
        return next((one.engines_file for one in self.pools if f"{one.namespace}/{one.name}" == self.pool), None)

    @property
    def runs_already(self) -> bool:
        """Whether the instances of the page's pool are made and ended elsewhere."""
        return any(one.runs_already for one in self.pools if f"{one.namespace}/{one.name}" == self.pool)

    def may(self, role: AccessRole | str) -> bool:
        """Whether the signed-in person has at least `role`. Pages only mirror this; the API decides."""
        return self.identity is not None and self.identity.role.reaches(AccessRole(role))

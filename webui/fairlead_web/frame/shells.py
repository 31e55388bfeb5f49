"""The frame around every page: the signed-in person, pools, time range, preferences, breadcrumbs.

The frame's data and the page's own data are requested from the API at the same time (`Ahead`), because two requests one
after the other would take longer.
"""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from fairlead.routing.contracts.catalogues import RingUse
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.tables import RoutingFacts
from fairlead_client.client import ControlApi
from fairlead_client.resources.access import AccessRole, Identity
from fairlead_client.resources.pools import PoolSummary
from fairlead_web.drawing.findings import Finding
from fairlead_web.frame.health import pain
from fairlead_web.text.addresses import Here, pool_path
from fairlead_web.text.paging import MOST_PER_CALL, MOST_POOLS, Taken, first_of
from fairlead_web.text.time_ranges import PRESETS, TimeRange

SECTIONS = (
    ("Fleet", (("overview", "Overview", "/"), ("advice", "Advice", "/advice"), ("pools", "Pools", "/pools"))),
    (
        "Traffic of all pools",
        (
            ("sessions", "Sessions", "/sessions"),
            ("migrations", "Migrations", "/migrations"),
            ("decisions", "Decisions", "/decisions"),
            ("rejections", "Rejections", "/rejections"),
        ),
    ),
    (
        "Control",
        (
            ("slo", "SLO", "/slo"),
            ("schedules", "Schedules", "/schedules"),
            ("simulator", "Simulator", "/simulator"),
            ("cost", "Cost", "/cost"),
            ("keys", "Keys", "/keys"),
            ("notices", "Notices", "/notices"),
            ("audit", "Audit", "/audit"),
        ),
    ),
)
"""The sidebar: groups of links. Each link has a name, a text and a path."""
CLUSTERS = ("clusters", "Clusters", "/clusters")
"""The link that the first group of the sidebar gets if other clusters are configured."""
POOL_TABS = (
    ("Now", (("overview", "Overview", ""), ("heatmap", "Heatmap", "/heatmap"), ("instances", "Instances", "/instances"))),
    (
        "Traffic",
        (
            ("sessions", "Sessions", "/sessions"),
            ("migrations", "Migrations", "/migrations"),
            ("decisions", "Decisions", "/decisions"),
            ("rejections", "Rejections", "/rejections"),
        ),
    ),
    ("Targets", (("slo", "SLO", "/slo"), ("scaling", "Scaling", "/scaling"), ("schedules", "Schedules", "/schedules"))),
    ("Internals", (("ring", "Ring", "/ring"), ("predictor", "Predictor", "/predictor"), ("engine", "Engine", "/engine"))),
    ("Change", (("simulator", "Simulator", "/simulator"), ("spec", "Spec", "/spec"), ("audit", "Audit", "/audit"))),
)
"""The tabs of a pool's pages, in groups. Each tab has a name, a text, and a path below the pool's path."""
NOT_OF_ENGINES = frozenset({"scaling", "schedules"})
"""Names of tabs that a pool lacks if its engines already run, because Fairlead neither starts nor stops those
engines.
"""
SIDEBAR_POOLS = 8
"""Maximum number of pools in the sidebar; the worst pools are shown. The page of pools lists all of them."""
THEMES = ("auto", "light", "dark")
TIME_MODES = ("relative", "local", "utc", "zone")
DENSITIES = ("comfortable", "compact")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """A reader's preferences, each kept in a cookie.

    `zone` is the time zone in which times are shown if the reader chose the time mode `zone`; `shortcuts` is True if
    single-key shortcuts are on.
    """

    theme: str = "auto"
    time_mode: str = "relative"
    shortcuts: bool = True
    zone: str = "UTC"
    density: str = "comfortable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crumb:
    """One link of the breadcrumbs; `path` is None for the present page."""

    words: str
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """A tab of a pool's pages. `quiet` says why the tab has nothing to show under the pool's policy; it is empty if the
    tab has something to show.
    """

    name: str
    words: str
    path: str
    quiet: str = ""


@cache
def quiet_tabs(policy: str) -> dict[str, str]:
    """Return the reasons why tabs have nothing to show under this policy, by the name of the tab. Empty for a policy
    that this process does not know.
    """
    if policy not in BUILT_IN.names:
        return {}
    found = {}
    if BUILT_IN.entry(policy).ring is RingUse.NONE:
        found["ring"] = f"{policy} does not place requests by the ring"
    if not BUILT_IN.learns(RoutingFacts(policy=policy)):
        found["predictor"] = f"{policy} does not learn"
    return found


def crumbs_below(pool: str, *rest: Crumb) -> tuple[Crumb, ...]:
    """Return the breadcrumbs of a page below a pool; `rest` follows the pool."""
    return (Crumb(words="Pools", path="/pools"), Crumb(words=pool, path=pool_path(pool)), *rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The data of the frame around one page: first fields about the visit, then fields about the page.

    `partial` names the sources that did not respond, and the reasons. `stale_seconds` is the age of the stale responses
    that the API gives while its database is unreachable, None if all responses are fresh. `ranged` is True if the page
    depends on the time range. If `live_topics` is empty, the page has no live updates. If `pools` is only a part of all
    pools, `pools_cut` describes which part.
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
    pools_cut: str = ""
    outside: tuple[tuple[str, str], ...] = ()
    """The links to other tools, each with its text and its address."""
    clusters: bool = False
    """Whether the web UI has a page of other clusters."""

    @property
    def sections(self) -> tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...]:
        """The groups of the sidebar, each with its text and its links. A link has a name, a text and a path."""
        (fleet, pages), *rest = SECTIONS
        return ((fleet, (*pages, CLUSTERS) if self.clusters else pages), *rest)

    @property
    def workspace(self) -> bool:
        """Whether the page belongs to a pool: its head then names the pool, and its tabs are the tabs of that pool."""
        return self.pool is not None and (bool(self.tab) or self.section == "pools")

    @property
    def tabs(self) -> tuple[tuple[str, tuple["Tab", ...]], ...]:
        """The tabs of the page's pool, in groups. Each group has a text."""
        at = pool_path(self.pool) if self.pool else ""
        quiet = quiet_tabs(self.of_pool.policy) if self.of_pool else {}
        lacking = NOT_OF_ENGINES if self.engines_file else frozenset()
        return tuple(
            (
                group,
                tuple(
                    Tab(name=name, words=words, path=at + path, quiet=quiet.get(name, ""))
                    for name, words, path in tabs
                    if name not in lacking
                ),
            )
            for group, tabs in POOL_TABS
        )

    @property
    def heading(self) -> str:
        """The page's title, shown below the name of the pool."""
        return self.title.removesuffix(f" of {self.pool}") if self.workspace else self.title

    @property
    def of_pool(self) -> PoolSummary | None:
        """The page's pool; None if it could not be read."""
        return next((one for one in self.pools if f"{one.namespace}/{one.name}" == self.pool), None)

    @property
    def behind_seconds(self) -> float:
        """Delay, in seconds, of the figures of the page's pool or, on a page without a pool, the largest delay of any
        pool; 0 without a delay.
        """
        found = self.pools if self.of_pool is None else [self.of_pool]
        return max((one.figures_behind_seconds for one in found), default=0.0)

    @property
    def sidebar_pools(self) -> list[PoolSummary]:
        """The pools that the sidebar shows: the worst pools, and the page's own pool."""
        ranked = sorted(self.pools, key=pain)
        own = [one for one in ranked[SIDEBAR_POOLS:] if f"{one.namespace}/{one.name}" == self.pool]
        return ranked[: SIDEBAR_POOLS - len(own)] + own

    @property
    def presets(self) -> tuple[tuple[str, str], ...]:
        """The preset time ranges, each with its text and its value of `from`."""
        return PRESETS

    @property
    def engines_file(self) -> str | None:
        """The path of the file with the engines' addresses, if the engines of the page's pool already run; None for a
        pool of pods.
        """
        return self.of_pool.engines_file if self.of_pool else None

    @property
    def runs_already(self) -> bool:
        """Whether the instances of the page's pool are started and stopped outside Fairlead."""
        return self.of_pool is not None and self.of_pool.runs_already

    @property
    def namespace(self) -> str | None:
        """The namespace of the page's pool; None for a page about all pools."""
        return self.pool.partition("/")[0] if self.pool else None

    @property
    def role(self) -> str:
        """A description of the person's role in the page's namespace. On a page without a namespace, it describes the
        role in all namespaces, followed by the roles that the person has in single namespaces.
        """
        if self.identity is None:
            return "not signed in"
        role = self.identity.role_in(self.namespace)
        more = {} if self.namespace else self.identity.namespaces
        found = [f"{one} in {namespace}" for namespace, one in sorted(more.items())]
        return ", ".join([role] * (role is not AccessRole.NONE or not found) + found)

    def may(self, role: AccessRole | str) -> bool:
        """Return whether the signed-in person has at least `role` in the namespace of the page's pool or, on a page
        without a pool, in all namespaces. This only decides what the page shows; the API decides what the person may
        do.
        """
        return self.identity is not None and self.identity.reaches(AccessRole(role), self.namespace)

    def may_somewhere(self, role: AccessRole | str) -> bool:
        """Return whether the signed-in person has at least `role` in any namespace."""
        return self.identity is not None and self.identity.reaches_somewhere(AccessRole(role))


async def first_pools(api: ControlApi, most: int | None = MOST_POOLS) -> Taken[PoolSummary]:
    """Return the first `most` pools by namespace and name, or all pools (None). Raises ApiProblem."""
    return await first_of(lambda cursor: api.pools(cursor=cursor, limit=MOST_PER_CALL), most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """Responses of the API that were requested before the page needs them. The page need not await all of them."""

    identity: asyncio.Task[Identity]
    pools: asyncio.Task[Taken[PoolSummary]]

    @staticmethod
    def ask(api: ControlApi, identity: Identity | None) -> "Ahead":
        """Request the pools, and the person's identity unless it is already known."""

        async def asked() -> Identity:
            return await api.whoami() if identity is None else identity

        return Ahead(identity=asyncio.create_task(asked()), pools=asyncio.create_task(first_pools(api)))

    def close(self) -> None:
        """Drop the responses that were not awaited, because the page is finished or has failed."""
        for task in (self.identity, self.pools):
            task.cancel()
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

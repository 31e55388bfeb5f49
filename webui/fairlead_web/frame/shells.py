"""The frame around every page: the signed-in person, pools, time range, preferences, breadcrumbs.

It requests its own data from the API while the page requests its content (`Ahead`), because one after the other would
take longer.
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
"""The sidebar: groups of links, each with name, words and path."""
CLUSTERS = ("clusters", "Clusters", "/clusters")
"""The additional link of the first group, if other clusters are shown."""
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
"""The tabs of a pool in groups, each with name, words, and path below the pool's path."""
NOT_OF_ENGINES = frozenset({"scaling", "schedules"})
"""Tabs that a pool of running engines lacks, because Fairlead neither starts nor stops those engines."""
SIDEBAR_POOLS = 8
"""Maximum number of pools named in the sidebar, the worst first; the list of pools has all."""
THEMES = ("auto", "light", "dark")
TIME_MODES = ("relative", "local", "utc", "zone")
DENSITIES = ("comfortable", "compact")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """A reader's preferences, each kept in a cookie.

    `zone` is the time zone of the time mode of that name; `shortcuts` is true if single-key shortcuts are on.
    """

    theme: str = "auto"
    time_mode: str = "relative"
    shortcuts: bool = True
    zone: str = "UTC"
    density: str = "comfortable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crumb:
    """One step of the breadcrumbs; `path` is None for the page itself."""

    words: str
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """A tab of a pool. `quiet` is the reason why the tab has nothing to show for the pool's policy; empty if it has
    something.
    """

    name: str
    words: str
    path: str
    quiet: str = ""


@cache
def quiet_tabs(policy: str) -> dict[str, str]:
    """Return why tabs have nothing to show for this policy, by name of the tab; empty for a policy that this process
    does not know.
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
    """Breadcrumbs of a page below a pool."""
    return (Crumb(words="Pools", path="/pools"), Crumb(words=pool, path=pool_path(pool)), *rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The frame of one page: first the fields of the visit, then the fields of the page.

    `partial` names the sources that did not answer, and the reasons. `stale_seconds` is the age of cached answers while
    the database is unreachable, None if all answers are fresh. `ranged` is true if the page depends on the time range.
    With empty `live_topics` the page has no live updates. `pools_cut` describes which part of all pools `pools` is, if
    there are more.
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
    """Words and addresses of the links to other tools."""
    clusters: bool = False
    """Whether there is a page of other clusters."""

    @property
    def sections(self) -> tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...]:
        """The groups of the sidebar: words, then name, words and path of each link."""
        (fleet, pages), *rest = SECTIONS
        return ((fleet, (*pages, CLUSTERS) if self.clusters else pages), *rest)

    @property
    def workspace(self) -> bool:
        """Whether the page belongs to a pool: its head names the pool, and its tabs are the pool's."""
        return self.pool is not None and (bool(self.tab) or self.section == "pools")

    @property
    def tabs(self) -> tuple[tuple[str, tuple["Tab", ...]], ...]:
        """The tabs of the page's pool, in groups with their words."""
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
        """The page's title below the name of its pool."""
        return self.title.removesuffix(f" of {self.pool}") if self.workspace else self.title

    @property
    def of_pool(self) -> PoolSummary | None:
        """The page's pool; None if it could not be read."""
        return next((one for one in self.pools if f"{one.namespace}/{one.name}" == self.pool), None)

    @property
    def behind_seconds(self) -> float:
        """Seconds by which figures of the page's pool, or of any pool, lag behind; 0 if they do not."""
        found = self.pools if self.of_pool is None else [self.of_pool]
        return max((one.figures_behind_seconds for one in found), default=0.0)

    @property
    def sidebar_pools(self) -> list[PoolSummary]:
        """The worst pools, and the page's own pool."""
        ranked = sorted(self.pools, key=pain)
        own = [one for one in ranked[SIDEBAR_POOLS:] if f"{one.namespace}/{one.name}" == self.pool]
        return ranked[: SIDEBAR_POOLS - len(own)] + own

    @property
    def presets(self) -> tuple[tuple[str, str], ...]:
        """Words and `from` of each preset range."""
        return PRESETS

    @property
    def engines_file(self) -> str | None:
        """The file with the engines' addresses, if the page's pool consists of running engines; None for a pool of
        pods.
        """
        return self.of_pool.engines_file if self.of_pool else None

    @property
    def runs_already(self) -> bool:
        """Whether the instances of the page's pool are started and stopped elsewhere."""
        return self.of_pool is not None and self.of_pool.runs_already

    @property
    def namespace(self) -> str | None:
        """The namespace of the page's pool; None for a page about all pools."""
        return self.pool.partition("/")[0] if self.pool else None

    @property
    def role(self) -> str:
        """Describe the person's role in the page's namespace. On a page without a namespace, describe the role in all
        namespaces, and higher roles in single namespaces.
        """
        if self.identity is None:
            return "not signed in"
        role = self.identity.role_in(self.namespace)
        more = {} if self.namespace else self.identity.namespaces
        found = [f"{one} in {namespace}" for namespace, one in sorted(more.items())]
        return ", ".join([role] * (role is not AccessRole.NONE or not found) + found)

    def may(self, role: AccessRole | str) -> bool:
        """Return whether the signed-in person has at least `role`: in the namespace of the page's pool; or in all
        namespaces on a page without a pool. Pages only mirror the API's decision.
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
    """Answers that were requested ahead. An answer may stay without anyone awaiting it."""

    identity: asyncio.Task[Identity]
    pools: asyncio.Task[Taken[PoolSummary]]

    @staticmethod
    def ask(api: ControlApi, identity: Identity | None) -> "Ahead":
        """Request the pools, and the person's identity unless it is known."""

        async def asked() -> Identity:
            return await api.whoami() if identity is None else identity

        return Ahead(identity=asyncio.create_task(asked()), pools=asyncio.create_task(first_pools(api)))

    def close(self) -> None:
        """Drop the answers that nobody awaits, because the page is finished or has failed."""
        for task in (self.identity, self.pools):
            task.cancel()
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

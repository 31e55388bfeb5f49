"""One request of a signed-in person: session token, API client, time range and preferences; and the responses to it."""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from fairlead.errors import InvalidInput
from fairlead.schedules.zones import known_zones
from fairlead.tables import PoolKey
from fairlead_client.client import ControlApi
from fairlead_client.problems import ApiProblem, ApiUnreachable, ClientError
from fairlead_client.resources.access import Identity
from fairlead_client.resources.figures import RangeFigures
from fairlead_client.resources.pools import PoolSummary
from fairlead_client.resources.problems import Problem
from fairlead_web.drawing.findings import Finding
from fairlead_web.frame.assets import Assets
from fairlead_web.frame.metrics import WebMetrics
from fairlead_web.frame.rendering import Context, Renderer
from fairlead_web.frame.security import csrf_token
from fairlead_web.frame.settings import WebSettings
from fairlead_web.frame.shells import DENSITIES, THEMES, TIME_MODES, Ahead, Crumb, Preferences, Shell, crumbs_below, first_pools
from fairlead_web.live.clusters import Clusters
from fairlead_web.live.fragments import Fragments
from fairlead_web.live.paces import Paces
from fairlead_web.live.turns import Turns
from fairlead_web.text.addresses import Here, with_query
from fairlead_web.text.outside_links import LinkPatterns, links
from fairlead_web.text.paging import MOST_POOLS, Taken
from fairlead_web.text.time_ranges import DEFAULT_START, TimeRange, lifetime_start, parse_range, start_within_life

Answer = TypeVar("Answer")
THEME_COOKIE, TIME_COOKIE, SHORTCUTS_COOKIE = "fairlead-theme", "fairlead-time", "fairlead-shortcuts"
ZONE_COOKIE, DENSITY_COOKIE = "fairlead-zone", "fairlead-density"
PAGE_ROWS = 50
"""Maximum number of rows of a list on one page. More rows would make the page slow, and too long for a phone."""
NEWEST_ROWS = 15
"""Maximum number of rows that one live update of a list requests; the newest rows are requested."""
REGIONS_HEADER = "Fairlead-Regions"
REGIONS_MOST = 24
AROUND = timedelta(minutes=5)
"""A link to another tool about one moment covers this much time before the moment and after it."""
NOTHING_ELSE: Mapping[str, str | None] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The objects that all requests share. `api` is the API client without a token; `clock` returns the time in UTC.
    `paces` decides when the parts of an open page are rendered again, and `turns` lets people who open a page go first.
    """

    settings: WebSettings
    links: LinkPatterns
    clusters: Clusters
    api: ControlApi
    assets: Assets
    renderer: Renderer
    clock: Callable[[], datetime]
    fragments: Fragments
    turns: Turns
    paces: Paces
    metrics: WebMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A request of a signed-in person.

    `identity` is set if the API has already returned it, and `ahead` if the data of the frame were requested in
    advance. `range_problem` describes a range in the URL that cannot be read; the range is then the last hour.
    """

    site: Site
    request: Request
    token: str
    api: ControlApi
    here: Here
    range: TimeRange
    range_problem: str | None
    preferences: Preferences
    now: datetime
    failures: list[str]
    stale_ages: list[int]
    identity: Identity | None = None
    ahead: Ahead | None = None

    def param(self, name: str) -> str | None:
        """Return a query parameter; None if the parameter is missing or empty.

        On a page below a pool, the parameter `pool` is always the pool in the page's path.
        """
        return str(self.pool_key()) if name == "pool" and self.in_pool else self.here.params.get(name)

    def filters(self, *names: str, ranged: bool = False, results: str | None = None) -> dict[str, str | int | float | bool | None]:
        """Return the query parameters for a list of the API: the page's parameters `names`, the place in the list, and
        the maximum number of rows; with `ranged` also the time range.

        `results` is the region that shows the list. If the request does not need this region, only NEWEST_ROWS rows are
        requested.
        """
        query: dict[str, str | int | float | bool | None] = {name: self.param(name) for name in (*names, "cursor")}
        query["limit"] = PAGE_ROWS if results is None or self.wants(results) else NEWEST_ROWS
        if ranged:
            query |= self.range.asked
        return query

    async def figures(self, pool: PoolKey | None = None) -> RangeFigures:
        """Return the figures over the page's time range, for one pool or for all visible pools. Raises ApiProblem."""
        asked = self.range.asked
        return await self.api.figures(pool, start=asked["from"], end=asked["to"])

    def since(self, created: Iterable[datetime]) -> "Visit":
        """Return this visit with a default time range for objects that were created at the times `created`: the last
        hour, or less if all of them are younger. A range in the URL takes precedence.

        The page's links keep the URL's range.
        """
        return self.over(lifetime_start(min(created, default=self.now - timedelta(days=1)), self.now))

    def over(self, start: str, created: datetime | None = None) -> "Visit":
        """Return this visit with the time range from `start` to now, unless the URL contains a range. If an object was
        `created` after `start`, the range begins later, at the start of the shortest preset range that covers the
        object's whole life. The page's links keep the URL's range.
        """
        start = start if created is None else start_within_life(start, created, self.now)
        if "from" in self.here.params or start == DEFAULT_START:
            return self
        here = replace(self.here, params={**self.here.params, "from": start, "to": "now"})
        return replace(self, here=here, range=parse_range(start, "now", self.now))

    @property
    def rights(self) -> tuple[object, ...]:
        """The person's roles, as far as known. People with equal roles share renderings."""
        who = self.identity
        return (who.role, tuple(sorted(who.namespaces.items()))) if who else ()

    @property
    def in_pool(self) -> bool:
        """Whether the address is below a pool: `/pools/<namespace>/<name>`."""
        return self.here.path.startswith("/pools/") and {"namespace", "name"} <= self.request.path_params.keys()

    def pool_key(self) -> PoolKey:
        """Return the pool named by the path."""
        return PoolKey(namespace=self.request.path_params["namespace"], name=self.request.path_params["name"])

    def link(self, path: str) -> str:
        """Return a path of this site with the base path added in front."""
        return self.here.base + path

    def wants(self, *regions: str) -> bool:
        """Return whether the request needs one of these regions of the page. A request for the whole page needs all of
        them.
        """
        wanted = regions_of(self.request)
        return not wanted or not set(regions).isdisjoint(wanted)

    async def attempt(self, source: str, answer: Coroutine[Any, Any, Answer], regions: Iterable[str] | None = None) -> Answer | None:
        """Await a response of the API without which the page can still be shown.

        If the call fails, returns None, and notes on the page that `source` failed. If the session has ended, the error
        is still raised. `regions` are the regions of the page that show the response; () if only the whole page shows
        it. The call is made only if the request needs one of these regions.
        """
        if regions is not None and not self.wants(*regions):
            answer.close()
            return None
        try:
            return await answer
        except (ApiProblem, ApiUnreachable) as error:
            if isinstance(error, ApiProblem) and error.problem.status == 401:
                raise
            self.failures.append(f"{source}: {error}")
            return None

    @contextmanager
    def asking_ahead(self) -> Iterator["Visit"]:
        """Yield this visit, after requesting the data of its frame in advance."""
        ahead = Ahead.ask(self.api, self.identity)
        try:
            yield replace(self, ahead=ahead)
        finally:
            ahead.close()

    def without_frame(self) -> None:
        """Declare that the response has no frame, so that the data of the frame are not requested. Must be called
        before anything is awaited.
        """
        if self.ahead is not None:
            self.ahead.close()

    async def shell(
        self,
        title: str,
        section: str,
        *,
        crumbs: tuple[Crumb, ...] = (),
        pool: str | None = None,
        tab: str = "",
        ranged: bool = False,
        live: str = "",
        findings: tuple[Finding, ...] = (),
        pools: Taken[PoolSummary] | None = None,
        summary: PoolSummary | None = None,
        about: Mapping[str, str | None] = NOTHING_ELSE,
        around: datetime | None = None,
    ) -> Shell:
        """Return the frame of the page. Requests the person's identity and the pools from the API.

        A page whose time range is fixed has no live updates. `summary` is the state of the page's pool that the content
        shows; with it, the frame shows the same state. If the address is below a pool, a list of all pools becomes a
        tab of that pool. `about` has the objects of the page, for links to other tools. `around` is the time to which
        these links lead; if it is None, they lead to the page's range.
        """
        if self.in_pool and not tab and section != "pools":
            key = str(self.pool_key())
            title, tab, section, pool = f"{title} of {key}", section, "pools", key
            crumbs = crumbs_below(key, *crumbs)
        identity, taken = await asyncio.gather(self._identity(), _known(pools) if pools is not None else self._pools())
        own = summary if summary is not None or pools is not None else await self._beyond(taken, pool)
        cut = taken.cut_words("pools")
        return replace(
            self.frame(title, section, identity, taken.items if own is None else with_own(taken.items, own)),
            pools_cut=f"of {cut} by name" if cut else "",
            crumbs=crumbs,
            pool=pool,
            tab=tab,
            ranged=ranged,
            live_topics="" if ranged and not self.range.live else live,
            findings=findings,
            outside=() if pool is None else self._outside(pool, about, around),
        )

    def _outside(self, pool: str, about: Mapping[str, str | None], around: datetime | None) -> tuple[tuple[str, str], ...]:
        start, end = (self.range.start, self.range.end) if around is None else (around - AROUND, around + AROUND)
        return tuple(links(self.site.links, pool, start, end, about))

    def frame(self, title: str, section: str, identity: Identity | None, pools: list[PoolSummary]) -> Shell:
        """Return the frame of a page from a given identity and pools, without requests to the API."""
        return Shell(
            title=title,
            section=section,
            here=self.here,
            identity=identity,
            pools=pools,
            csrf=csrf_token(self.token, secrets.token_hex(8)),
            preferences=self.preferences,
            range=self.range,
            range_problem=self.range_problem,
            partial=tuple(dict.fromkeys(self.failures)),
            stale_seconds=max(self.stale_ages, default=None),
            as_of=self.now,
            clusters=bool(self.site.clusters),
        )

    async def first_pools(self, most: int | None = MOST_POOLS) -> Taken[PoolSummary]:
        """Return the first `most` pools by namespace and name, or all pools (None). Raises ApiProblem."""
        if self.ahead is not None and (most is None or most >= MOST_POOLS):
            taken = await self.ahead.pools
            if not taken.cut or most == MOST_POOLS:
                return taken
        return await first_pools(self.api, most)

    async def _identity(self) -> Identity:
        if self.identity is not None:
            return self.identity
        return await (self.api.whoami() if self.ahead is None else self.ahead.identity)

    async def _pools(self) -> Taken[PoolSummary]:
        """Return the pools for the frame; no pools if the person may not see any. A missing right is not noted as a
        problem on the page.
        """
        none: Taken[PoolSummary] = Taken(items=[], cut=False, total=0)

        async def in_sight() -> Taken[PoolSummary]:
            try:
                return await self.first_pools()
            except ApiProblem as error:
                if error.problem.status != 403:
                    raise
                return none

        return await self.attempt("pools", in_sight()) or none

    async def _beyond(self, taken: Taken[PoolSummary], own: str | None) -> PoolSummary | None:
        """Return the pool of the page if it is not among the pools that were read. The page needs it to decide what to
        offer.
        """
        if own is None or not taken.cut or any(f"{one.namespace}/{one.name}" == own for one in taken.items):
            return None
        return await self.attempt("pool", self._pool_named(own))

    async def _pool_named(self, name: str) -> PoolSummary | None:
        """Return the pool with this name; None if the name in the address is invalid."""
        try:
            return (await self.api.pool(PoolKey.parse(name), instances=False)).pool
        except ValueError:
            return None
        except ApiProblem as error:
            if error.problem.status not in {403, 404}:
                raise
            return None

    def page(self, context: Context, status: int = 200) -> Response:
        """Render the page, or only the regions that the request names.

        A region is a template block with the name of its element's id. A name without a block is skipped.
        """
        headers = {"Vary": f"HX-Request, HX-Request-Type, {REGIONS_HEADER}, Cookie", "Fairlead-Release": self.site.assets.version}
        wanted = regions_of(self.request)
        if not wanted:
            return HTMLResponse(self.site.renderer.render(context), status, headers)
        return HTMLResponse(self.site.renderer.regions(context, wanted), status, headers)

    def redirect(self, path: str) -> Response:
        """Redirect the browser to a page after a write.

        htmx gets the path in a header, because it would follow an HTTP redirect without showing the new address.
        """
        if self.request.headers.get("hx-request"):
            return Response(status_code=204, headers={"HX-Redirect": self.link(path)})
        return RedirectResponse(self.link(path), 303)

    def back_to(self, path: str, *without: str) -> Response:
        """Redirect the browser after a write to the page at `path`, with the filters and the place in lists that the
        address of the write contains (`Here.write`), except the parameters named in `without`.
        """
        return self.redirect(with_query(path, {name: value for name, value in self.here.params.items() if name not in without}))

    async def form(self) -> FormData:
        """Return the submitted form; its form token has already been checked."""
        return await self.request.form()


def regions_of(request: Request) -> tuple[str, ...]:
    """Return the ids of the regions that an open page requests again, at most REGIONS_MOST; empty if the request is for
    the whole page.
    """
    return tuple(request.headers.get(REGIONS_HEADER, "").split()[:REGIONS_MOST])


async def _known(answer: Answer) -> Answer:
    return answer


def with_own(pools: Sequence[PoolSummary], summary: PoolSummary) -> list[PoolSummary]:
    """Return the pools with `summary` in place of the pool of the same name, or at the end if there is none."""
    place = next((at for at, one in enumerate(pools) if (one.namespace, one.name) == (summary.namespace, summary.name)), len(pools))
    return [*pools[:place], summary, *pools[place + 1 :]]


def problem_of(error: ClientError) -> Problem:
    """Convert an API client's error to a problem document. An unreachable API becomes a 503."""
    if isinstance(error, ApiProblem):
        return error.problem
    return Problem(type="unreachable", title="The control API is not reachable", status=503, detail=str(error))


def preferences_of(request: Request) -> Preferences:
    """Return the preferences in the request's cookies. Unknown values become the default."""
    theme = request.cookies.get(THEME_COOKIE, "auto")
    mode = request.cookies.get(TIME_COOKIE, "relative")
    density = request.cookies.get(DENSITY_COOKIE, "comfortable")
    return Preferences(
        theme=theme if theme in THEMES else "auto",
        time_mode=mode if mode in TIME_MODES else "relative",
        shortcuts=request.cookies.get(SHORTCUTS_COOKIE, "on") != "off",
        zone=zone_of(request.cookies.get(ZONE_COOKIE, "")) or "UTC",
        density=density if density in DENSITIES else "comfortable",
    )


def zone_of(text: str) -> str | None:
    """Return the name of a time zone, such as Europe/Berlin, from a cookie's value, in which the slash is encoded; None
    for any other text.
    """
    name = text.replace("%2F", "/").strip()
    return name if name in known_zones() else None


def here_of(request: Request, base: str) -> Here:
    """Return the current address without empty parameters. Of repeated parameters, the last one counts."""
    path = quote(str(request.scope["path"]), safe="/:@!$&'()*+,;=~")
    return Here(base=base, path=path.removeprefix(base) or "/", params={k: v for k, v in request.query_params.items() if v})


def visit_of(site: Site, request: Request, token: str, stale_ages: list[int]) -> Visit:
    """Return the visit of a request. A time range that cannot be read is replaced by the default, which the page
    reports.
    """
    now = site.clock()
    here = here_of(request, site.settings.base_path)
    problem = None
    try:
        chosen = parse_range(here.params.get("from"), here.params.get("to"), now)
    except InvalidInput as error:
        chosen, problem = parse_range(None, None, now), str(error)
    return Visit(
        site=site,
        request=request,
        token=token,
        api=site.api.with_token(token),
        here=here,
        range=chosen,
        range_problem=problem,
        preferences=preferences_of(request),
        now=now,
        failures=[],
        stale_ages=stale_ages,
    )

"""`/sessions`: which session's KV cache lives where; one session's holders over time."""

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.moves import Migration, ReRoute
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.sessions import SessionDetail, SessionSummary
from fairlead_web.charts import HolderBand, holder_band
from fairlead_web.rendering import Context
from fairlead_web.routes import Export, Routes
from fairlead_web.shells import Crumb, Shell
from fairlead_web.visits import Visit


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsPage(Context):
    template: ClassVar[str] = "pages/sessions.html"
    shell: Shell
    listing: Listing[SessionSummary]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage(Context):
    template: ClassVar[str] = "pages/session.html"
    shell: Shell
    detail: SessionDetail
    band: HolderBand
    migrations: list[Migration] | None
    reroutes: list[ReRoute] | None
    decisions: list[RoutingDecision] | None


FILTERS = ("pool", "instance", "q")


async def index(visit: Visit) -> Response:
    listing = await visit.api.sessions(visit.filters(*FILTERS))
    shell = await visit.shell("Sessions", "sessions", crumbs=(Crumb(words="Sessions"),), pool=visit.param("pool"), live="migrations")
    return visit.page(SessionsPage(shell=shell, listing=listing))


async def show(visit: Visit) -> Response:
    key, session = visit.pool_key(), visit.request.path_params["session"]
    detail, migrations, reroutes, decisions = await asyncio.gather(
        visit.api.session(key, session),
        visit.attempt("migrations", visit.api.migrations({"pool": str(key), "session": session, "limit": 50})),
        visit.attempt("re-routes", visit.api.reroutes({"pool": str(key), "session": session, "limit": 20})),
        visit.attempt("decisions", visit.api.decisions({"pool": str(key), "session": session, "limit": 20})),
    )
    shell = await visit.shell(
        f"Session {session}",
        "sessions",
        crumbs=(Crumb(words="Sessions", path="/sessions"), Crumb(words=str(key), path=f"/sessions?pool={key}"), Crumb(words=session)),
        pool=str(key),
        live="migrations,reroutes,decisions",
    )
    return visit.page(
        SessionPage(
            shell=shell,
            detail=detail,
            band=holder_band(detail.history, visit.now),
            migrations=migrations.items if migrations else None,
            reroutes=reroutes.items if reroutes else None,
            decisions=decisions.items if decisions else None,
        )
    )


ROUTES = Routes(
    pages={"/sessions": index, "/sessions/{namespace}/{name}/{session:path}": show},
    exports={"/sessions": Export(name="sessions", filters=FILTERS)},
)

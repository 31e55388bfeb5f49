"""`/sessions`: which session's KV cache lives where; one session's holders over time."""

import asyncio

from starlette.responses import Response

from fairlead_web.charts import holder_band
from fairlead_web.contexts.traffic import SessionPage, SessionsPage
from fairlead_web.shells import Crumb
from fairlead_web.visits import Visit


async def index(visit: Visit) -> Response:
    listing = await visit.api.sessions(visit.filters("pool", "instance", "q"))
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

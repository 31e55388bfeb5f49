"""`…/instances/{id}/log`: the last lines of an instance's log, live, with a search. Also shows the events of the
instance's pod and the figures of its engine.
"""

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from fairlead_client.problems import ApiProblem
from fairlead_client.public.calling import Query
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.instances import InstanceDetail
from fairlead_client.resources.pods import PodEvents, PodLog
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats
from fairlead_web.text.addresses import instance_path

LINES = 300
"""Number of lines of the log that are shown."""
LIVE_SECONDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLogPage(Context):
    """The page of a log. `log` is None if it cannot be read; `missing` then gives the reason. The log is read again
    every `live_seconds`; 0 means never, for the log of a former container, which does not grow.
    """

    template: ClassVar[str] = "pages/pod_log.html"
    shell: Shell
    pool: str
    detail: InstanceDetail
    log: PodLog | None
    missing: str | None
    events: PodEvents | None
    search: str
    container: str
    previous: bool
    live_seconds: int
    command: str


async def show(visit: Visit) -> Response:
    key, name = visit.pool_key(), str(visit.request.path_params["instance"])
    pool, search, container, previous = str(key), visit.param("q") or "", visit.param("container"), visit.param("previous") == "true"
    detail, (log, missing), events = await asyncio.gather(
        visit.api.instance(key, name),
        _log(visit, name, search, container, previous=previous),
        visit.attempt("the pod's events", visit.api.pod_events(key, name)),
    )
    at = instance_path(pool, name)
    shell = await visit.shell(
        f"Log of {name}",
        "pools",
        crumbs=crumbs_below(
            pool, Crumb(words="Instances", path=f"/pools/{pool}/instances"), Crumb(words=name, path=at), Crumb(words="Log and events")
        ),
        pool=pool,
        tab="instances",
        about={"instance": name},
    )
    return visit.page(
        PodLogPage(
            shell=shell,
            pool=pool,
            detail=detail,
            log=log,
            missing=missing,
            events=events,
            search=search,
            container=container or "",
            previous=previous,
            live_seconds=0 if previous or log is None else LIVE_SECONDS,
            command=f"kubectl -n {key.namespace} logs {name} --tail={LINES}{' --previous' if previous else ' -f'}",
        )
    )


async def _log(visit: Visit, name: str, search: str, container: str | None, *, previous: bool) -> tuple[PodLog | None, str | None]:
    """Return the log and no reason; or None and the reason why there is none."""
    query: Query = {"lines": LINES, "search": search, "container": container, "previous": previous or None}
    try:
        return await visit.api.pod_log(visit.pool_key(), name, query), None
    except ApiProblem as error:
        if error.problem.status == 404:
            return None, "The pod is gone, and its log with it. What Kubernetes did with it is below, as long as its events are kept."
        if error.problem.status == 403:
            return None, f"Reading logs needs the role {AccessRole.OPERATOR.value}, because they may have text of clients."
        if error.problem.status not in {409, 422, 503}:
            raise
        return None, formats.told(error.problem.detail, error.problem.remedy)


ROUTES = Routes(pages={f"{POOL}/instances/{{instance}}/log": show})

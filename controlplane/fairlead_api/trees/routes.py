"""Routes of session trees, the figures of tasks, and think times."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import Depends, Query

from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.features import Feature, Infra
from fairlead_api.http.answers import answer
from fairlead_api.http.documents import Ask, document
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.session_names import SessionNames
from fairlead_api.infra.times import parse_range
from fairlead_api.trees.store.reads import PostgresTrees
from fairlead_api.trees.store.task_rollups import PostgresTaskRollups
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.slo import SloTaskBurn, SloTasks, TaskBurnWindow, TaskShare
from fairlead_client.resources.trees import SessionTree, TaskFigures, TaskList, ThinkTimes

From = Annotated[str, Query(alias="from")]
To = Annotated[str, Query(alias="to")]


def tree_routes(guard: Guard, reader: PostgresTrees, names: SessionNames, clock: Callable[[], datetime], kept: timedelta) -> Routes:
    """Return the routes of trees, tasks and think times under /v1. `kept` says how long rollups are kept."""
    routes = Routes(prefix="/v1", tags=["history"])
    viewer = guard.needs(AccessRole.VIEWER, somewhere=True)

    async def get_tasks(pool: str | None = None) -> Ask:
        """The 100 tasks with the newest turns, each with the sums over all its turns; with `pool`, only tasks of that
        pool.
        """
        return lambda sight: reader.tasks(pool, sight, clock())

    document(routes, "/tasks", TaskList, viewer, get_tasks, TaskFigures, lambda found: found.tasks)

    @routes.get("/trees/{namespace}/{name}/{session:path}", response_model=SessionTree)
    async def get_tree(namespace: str, name: str, session: str, caller: Annotated[Caller, Depends(viewer)]) -> Any:
        """The tree of sessions that contains a session: its sessions, tasks and turns. At most the first 200 sessions,
        and their 2,000 newest turns. The tree has no sessions if no request of the session is recorded.

        The session is named by its identity, or by its client's name if sessions of only one gateway key have this
        name.
        """
        pool = PoolKey(namespace=namespace, name=name)
        return answer(await reader.tree(pool, await names.identity(pool, session), clock()))

    @routes.get("/pools/{namespace}/{name}/think-times", response_model=ThinkTimes)
    async def get_think_times(namespace: str, name: str, caller: Annotated[Caller, Depends(viewer)]) -> Any:
        """The times that sessions waited between a response and their next turn, by tenant and tool, from the pool's
        20,000 newest recorded requests.
        """
        return answer(await reader.think_times(PoolKey(namespace=namespace, name=name)))

    async def get_slo_tasks(namespace: str, name: str, start: From = "now-1d", end: To = "now") -> Ask:
        """The attainment of the targets of whole tasks (`spec.slo.task`) by the tasks that ended in this time, by
        version and priority class. If very many tasks ended, only the newest 20,000 are judged.
        """
        now, pool = clock(), PoolKey(namespace=namespace, name=name)
        begun, ended = parse_range(start, end, now)
        assert begun is not None
        assert ended is not None
        return lambda sight: reader.slo_tasks(pool, begun, ended, now)

    document(routes, "/pools/{namespace}/{name}/slo/tasks", SloTasks, viewer, get_slo_tasks, TaskShare, lambda found: found.shares)

    async def get_slo_task_burn(namespace: str, name: str) -> Ask:
        """The burn rates of the error budgets of the targets of whole tasks, over four windows of time, by priority
        class. Tasks are rolled up by the hour in which they ended.
        """
        return lambda sight: reader.slo_task_burn(PoolKey(namespace=namespace, name=name), clock(), kept)

    document(
        routes,
        "/pools/{namespace}/{name}/slo/tasks/burn",
        SloTaskBurn,
        viewer,
        get_slo_task_burn,
        TaskBurnWindow,
        lambda found: found.windows,
    )

    return routes


def counting_of(infra: Infra) -> PostgresTaskRollups:
    """Return the job that counts tasks that are over."""
    return PostgresTaskRollups(infra.background)


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of trees, tasks and think times."""
    kept = timedelta(days=infra.settings.retention.rollups_1m_days)
    return Feature(routes=(tree_routes(guard, PostgresTrees(infra.reads), SessionNames(infra.reads), infra.clock, kept),))

"""Addresses of all kinds of pages over the fake public API."""

from fairlead_testing.fakes.public_data.loads import HOSTILE
from fairlead_web.text.addresses import instance_path, pool_path, session_path, tree_path


def addresses(pool: str, instance: str) -> tuple[str, ...]:
    """Every page at least once, with this pool and one of its instances."""
    at = pool_path(pool)
    of_sessions = (session_path(pool, HOSTILE), tree_path(pool, HOSTILE))
    return (*_FLEET, *of_sessions, instance_path(pool, instance), *(at + path for path in _POOL))


_FLEET = (
    "/",
    "/advice",
    "/pools",
    "/sessions",
    "/migrations",
    "/migrations?pool=default/nowhere",
    "/migrations/m-0005",
    "/reroutes",
    "/reroutes/q-0003",
    "/decisions",
    "/decisions/d-0004",
    "/rejections",
    "/simulator",
    "/slo",
    "/schedules",
    "/keys",
    "/audit",
    "/audit/56",
    "/search?q=c",
    "/settings",
    "/help",
    "/plans/p-0001",
    "/plans/p-0002",
    "/plans/p-0003",
    "/plans/p-0004",
)
_POOL = (
    "",
    "/heatmap?metric=ttft_p95&sort=max",
    "/heatmap?view=table",
    "/instances",
    "/differences",
    "/spec",
    "/ring",
    "/predictor",
    "/engine",
    "/scaling",
    "/tasks",
    "/ring?add=1&anchors=80",
    "/simulator/sim-0001?with=sim-0002",
    "/slo",
    "/series?metrics=attainment,goal,ttft_p95",
)

"""The addresses of pages of all kinds, and the objects that the fake public API needs for them."""

from dataclasses import replace
from datetime import timedelta

from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.schedules import NextStart, ScheduleItem
from fairlead_client.resources.simulations import SimulatedPolicy, SimulationRequest
from fairlead_testing.builders.wire_examples import example
from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.fakes.public_data.loads import HOSTILE, INSTANCES
from fairlead_web.text.addresses import instance_path, pool_path, schedule_path, session_path, tree_path

SCHEDULE = "office-hours-in-the-week"
POLICIES = [SimulatedPolicy(policy="fairlead"), SimulatedPolicy(policy="ear", parameters={"cooldown_seconds": 60})]


def furnish(fake: FakePublicApi, pool: str, instance: str) -> None:
    """Make the objects of the addresses: four plans, two simulations and a schedule of the pool.

    Its instances are in all states of their lifecycle: two of them sleep, and another wakes.
    """
    *_, waking, one, other, _, _ = INSTANCES[pool]
    fake.world.asleep, fake.world.waking = {one, other}, {waking}
    fake.book.make(pool, 7, "ada")
    fake.book.make(pool, 0, "ada")
    fake.book.plan(pool, PlanKind.SLO, {"slo": {"ttft": "3s"}}, "ada")
    fake.book.plan(pool, PlanKind.CORDON, {"fairlead.dev/cordoned": "true"}, "ada", instance=instance)
    for seed in (1, 2):
        fake.simulations.simulated(pool, SimulationRequest(policies=POLICIES, rates=[1.0, 1.5], seed=seed))
    start = NextStart(at=fake.world.now + timedelta(days=2), local="Mon 2026-11-30 08:00 CET")
    fake.world.schedules = [replace(example(ScheduleItem), pool=pool, name=SCHEDULE, paused=False, next_starts=[start])]


def addresses(pool: str, instance: str) -> tuple[str, ...]:
    """Return the address of every kind of page at least once, for this pool and this instance of it."""
    at = pool_path(pool)
    of_sessions = (session_path(pool, HOSTILE), tree_path(pool, HOSTILE))
    of_instance = (instance_path(pool, instance) + part for part in ("", "/explanation", "/log", "/metrics"))
    return (*_FLEET, *of_sessions, schedule_path(pool, SCHEDULE), *of_instance, *(at + path for path in _POOL))


_FLEET = (
    "/",
    "/advice",
    "/clusters",
    "/pools",
    "/pools/new",
    "/sessions",
    "/migrations",
    "/migrations?pool=default/nowhere",
    "/migrations/m-0005",
    "/reroutes",
    "/reroutes/q-0003",
    "/decisions",
    "/decisions/d-0004",
    "/rejections",
    "/cost?by=key",
    "/cost?by=session",
    "/simulator",
    "/slo",
    "/schedules",
    "/keys",
    "/keys?edit=k-0",
    "/notices",
    "/pause-migrations",
    "/audit",
    "/audit/56",
    "/search?q=c",
    "/settings",
    "/docs",
    "/help",
    "/plans/p-0001",
    "/plans/p-0002",
    "/plans/p-0003",
    "/plans/p-0004",
)
OF_AN_EMPTY_SYSTEM = (
    "/",
    "/advice",
    "/pools",
    "/pools/new",
    "/sessions",
    "/migrations",
    "/reroutes",
    "/decisions",
    "/rejections",
    "/cost",
    "/simulator",
    "/slo",
    "/schedules",
    "/keys",
    "/notices",
    "/pause-migrations",
    "/audit",
    "/search?q=c",
    "/settings",
    "/help",
)
"""The addresses of pages that exist even without a pool."""
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
    "/sessions",
    "/schedules",
    "/forecast",
    "/canary",
    "/policy",
    "/test",
    "/edit",
    "/audit",
    "/comments",
    "/ring?add=1&anchors=80",
    "/simulator/sim-0001?with=sim-0002",
    "/slo",
    "/series?metrics=attainment,goal,ttft_p95",
)

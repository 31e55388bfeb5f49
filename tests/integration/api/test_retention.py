"""Rows older than their setting are deleted, except rows to which others still refer."""

from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from fairlead.errors import InvalidInput
from fairlead.reports.objectives import SloSample
from fairlead_api.infra.database import Database
from fairlead_api.settings import Retention, read_settings
from fairlead_api.upkeep.store import SWEEPS, Sweep, deletion, sweep
from fairlead_cli.verify import collect
from fairlead_client.resources.access import AccessRole, LoginLinkRequest
from fairlead_client.verifying import Verifier
from fairlead_testing.running.api import CHAT, ApiInstance, a_binding, a_load, a_report, a_state, an_instance, running_api
from fairlead_testing.running.postgres import plain

OLD = timedelta(days=40)
GROWING = {one.table for sweeps in SWEEPS.values() for one in sweeps}
FOR_EVER = {
    "pools",
    "pool_revisions",
    "slo_configs",
    "api_tokens",
    "gateway_keys",
    "webhooks",
    "users",
    "audit_log",
    "audit_heads",
    "audit_views",
    "comments",
}
DROPPED = {"canary_samples", "decisions", "rejections", "load_samples", "slo_samples", "arrivals", "recorded_requests"}
OTHERWISE = {
    *DROPPED,
    "rollup_queue",
    "move_rollup_queue",
    "session_names",
    "alembic_version",
    "engine_fits",
    "kept_sessions",
    "task_turns",
}
"""Tables without a setting of their own: dropped by the day, taken by the rollups, or deleted with their parent row.

Others have one row a pool, or at most twenty a pool, of which old ones are deleted when the next is kept.
"""


def rows(url: str, query: str) -> list[Any]:
    with psycopg.connect(plain(url)) as connection:
        return [row[0] for row in connection.execute(query.encode()).fetchall()]


def age(url: str, *statements: str) -> None:
    with psycopg.connect(plain(url)) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def test_every_table_has_a_retention_or_a_reason_for_none(database_url: str) -> None:
    tables = set(rows(database_url, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"))
    whole = {name for name in tables if not name.rpartition("_")[2].isdigit()}
    assert whole == GROWING | FOR_EVER | OTHERWISE


async def test_history_goes_with_its_bindings_and_what_is_held_stays(database_url: str) -> None:
    async with running_api(database_url, retention=Retention(history_days=30)) as api:
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
        await api.router.post_report(a_report("r1", bindings=(a_binding("moved", "a"), a_binding("ended", "a"), a_binding("recent", "a"))))
        for session in ("moved", "ended", "recent"):
            change = a_binding(session, "b", previous="a", based_on=1)
            await api.router.post_report(a_report(f"r2-{session}", bindings=(change,)))
        age(
            database_url,
            f"UPDATE bindings SET bound_at = bound_at - interval '{OLD.days} days', released_at = released_at - interval '{OLD.days} days' "
            "WHERE session <> 'recent'",
            f"UPDATE migrations SET at = at - interval '{OLD.days} days' WHERE session <> 'recent'",
            f"UPDATE bindings SET released_at = now() - interval '{OLD.days - 1} days' WHERE session = 'ended' AND version = 2",
            f"UPDATE sessions SET instance = NULL, last_seen_at = now() - interval '{OLD.days - 1} days' WHERE session = 'ended'",
        )
        assert len(rows(database_url, "SELECT id FROM migrations")) == 3
        await api.app.state.upkeep.keep_days(api.clock())
        assert rows(database_url, "SELECT session FROM sessions ORDER BY 1") == ["moved", "recent"]
        assert rows(database_url, "SELECT session FROM session_names ORDER BY 1") == ["moved", "recent"]
        kept = rows(database_url, "SELECT session || version FROM bindings ORDER BY 1")
        assert kept == ["moved2", "recent1", "recent2"]  # who holds `moved` now stays, however long ago it came
        assert rows(database_url, "SELECT session FROM migrations ORDER BY 1") == ["moved", "recent"]  # and with it how it came
        detail = await api.viewer.session(CHAT, "moved")
        assert [holder.version for holder in detail.history] == [2]


async def test_no_history_contradicts_itself_while_it_is_deleted(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()

    async def looked_at(database: Database, one: Sweep, before: datetime) -> int:
        deleted = await sweep(database, one, before)
        seen.update((await collect(api.viewer, None, 0, 100, 100)).found)
        return deleted

    monkeypatch.setattr("fairlead_api.upkeep.store.BATCH", 2)
    monkeypatch.setattr("fairlead_api.upkeep.store.sweep", looked_at)
    async with running_api(database_url, retention=Retention(history_days=30)) as api:
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
        for number in range(6):
            home, left = ("b", "a") if number % 2 else ("a", "b")
            changes = (a_binding(name, home, previous=left if number else None, based_on=number) for name in ("s", "t"))
            await api.router.post_report(a_report(f"r{number}", bindings=tuple(changes)))
        age(
            database_url,
            "UPDATE bindings SET bound_at = bound_at - interval '40 days', released_at = released_at - interval '40 days'",
            "UPDATE migrations SET at = at - interval '40 days'",
            # the newest rows are found first, as after many updates of a table
            "CREATE TABLE turned AS SELECT * FROM bindings ORDER BY session, version DESC",
            "TRUNCATE bindings",
            "INSERT INTO bindings SELECT * FROM turned",
            "DROP TABLE turned",
        )
        listed = (await api.viewer.migrations()).items
        assert len(listed) == 10
        before = set((await collect(api.viewer, None, 0, 100, 100)).found)  # these reports have no figures
        await api.app.state.upkeep.keep_days(api.clock())
        assert seen <= before
        late = Verifier()
        for migration in listed:
            await late.migration(migration, api.viewer)
        assert set(late.found) <= before, "a migration that was listed before retention deleted it is no contradiction"
        assert rows(database_url, "SELECT session || version FROM bindings ORDER BY 1") == ["s6", "t6"]


async def test_a_long_history_is_deleted_by_looking_at_each_of_its_rows_once(api: ApiInstance, database_url: str) -> None:
    """Reading all earlier rows of a session for each row took minutes for a session of 60,000."""
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    age(
        database_url,
        "INSERT INTO bindings (pool_id, session, version, instance, reason, router, bound_at, released_at, migration) "
        "SELECT p.id, 's', v, 'a', 'cold', 'r', now() - interval '300 days' + v * interval '1 s', "
        "now() - interval '300 days' + (v + 1) * interval '1 s', 'm-' || v FROM pools p, generate_series(1, 3000) v",
        "ANALYZE bindings",
    )
    (one,) = [one for one in SWEEPS["history_days"] if one.table == "bindings"]
    with psycopg.connect(plain(database_url)) as connection:
        statement = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {deletion(one)}".replace(":before", "now()")
        (plan,) = connection.execute(statement.encode()).fetchone() or ([],)
    assert 3000 <= read_of(plan[0]["Plan"], "bindings") <= 3 * 3000
    assert rows(database_url, "SELECT count(*) FROM bindings") == [0]


def read_of(plan: dict[str, Any], table: str) -> float:
    """Return the number of rows of a table that a plan read, counting repeated reads."""
    own = plan["Actual Rows"] * plan["Actual Loops"] if plan.get("Relation Name") == table and plan["Node Type"] != "ModifyTable" else 0
    return float(own) + sum(read_of(one, table) for one in plan.get("Plans", ()))


async def test_the_table_in_force_and_instances_that_hold_sessions_stay(database_url: str) -> None:
    async with running_api(database_url, retention=Retention(routing_tables_days=30, events_days=30)) as api:
        for version, names in enumerate((["a"], ["a", "b"], ["b"]), 1):
            await api.pool_operator.put_pool_state(CHAT, a_state(*(an_instance(name) for name in names), version=version))
        age(
            database_url,
            "UPDATE routing_tables SET created_at = created_at - interval '40 days'",
            "UPDATE instances SET gone_at = gone_at - interval '40 days'",
            "UPDATE instance_transitions SET at = at - interval '40 days' WHERE instance = 'a'",
        )
        assert len(rows(database_url, "SELECT version FROM routing_tables")) == 3
        await api.app.state.upkeep.keep_days(api.clock())
        assert rows(database_url, "SELECT version FROM routing_tables") == [3]
        assert rows(database_url, "SELECT id FROM instances") == ["b"]
        assert set(rows(database_url, "SELECT instance FROM instance_transitions")) == {"b"}


@pytest.mark.parametrize("deleted", [1, 30, 59])
@pytest.mark.parametrize(
    ("minutes_days", "query", "whole"),
    [
        (90, "SELECT sum(judged)::bigint FROM slo_rollups_1h", 60),
        (2, "SELECT sum(busy_milliseconds)::bigint / 1000 FROM work_hours", 60),
    ],
)
async def test_an_hour_that_is_kept_loses_nothing_by_a_sample_that_comes_when_its_minutes_are_being_deleted(
    database_url: str, minutes_days: int, query: str, whole: int, deleted: int
) -> None:
    kept = Retention(load_samples_days=2, rollups_10s_days=2, rollups_1m_days=minutes_days)
    async with running_api(database_url, retention=kept) as api:
        api.clock.stop()
        begun = api.clock().replace(minute=0, second=0, microsecond=0)
        api.clock.skip((begun + timedelta(hours=1) - api.clock()).total_seconds())

        async def report(name: str, *ats: datetime) -> None:
            seconds = [int(at.timestamp()) for at in ats]
            judged = tuple(SloSample(pool=CHAT, second=second, priority_class="default", slo_version=1, judged=1) for second in seconds)
            loads = tuple(a_load("a", second) for second in seconds)
            await api.router.post_reports(a_report(name, at=api.clock().timestamp(), loads=loads, slo_samples=judged))
            await api.app.state.upkeep.roll_up(api.clock() + timedelta(minutes=1))

        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
        await report("in time", *(begun + timedelta(minutes=minute) for minute in range(60)))
        assert rows(database_url, query) == [whole]
        api.clock.skip(2 * 86_400 - 3600 + 60 * deleted)
        await api.app.state.upkeep.keep_days(api.clock())
        await report("late", begun + timedelta(minutes=59, seconds=30))
        assert rows(database_url, query) == [whole]
        await report("in time too", begun + timedelta(hours=2, minutes=deleted + 1))
        assert rows(database_url, query) == [whole + 1]


async def test_credentials_that_ended_and_old_reports_go(api: ApiInstance, database_url: str) -> None:
    living = await api.base.login((await api.admin.create_login_link(LoginLinkRequest(role=AccessRole.VIEWER))).token)
    await api.router.post_report(a_report("r1"))
    age(
        database_url,
        "INSERT INTO web_sessions SELECT '\\x00', subject, role, source, created_at, last_used_at, now() - interval '40 days' FROM web_sessions",
    )
    assert len(rows(database_url, "SELECT subject FROM web_sessions")) == 2
    await api.app.state.upkeep.keep_days(api.clock())
    assert len(rows(database_url, "SELECT subject FROM web_sessions")) == 1
    assert (await api.base.with_token(living.token).pools()).items == []
    api.clock.skip(8 * 86400)
    await api.app.state.upkeep.keep_days(api.clock())
    assert rows(database_url, "SELECT id FROM reports") == []


async def test_more_rows_than_one_batch_go_in_one_run(api: ApiInstance, database_url: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    age(
        database_url,
        "INSERT INTO instance_transitions (pool_id, instance, at, after, reason) "
        "SELECT p.id, 'a', now() - interval '1 year', 'Serving', 'x' FROM pools p, generate_series(1, 12001)",
    )
    await api.app.state.upkeep.keep_days(api.clock())
    assert rows(database_url, "SELECT count(*) FROM instance_transitions WHERE at < now() - interval '1 day'") == [0]


ENVIRONMENT = {"FAIRLEAD_DATABASE_URL": "postgresql+psycopg://app@/x"}


def test_each_retention_has_a_variable() -> None:
    given = {f"FAIRLEAD_KEEP_{name.upper()}": str(number) for number, name in enumerate(Retention.__slots__, 3)}
    kept = read_settings({**ENVIRONMENT, **given}).retention
    assert [getattr(kept, name) for name in Retention.__slots__] == list(range(3, 3 + len(given)))
    assert read_settings(ENVIRONMENT).retention == Retention()


@pytest.mark.parametrize("value", ["0", "-1", "7d", "36501"])
def test_a_retention_that_is_no_number_of_days_is_refused_by_name(value: str) -> None:
    with pytest.raises(InvalidInput, match="FAIRLEAD_KEEP_HISTORY_DAYS"):
        read_settings({**ENVIRONMENT, "FAIRLEAD_KEEP_HISTORY_DAYS": value})

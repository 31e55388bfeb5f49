"""Fairlead works with common databases, roles and poolers, or says in one line why it does not."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg import sql
from sqlalchemy import text

from fairlead_api.infra.connections import connected
from fairlead_api.infra.database import CONTROL, Database
from fairlead_api.infra.pulse import DEAF, Pulse
from fairlead_api.infra.upgrading import upgrade
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole, TokenRequest
from fairlead_testing.running.api import ApiInstance, running_api, until_ready
from fairlead_testing.running.postgres import fresh_database, plain, with_database
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.poolers import pooler


@pytest.fixture
def empty(postgres_url: str) -> Iterator[str]:
    with fresh_database(postgres_url, template=False) as url:
        yield url


def altered(url: str, statement: str) -> None:
    name = plain(url).partition("?")[0].rpartition("/")[2]
    with psycopg.connect(plain(url), autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(sql.Identifier(name)))


def migrating(url: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "fairlead_api.migrating", "--wait-for-database", "0"]
    environment = {**os.environ, "FAIRLEAD_DATABASE_URL": url}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


@pytest.mark.parametrize(
    "setting",
    [
        "DateStyle = 'German'", "DateStyle = 'SQL, DMY'", "DateStyle = 'Postgres, YMD'", "IntervalStyle = 'iso_8601'", "TimeZone = 'America/New_York'",
        "standard_conforming_strings = off", "transform_null_equals = on", "array_nulls = off", "synchronous_commit = off", "client_encoding = 'LATIN1'",
        "statement_timeout = '2s'", "bytea_output = 'escape'",
    ],
)  # fmt: skip
async def test_what_a_database_sets_for_its_sessions_changes_nothing(database_url: str, setting: str) -> None:
    altered(database_url, f"ALTER DATABASE {{}} SET {setting}")
    async with running_api(database_url) as api:
        made = await api.admin.create_token(TokenRequest(name="顧客 ß", role=AccessRole.VIEWER))
        assert [one.name for one in (await api.admin.tokens()).items if one.id == made.id] == ["顧客 ß"]
        assert (await api.admin.audit({"action": "token.created"})).items[0].at is not None


def test_a_session_is_durable_even_where_the_database_is_not(database_url: str) -> None:
    altered(database_url, "ALTER DATABASE {} SET synchronous_commit = off")
    with connected(database_url) as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    altered(database_url, "ALTER DATABASE {} SET synchronous_commit = remote_apply")
    with connected(database_url) as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("remote_apply",), "stronger settings stay"


async def test_a_pooler_in_session_mode_works_and_every_session_has_its_settings(database_url: str) -> None:
    async with pooler(database_url) as url:
        async with running_api(url) as api:
            await until_ready(api)
            assert (await api.viewer.pools()).items == []
        database = Database(CONTROL, Pulse(url))
        async with database.reading() as connection:
            found = [
                (await connection.execute(text(f"SHOW {name}"))).scalar() for name in ("TimeZone", "statement_timeout", "lock_timeout")
            ]
        await database.close()
    assert found == ["UTC", "15s", "2s"]


async def test_a_pooler_in_transaction_mode_is_said_and_not_ready(database_url: str) -> None:
    async with pooler(database_url, transactions=True) as url, running_api(url) as api:
        await until_it_says(api, DEAF)


async def test_a_database_without_tables_is_not_ready_and_says_what_to_run(empty: str) -> None:
    async with running_api(empty) as api:
        await until_it_says(api, "the database has no tables of Fairlead; run python -m fairlead_api.migrating")
        with pytest.raises(ApiProblem) as caught:
            await api.viewer.pools()
        assert caught.value.problem.status == 503
        await asyncio.to_thread(upgrade, empty)
        await until_ready(api)
        assert (await api.viewer.pools()).items == []


async def test_a_database_of_an_older_version_is_not_ready_until_it_is_migrated(empty: str) -> None:
    await asyncio.to_thread(upgrade, empty, "0065")
    async with running_api(empty) as api:
        await until_it_says(api, "the database is at migration 0065")


async def until_it_says(api: ApiInstance, words: str) -> None:
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(api.app)) as http,
    ):
        while (answer := await http.get("/readyz")).status_code != 503 or words not in answer.json()["detail"]:
            await asyncio.sleep(0.1)


async def refused(url: str, said: str) -> None:
    ended = await asyncio.to_thread(migrating, url)
    assert ended.returncode in {1, 2}
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
    assert said in ended.stderr


async def test_a_role_without_rights_in_the_schema_gets_one_line_with_the_remedy(empty: str) -> None:
    role = f"guest_{uuid4().hex[:8]}"
    with psycopg.connect(plain(empty), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        try:
            connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
            await refused(empty.replace("://fairlead@", f"://{role}@"), "GRANT CREATE ON SCHEMA public")
        finally:
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


async def test_a_database_that_takes_no_writes_gets_one_line_with_the_remedy(empty: str) -> None:
    altered(empty, "ALTER DATABASE {} SET default_transaction_read_only = on")
    await refused(empty, "a server that takes writes")


async def test_a_database_with_another_encoding_than_utf8_is_refused_in_one_line(postgres_url: str) -> None:
    name = f"test_{uuid4().hex[:16]}"
    with psycopg.connect(plain(postgres_url), autocommit=True) as connection:
        made = "CREATE DATABASE {} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        connection.execute(sql.SQL(made).format(sql.Identifier(name)))
        try:
            await refused(with_database(postgres_url, name), "the encoding LATIN1")
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

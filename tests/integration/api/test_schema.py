"""The database's shape, and the API's document, are what the code says."""

import json
from pathlib import Path

import psycopg

from fairlead_api.app import create_api
from fairlead_api.documenting import openapi
from fairlead_api.store.upgrading import check, downgrade, upgrade
from fairlead_testing.running.api import settings_for
from fairlead_testing.running.postgres import fresh_database, plain

ROOT = Path(__file__).resolve().parents[3]


def shape(url: str) -> list[tuple[str, ...]]:
    with psycopg.connect(plain(url)) as connection:
        columns = connection.execute(
            "SELECT table_name, column_name, data_type, is_nullable, coalesce(column_default, '') FROM information_schema.columns "
            "WHERE table_schema = 'public' ORDER BY 1, 2"
        ).fetchall()
        indexes = connection.execute(
            "SELECT tablename, indexdef, '', '', '' FROM pg_indexes WHERE schemaname = 'public' ORDER BY 2"
        ).fetchall()
    return [*columns, *indexes]


def test_migrations_go_up_down_and_up_again_to_the_same_shape(postgres_url: str) -> None:
    with fresh_database(postgres_url, template=False) as url:
        upgrade(url)
        first = shape(url)
        check(url)
        downgrade(url, "base")
        assert {row[0] for row in shape(url)} == {"alembic_version"}
        upgrade(url)
        assert shape(url) == first
        upgrade(url)


def test_a_stored_table_speaks_of_early_rejection_in_the_words_of_today(postgres_url: str) -> None:
    with fresh_database(postgres_url, template=False) as url, psycopg.connect(plain(url), autocommit=True) as connection:
        upgrade(url, "0011_audit_log")
        connection.execute(
            "INSERT INTO pools (id, namespace, name, uid, generation, resource_version, model, changed_by, labels, annotations, conditions, spec, "
            "facts, created_at, observed_at) VALUES (1, 'default', 'chat', 'u', 1, '1', 'm', 'me', '{}', '{}', '[]', '{}', %s, now(), now())",
            (json.dumps({"table": {"early_rejection": {"mode": "Off"}}}),),
        )
        connection.execute(
            "INSERT INTO routing_tables (pool_id, version, uid, generation, content, content_hash) VALUES (1, 1, 'u', 1, %s, '')",
            (json.dumps({"early_rejection": {"mode": "Off", "headroom": 1.0}}),),
        )
        upgrade(url)
        assert connection.execute("SELECT content FROM routing_tables").fetchone() == (
            {"early_rejection": {"mode": "Disabled", "headroom": 1.0}},
        )
        assert connection.execute("SELECT facts FROM pools").fetchone() == ({"table": {"early_rejection": {"mode": "Disabled"}}},)


def test_moves_of_requests_leave_the_migrations_when_the_database_is_upgraded(postgres_url: str) -> None:
    with fresh_database(postgres_url, template=False) as url:
        upgrade(url, "0012_disabled_mode")
        with psycopg.connect(plain(url)) as connection:
            connection.execute(
                "INSERT INTO pools (namespace, name, uid, generation, resource_version, model, spec, labels, annotations, changed_by, "
                "conditions, revision, slo_version, created_at, observed_at) VALUES ('d', 'p', 'u', 1, '1', 'm', '{}', '{}', '{}', 'a', '[]', "
                "1, 1, now(), now())"
            )
            for move, kind, session, request in (
                ("home", "session", "s", "r1"),
                ("queued-with-home", "request", "s", "r2"),
                ("queued", "request", "s", "r3"),
                ("nobody's", "request", None, "r4"),
                ("drained", "session", "s", None),
            ):
                connection.execute(
                    "INSERT INTO migrations (id, pool_id, kind, session, request, source, target, trigger, at, router, "
                    "predicted_source_ttft_seconds, predicted_target_ttft_seconds, benefit_seconds, outcome) "
                    "SELECT %s, id, %s, %s, %s, 'a', 'b', 'hotspot', now(), 'r', 0, 0, 0, 'completed' FROM pools",
                    (move, kind, session, request),
                )
            connection.execute(
                "INSERT INTO bindings (pool_id, session, version, instance, reason, router, bound_at, migration) "
                "SELECT id, 's', 2, 'b', 'hotspot', 'r', now(), 'queued-with-home' FROM pools"
            )
        upgrade(url)
        with psycopg.connect(plain(url)) as connection:
            migrations = connection.execute("SELECT id, benefit_seconds FROM migrations ORDER BY id").fetchall()
            assert migrations == [("drained", None), ("home", 0.0), ("queued-with-home", 0.0)]
            assert connection.execute("SELECT id, request FROM reroutes ORDER BY id").fetchall() == [("nobody's", "r4"), ("queued", "r3")]


def test_the_stored_openapi_document_is_current() -> None:
    document = openapi(create_api(settings_for("postgresql+psycopg://nobody@127.0.0.1:1/none")))
    stored = json.loads((ROOT / "docs" / "openapi.json").read_text())
    assert stored == document, "run: python -m fairlead_api.openapi docs/openapi.json"


def test_every_reference_of_the_document_resolves() -> None:
    document = json.loads((ROOT / "docs" / "openapi.json").read_text())
    text = json.dumps(document)
    names = set(document["components"]["schemas"])
    wanted = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert wanted <= names

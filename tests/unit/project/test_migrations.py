"""Migrations are one chain, and processes of the last release work with the resulting schema (docs/development.md)."""

import re
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from fairlead_api.infra import upgrading
from fairlead_api.tables import PARTITIONED, RETIRED, metadata
from fairlead_testing.builders import database_shape
from fairlead_testing.builders.database_shape import Shape, breaking, recorded, shape
from fairlead_testing.builders.migration_rules import GROWING, faults

FOLDER = Path(__file__).parents[3] / "migrations"
BASELINE = 64
"""Number of the first migration, which replaces all earlier ones."""


@pytest.fixture
def last_release() -> tuple[str, Shape]:
    found = recorded()
    return found if found is not None else pytest.skip("nothing is released yet")


def chain() -> list[Path]:
    """Return every migration's file, the first one first."""
    return [Path(script.path) for script in reversed(list(ScriptDirectory(str(FOLDER)).walk_revisions()))]


def test_migrations_are_one_chain_with_one_head() -> None:
    scripts = ScriptDirectory(str(FOLDER))
    assert len(scripts.get_heads()) == 1, f"two migrations follow the same one: {scripts.get_heads()}; number the later one anew"
    assert len(scripts.get_bases()) == 1
    assert len(list(scripts.walk_revisions())) == len(list((FOLDER / "versions").glob("*.py")))


def test_a_migrations_file_number_and_revision_are_its_place_in_the_chain() -> None:
    revisions = [script.revision for script in reversed(list(ScriptDirectory(str(FOLDER)).walk_revisions()))]
    for number, (path, revision) in enumerate(zip(chain(), revisions, strict=True), start=BASELINE):
        assert re.fullmatch(rf"20\d{{6}}_{re.escape(revision)}\.py", path.name), path.name
        assert revision.startswith(f"{number:04d}_"), f"{path.name} is number {number}"
        assert len(revision) <= 32, f"{revision}: alembic_version takes 32 characters"
    assert upgrading.revisions() == tuple(revisions)
    assert [path.name for path in chain()] == sorted(path.name for path in chain())


@pytest.mark.parametrize(
    "name", [".#20261130_0083_x.py", "._20261130_0083_x.py", "__init__.py", "20261130_0083_x (copy).py", "20261130_0083_x.py~"]
)
def test_a_file_that_is_no_migration_is_no_revision(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a revision, it would be the newest, which no database has, or the oldest, which makes no database too old."""
    (tmp_path / "versions" / "__pycache__").mkdir(parents=True)
    for file in (tmp_path / "env.py", tmp_path / "versions" / "20261130_0064_measured.py", tmp_path / "versions" / name):
        file.write_text("")
    monkeypatch.setattr(upgrading, "_CANDIDATES", (tmp_path,))
    assert upgrading.revisions() == ("0064_measured",)


def test_processes_of_the_last_release_work_with_the_database_of_today(last_release: tuple[str, Shape]) -> None:
    _, then = last_release
    assert breaking(then, shape(metadata), RETIRED) == [], "see docs/development.md, 'Change the database'"


def test_retired_columns_are_those_of_the_last_release_that_no_table_has_any_more() -> None:
    _, then = recorded() or ("", {})
    for table, column in RETIRED:
        assert table in then and column in then[table]["columns"], (
            f"{table}.{column}: no process uses it; drop it by a migration with `contract`"
        )
        assert column not in metadata.tables[table].columns, f"{table}.{column} is used here"


def test_a_release_that_is_recorded_works_with_its_own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_shape, "RECORD", tmp_path / "last_release_database.json")
    assert recorded() is None
    database_shape.record()
    found = recorded()
    assert found is not None
    revision, then = found
    assert revision == chain()[-1].stem.partition("_")[2]
    assert breaking(then, shape(metadata)) == []


def test_no_migration_since_the_last_release_takes_anything_away_or_holds_others_up(last_release: tuple[str, Shape]) -> None:
    revision, _ = last_release
    since = [path for path in chain() if path.stem.partition("_")[2] > revision]
    assert revision in {path.stem.partition("_")[2] for path in chain()}
    assert {path.name: found for path in since if (found := faults(path.read_text()))} == {}


def test_every_table_said_to_grow_is_one() -> None:
    assert metadata.tables.keys() >= GROWING >= PARTITIONED.keys()


@pytest.mark.parametrize(
    ("upgrade", "said"),
    [
        ('op.drop_column("plans", "kind")', "op.drop_column of plans"),
        ('op.drop_table("plans")', "op.drop_table of plans"),
        ('op.rename_table("plans", "changes")', "op.rename_table of plans"),
        ('op.alter_column("plans", "kind", new_column_name="sort")', "op.alter_column of plans"),
        ('op.alter_column("plans", "kind", nullable=False)', "op.alter_column of plans"),
        ('op.alter_column("plans", "kind", type_=sa.BigInteger())', "op.alter_column of plans"),
        ('op.alter_column("plans", "kind", server_default=None)', "op.alter_column of plans"),
        ('op.alter_column("plans", "kind", nullable=True, existing_type=sa.Text())', None),
        ('op.add_column("plans", sa.Column("kind", sa.Text(), nullable=False))', "wanted in every row"),
        ('op.add_column("plans", sa.Column("kind", sa.Text(), nullable=False, server_default=""))', None),
        ('op.add_column("plans", sa.Column("kind", sa.Text(), sa.Computed("id"), nullable=False))', None),
        ('op.add_column("plans", sa.Column("kind", sa.Text(), nullable=True))', None),
        ('op.execute("ALTER TABLE plans RENAME COLUMN kind TO sort")', "SQL that says RENAME"),
        ('op.execute(f"ALTER TABLE {plans} DROP COLUMN kind")', "SQL that says DROP COLUMN"),
        ('op.create_unique_constraint("uq", "plans", ["kind"])', "op.create_unique_constraint of plans"),
        ('op.create_index("uq", "users", ["name"], unique=True)', "a unique index of users"),
        ('op.create_index("ix", "users", ["name"])', None),
        ('op.create_index("ix", "decisions", ["policy"])', "an index of decisions"),
        ('op.execute("CREATE INDEX ix ON decisions (policy)")', "an index of decisions"),
        ('op.create_table("new", sa.Column("id", sa.Text()))\n    op.create_unique_constraint("uq", "new", ["id"])', None),
        ('for name in ("decisions", "users"):\n        op.drop_column(name, "kind")', "op.drop_column of decisions, users"),
        ("op.execute(\"UPDATE decisions SET reason = 'x'\")", "one statement over all of decisions"),
        ('op.execute("UPDATE pools SET model = name")', None),
        ('op.execute("INSERT INTO new (id) SELECT id FROM sessions")', "one statement over all of sessions"),
        ('take("plans")', "op.drop_column of a table"),
    ],
)
def test_what_a_migration_must_not_do_is_found(upgrade: str, said: str | None) -> None:
    source = f'def take(table):\n    op.drop_column(table, "kind")\n\n\ndef upgrade():\n    {upgrade}\n\n\ndef downgrade():\n    op.drop_table("x")\n'
    found = faults(source)
    assert (said is None) == (not found), found
    assert all(said in one for one in found if said)
    if said is not None and "one statement" not in said and "an index" not in said:
        assert faults(f'contract = "nothing of 0.2 reads it"\n{source}') == []
        assert faults(f'contract = ""\n{source}') == found, "why it may be done has to be said"


THEN: Shape = {
    "t": {
        "columns": {
            "id": {"type": "TEXT", "null": False, "default": False},
            "why": {"type": "TEXT", "null": True, "default": False},
            "count": {"type": "BIGINT", "null": False, "default": True},
        },
        "unique": ["id"],
        "checks": [],
        "foreign_keys": [],
        "partition_by": None,
    }
}


def changed(columns: "dict[str, dict[str, object] | None]", **table: object) -> Shape:
    kept = {name: {**THEN["t"]["columns"].get(name, {}), **change} for name, change in columns.items() if change is not None}
    left = {name: column for name, column in THEN["t"]["columns"].items() if name not in columns}
    return {"t": {**THEN["t"], "columns": {**left, **kept}, **table}}


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (THEN, None),
        ({}, "the table t is gone"),
        (changed({"why": None}), "t.why is gone"),
        (changed({"why": {"type": "BIGINT"}}), "t.why is BIGINT, not TEXT"),
        (changed({"why": {"null": False}}), "t.why refuses null"),
        (changed({"id": {"null": True}}), "t.id may be null"),
        (changed({"count": {"default": False}}), "t.count has no default"),
        (changed({"new": {"type": "TEXT", "null": True, "default": False}}), None),
        (changed({"new": {"type": "TEXT", "null": False, "default": True}}), None),
        (changed({"new": {"type": "TEXT", "null": False, "default": False}}), "t.new is wanted in every new row"),
        (changed({}, unique=["why"]), "t (id) is no longer unique"),
        (changed({}, unique=["id", "why"]), "t (why) must be unique now"),
        (changed({}, checks=["count > 0"]), "t checks count > 0"),
        (changed({}, foreign_keys=["why -> pools.id"]), "t has the foreign key why -> pools.id"),
        (changed({}, partition_by="RANGE (at)"), "t is partitioned by RANGE (at), not by None"),
    ],
)
def test_what_the_last_release_cannot_work_with_is_found(now: Shape, said: str | None) -> None:
    found = breaking(THEN, now)
    assert (said is None) == (not found), found
    assert said is None or found[0].startswith(said)


def test_a_retired_column_is_still_there_for_the_last_release() -> None:
    assert breaking(THEN, changed({"why": None}), frozenset({("t", "why")})) == []

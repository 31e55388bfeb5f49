"""The last release's control API on today's database, as during a rollout or after a rollback.

Its own tests run against a server whose template has today's schema, under the name that they expect.
"""

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from fairlead_api.infra.upgrading import heads
from fairlead_testing.builders.database_shape import recorded
from fairlead_testing.running.postgres import plain, template_name

ROOT = Path(__file__).resolve().parents[3]
RELEASE: str | None = None
"""The tag of the last release, whose migrations end with the recorded one; None before the first release."""

TESTS = (
    "test_bindings.py::test_a_move_writes_binding_history_and_migration_together",
    "test_bindings.py::test_a_reroute_is_stored_listed_and_counted_apart_from_migrations",
    "test_records.py::test_refusals_are_told_by_priority_class",
    "test_plans.py::test_applying_twice_acts_once_and_undo_takes_it_back",
    "test_loads.py::test_a_late_report_corrects_a_bucket_already_rolled_up",
    "test_loads.py::test_decisions_and_rejections_are_found_again_with_everything_in_them",
    "test_gateway_keys.py::test_a_key_is_shown_once_listed_and_revoked",
)
"""Tests that write and read sessions with their history, samples and rollups, plans, identities and the audit log."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the release's code."""
    if RELEASE is None:
        pytest.skip("nothing is released yet")
    found = subprocess.run(["git", "archive", RELEASE], cwd=ROOT, capture_output=True, check=False)
    if found.returncode != 0:
        pytest.skip(f"the repository here does not have {RELEASE}: {found.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("last-release")
    with tarfile.open(fileobj=BytesIO(found.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def served(postgres_url: str) -> Iterator[str]:
    """Yield the server, where the release's tests find today's schema under their own template's name."""
    revision = _recorded_revision()
    with psycopg.connect(plain(postgres_url), autocommit=True) as connection:
        theirs, ours = sql.Identifier(template_name(revision)), sql.Identifier(template_name(heads()))
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(theirs, ours))
        yield postgres_url
        connection.execute(sql.SQL("DROP DATABASE {}").format(theirs))


def _recorded_revision() -> str:
    found = recorded()
    assert found is not None, f"{RELEASE} has not recorded its database in tests/contract/skew (CONTRIBUTING.md, 'Release')"
    return found[0]


@pytest.mark.timeout(1800)
def test_the_last_releases_own_tests_pass_on_the_database_of_today(tree: Path, served: str) -> None:
    newest = sorted(path.stem.partition("_")[2] for path in (tree / "migrations/versions").glob("*.py"))[-1]
    assert newest == _recorded_revision(), "RELEASE and tests/contract/skew/last_release_database.json are of two releases"
    chosen = [f"tests/integration/api/{name}" for name in TESTS]
    components = ("core", "controlplane", "operator", "router", "simulator", "webui", "cli", "host", "sandbox", "serve")
    packages = (*components, "cluster/src", "tests/support")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))} | {
        "FAIRLEAD_TEST_DATABASE_URL": served,
        "PYTHONPATH": os.pathsep.join(str(tree / name) for name in packages),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *chosen]
    ended = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]

"""`fairlead backup` and `fairlead restore` on real databases: a backup is complete or absent.

One line gives the reason for which a backup cannot be restored.
"""

import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import LiteralString

import msgspec
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from fairlead_cli.backups.archive import DATABASE, Manifest
from fairlead_testing.running.api import CHAT, ApiInstance, a_binding, a_report, a_state, an_instance, running_api
from fairlead_testing.running.operator_process import eventually, running_kubernetes_api, skip_where_kubelets_run
from fairlead_testing.running.postgres import fresh_database, plain
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.clients import KubernetesClient

A = an_instance("a")
POOLS = "/apis/fairlead.dev/v1alpha1/namespaces/default/inferencepools"
ROLES = "/apis/fairlead.dev/v1alpha1/namespaces/default/inferencepoolroles"
SECRETS = "/api/v1/namespaces/fairlead-system/secrets"
FAIRLEAD = (sys.executable, "-m", "fairlead_cli.main")


def run(url: str, *arguments: str | Path) -> tuple[int, str]:
    """Return the exit code and standard error."""
    done = subprocess.run([*FAIRLEAD, *map(str, arguments)], env=environment(url), capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def environment(url: str) -> dict[str, str]:
    return {**os.environ, "FAIRLEAD_DATABASE_URL": url}


def killed(server: str, url: str, *arguments: str | Path) -> None:
    """Start a command, and kill -9 it once its tool waits for a lock."""
    process = subprocess.Popen([*FAIRLEAD, *map(str, arguments)], env=environment(url), stderr=subprocess.DEVNULL)
    eventually(lambda: sessions(server, url, "AND wait_event_type = 'Lock'") == 1, "the tool waits for the lock")
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=PATIENCE_SECONDS)


def nobody_is_connected(server: str, url: str) -> None:
    eventually(lambda: sessions(server, url) == 0, "nobody is connected")


def sessions(server: str, url: str, which: LiteralString = "") -> int:
    with psycopg.connect(plain(server)) as connection:
        query = f"SELECT count(*) FROM pg_stat_activity WHERE datname = %s {which}"
        [count] = connection.execute(query, [conninfo_to_dict(plain(url))["dbname"]]).fetchone() or (0,)
    return int(count)


def tables(url: str) -> int:
    with psycopg.connect(plain(url)) as connection:
        [count] = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() or (0,)
    return int(count)


@pytest.fixture
def backup(database_url: str, tmp_path: Path) -> Path:
    assert run(database_url, "backup", tmp_path / "kept") == (0, "")
    return tmp_path / "kept"


def rewritten(backup: Path, **changes: object) -> Path:
    """Return the same backup with another manifest."""
    other = backup.with_name("other")
    with zipfile.ZipFile(backup) as old, zipfile.ZipFile(other, "w") as new:
        new.writestr(DATABASE, old.read(DATABASE))
        new.writestr("manifest.json", msgspec.json.encode(msgspec.json.decode(old.read("manifest.json")) | changes))
    return other


async def test_what_was_backed_up_is_restored_with_its_audit_log(
    api: ApiInstance, database_url: str, postgres_url: str, tmp_path: Path
) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(A))
    await api.router.post_report(a_report("r1", bindings=(a_binding("s", "a", id="c1"),)))
    assert run(database_url, "backup", tmp_path / "kept") == (0, "")
    head = await api.viewer.audit_verification()
    await api.pool_operator.put_pool_state(CHAT, a_state(A, an_instance("b"), version=2))
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o600
    with fresh_database(postgres_url, template=False) as url:
        assert run(url, "restore", tmp_path / "kept") == (0, "")
        async with running_api(url) as again:
            assert (await again.viewer.session(CHAT, "s")).session.instance == "a"
            assert await again.viewer.audit_verification() == head
            assert head.intact


def test_a_backup_never_replaces_a_file(backup: Path, database_url: str) -> None:
    before = backup.read_bytes()
    code, said = run(database_url, "backup", backup)
    assert (code, backup.read_bytes()) == (2, before)
    assert "name a file that does not exist yet" in said


def test_a_database_that_has_tables_is_not_restored_into(backup: Path, database_url: str) -> None:
    code, said = run(database_url, "restore", backup)
    assert code == 1
    assert said.count("\n") == 1
    assert "has Fairlead's tables already (schema " in said


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": "9999"}, "with schema 9999, and this one"),
        ({"format": 2}, "has format 2, and this version reads 1"),
        ({"sha256": {DATABASE: "0" * 64}}, f"the content of {DATABASE} has changed since the backup"),
        ({"schema": None}, "is not a complete backup"),
    ],
    ids=["a newer schema", "a newer format", "another content", "no schema"],
)
def test_a_backup_that_this_version_cannot_read_is_refused_in_one_line(
    backup: Path, postgres_url: str, changes: dict[str, object], words: str
) -> None:
    with fresh_database(postgres_url, template=False) as url:
        code, said = run(url, "restore", rewritten(backup, **changes))
        assert (code, said.count("\n"), tables(url)) == (1, 1, 0)
    assert words in said


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9, 0.999])
def test_a_backup_that_was_cut_short_is_refused(backup: Path, postgres_url: str, part: float) -> None:
    whole = backup.read_bytes()
    backup.write_bytes(whole[: int(len(whole) * part)])
    with fresh_database(postgres_url, template=False) as url:
        code, said = run(url, "restore", backup)
        assert (code, said.count("\n"), tables(url)) == (1, 1, 0)
    assert "is not a complete backup" in said


def test_a_restored_audit_log_that_lacks_the_manifests_entry_is_said(backup: Path, postgres_url: str) -> None:
    kept = rewritten(backup, audit_head={"id": 1, "chain": "0" * 64})
    with fresh_database(postgres_url, template=False) as url:
        code, said = run(url, "restore", kept)
    assert code == 1
    assert "the audit log is not whole" in said


def test_a_killed_backup_leaves_no_file_that_can_be_restored(database_url: str, postgres_url: str, tmp_path: Path) -> None:
    with psycopg.connect(plain(database_url)) as other:
        other.execute("LOCK TABLE audit_log IN ACCESS EXCLUSIVE MODE")  # the dump waits for it in the middle
        killed(postgres_url, database_url, "backup", tmp_path / "kept")
    assert [path.name for path in tmp_path.iterdir()] == ["kept.partial"]
    assert run(database_url, "backup", tmp_path / "kept") == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_killed_restore_leaves_the_database_empty_and_can_be_repeated(database_url: str, postgres_url: str, tmp_path: Path) -> None:
    with psycopg.connect(plain(database_url)) as connection:  # more than a pipe holds: the tool lacks the rest when its source dies
        connection.execute("CREATE TABLE filler AS SELECT md5(random()::text) AS x FROM generate_series(1, 50000)")
    backup = tmp_path / "kept"
    assert run(database_url, "backup", backup) == (0, "")
    with fresh_database(postgres_url, template=False) as url:
        with psycopg.connect(plain(url)) as other:
            other.execute("CREATE TABLE audit_log (x int)")  # not committed: the restore waits for it in the middle
            killed(postgres_url, url, "restore", backup)
            other.rollback()
        nobody_is_connected(postgres_url, url)
        assert tables(url) == 0
        assert run(url, "restore", backup) == (0, "")


def test_the_password_is_in_no_command_line_and_no_error(tmp_path: Path) -> None:
    code, said = run("postgresql+psycopg://who:s3cret@127.0.0.1:1/x", "backup", tmp_path / "kept")
    assert code == 1
    assert "s3cret" not in said
    assert said.startswith("fairlead")


def test_the_manifest_says_what_is_there(backup: Path) -> None:
    with zipfile.ZipFile(backup) as kept:
        manifest = msgspec.json.decode(kept.read("manifest.json"), type=Manifest)
        assert sorted(kept.namelist()) == sorted([*manifest.sha256, "manifest.json"])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, KubernetesClient]]:
    """Yield a kubeconfig, and the administrator of a cluster with two pools, a role and the chart's tokens."""
    (tmp_path / "kubernetes").mkdir()
    with running_kubernetes_api(tmp_path / "kubernetes") as kubeconfig:
        client = KubernetesClient.of(kubeconfig)
        skip_where_kubelets_run(client)
        client.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fairlead-system"}})
        for name, labels in (("fairlead-tokens", of_chart("api")), ("fairlead-postgres", of_chart("postgres")), ("mine", {})):
            metadata = {"name": name, "labels": labels}
            client.call("POST", SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"admin": "czNjcmV0"}})
        for name in ("gone", "there"):
            client.call("POST", POOLS, of_ours("InferencePool", name, model="llama", routing={"policy": "sticky"}))
        client.call("POST", ROLES, of_ours("InferencePoolRole", "gone-decode", pool="gone", role="decode", replicas=3))
        yield kubeconfig, client


def of_chart(component: str) -> dict[str, str]:
    return {"app.kubernetes.io/part-of": "fairlead", "app.kubernetes.io/component": component}


def of_ours(kind: str, name: str, **spec: object) -> dict[str, object]:
    return {"apiVersion": "fairlead.dev/v1alpha1", "kind": kind, "metadata": {"name": name, "labels": {"team": "a"}}, "spec": spec}


def test_pools_and_secrets_that_the_cluster_lacks_come_back_and_what_is_there_stays(
    cluster: tuple[str, KubernetesClient], database_url: str, postgres_url: str, tmp_path: Path
) -> None:
    kubeconfig, client = cluster
    before = client.call("GET", f"{POOLS}/gone")
    assert run(database_url, "backup", tmp_path / "kept", "--kubeconfig", kubeconfig) == (0, "")
    client.call("DELETE", f"{POOLS}/gone")
    client.call("DELETE", f"{SECRETS}/fairlead-tokens")
    client.call("PATCH", f"{POOLS}/there", {"spec": {"routing": {"policy": "random"}}}, content="application/merge-patch+json")
    with fresh_database(postgres_url, template=False) as url:
        code, said = run(url, "restore", tmp_path / "kept", "--kubeconfig", kubeconfig)
    assert (code, said.splitlines()) == (
        0,
        [
            "Secret fairlead-system/fairlead-tokens: made",
            "InferencePool default/gone: made",
            "InferencePool default/there: exists there already, and is left unchanged",
            "then: kubectl scale fprole -n default gone-decode --replicas=3",
        ],
    )
    after = client.call("GET", f"{POOLS}/gone")
    assert (after["spec"], after["metadata"]["labels"]) == (before["spec"], before["metadata"]["labels"])
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert client.call("GET", f"{POOLS}/there")["spec"]["routing"]["policy"] == "random"
    assert client.call("GET", f"{SECRETS}/fairlead-tokens")["data"] == {"admin": "czNjcmV0"}


def test_the_secrets_of_a_release_with_another_name_are_in_the_backup_and_none_at_all_is_said(
    cluster: tuple[str, KubernetesClient], database_url: str, tmp_path: Path
) -> None:
    kubeconfig, client = cluster
    client.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "serving"}})
    place = ("--kubeconfig", kubeconfig, "--release-namespace", "serving")
    code, said = run(database_url, "backup", tmp_path / "without", *place)
    assert (code, said) == (
        0,
        "--release-namespace: serving has no Secret that the chart made, so the backup has neither tokens nor the gateway's keys\n",
    )
    for name, component in (("fl-fairlead-tokens", "api"), ("fl-fairlead-gateway-keys", "router")):
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": of_chart(component)}, "data": {"a": "Yg=="}}
        client.call("POST", "/api/v1/namespaces/serving/secrets", secret)
    assert run(database_url, "backup", tmp_path / "with", *place) == (0, "")
    with zipfile.ZipFile(tmp_path / "with") as kept:
        found = json.loads(kept.read("secrets.json"))
    assert {(one["kind"], one["metadata"]["name"]) for one in found} == {
        ("Secret", "fl-fairlead-gateway-keys"),
        ("Secret", "fl-fairlead-tokens"),
    }


def test_a_cluster_that_cannot_take_a_backup_leaves_the_database_empty_so_that_it_can_be_repeated(
    cluster: tuple[str, KubernetesClient], database_url: str, postgres_url: str, tmp_path: Path
) -> None:
    kubeconfig, client = cluster
    assert run(database_url, "backup", tmp_path / "kept", "--kubeconfig", kubeconfig) == (0, "")
    client.call("DELETE", f"{SECRETS}/fairlead-tokens")
    client.call("DELETE", "/api/v1/namespaces/fairlead-system")
    with fresh_database(postgres_url, template=False) as url:
        cases = (
            (kubeconfig, 1, "fairlead-system"),
            (str(tmp_path / "none"), 2, "does not exist"),
            (str(tmp_path / "kept"), 1, "cannot be used"),
        )
        for there, exit_code, words in cases:
            code, said = run(url, "restore", tmp_path / "kept", "--kubeconfig", there)
            assert (code, said.count("\n"), tables(url)) == (exit_code, 1, 0)
            assert said.startswith("fairlead: --kubeconfig: ") and words in said
            assert "FAIRLEAD_DEBUG" not in said
        client.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fairlead-system"}})
        assert run(url, "restore", tmp_path / "kept", "--kubeconfig", kubeconfig)[0] == 0

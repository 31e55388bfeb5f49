"""A dump of a live API's database, made and restored with Postgres' own tools.

An API on the copy has all of the dump's content, and routers that know more continue correctly.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fairlead.instances import InstanceState
from fairlead.reports.batches import Acknowledgement
from fairlead.reports.bindings import BindingReason
from fairlead_api.infra.database import UPKEEP, Database
from fairlead_api.infra.lost_commits import LostCommits
from fairlead_api.infra.pulse import Pulse
from fairlead_client.lines import TableLine
from fairlead_client.resources.audit import AuditAction, AuditEntry
from fairlead_client.resources.gateway_keys import GatewayKeyRequest
from fairlead_sandbox.postgres import find_binaries
from fairlead_testing.running.api import CHAT, SPEC, ApiInstance, a_binding, a_report, a_state, an_instance, running_api
from fairlead_testing.running.postgres import fresh_database, plain
from fairlead_testing.running.seams import Followed, following

A, B, C = (an_instance(name) for name in "abc")


@contextmanager
def restored(dump: Path, server: str) -> Iterator[str]:
    """Yield the URL of a new database with the dump's content."""
    with fresh_database(server, template=False) as url:
        run("pg_restore", "--exit-on-error", "--no-owner", f"--dbname={plain(url)}", str(dump))
        yield url


def dumped(database_url: str, folder: Path) -> Path:
    run("pg_dump", "--format=custom", f"--file={folder / 'fairlead.dump'}", plain(database_url))
    return folder / "fairlead.dump"


def run(tool: str, *arguments: str) -> None:
    done = subprocess.run([str(find_binaries() / tool), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


async def the_table(lines: Followed) -> TableLine:
    [table] = [line for line in await lines.snapshot() if isinstance(line, TableLine)]
    return table


async def test_a_restored_database_has_the_record_and_goes_on(
    api: ApiInstance, database_url: str, postgres_url: str, tmp_path: Path
) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(A, B))
    await api.router.post_report(a_report("r1", bindings=(a_binding("s", "a", id="c1"),)))
    move = a_binding("s", "b", id="m1", previous="a", reason=BindingReason.HOT_MIGRATION, based_on=1)
    await api.router.post_report(a_report("r2", bindings=(move,)))
    key = await api.operator.create_gateway_key(GatewayKeyRequest(name="team"))
    dump = dumped(database_url, tmp_path)
    head = await api.viewer.audit_verification()
    with restored(dump, postgres_url) as url:
        async with running_api(url) as again:
            session = await again.viewer.session(CHAT, "s")
            assert (session.session.instance, session.session.version, session.session.migrations) == ("b", 2, 1)
            assert [one.id for one in (await again.viewer.gateway_keys()).items] == [key.id]
            assert await again.viewer.audit_verification() == head
            assert head.intact
            assert (await again.router.post_report(a_report("r2", bindings=(move,)))).duplicate, "what was counted is not counted twice"
            await again.pool_operator.put_pool_state(CHAT, a_state(A, B, C, version=2))
            await again.router.post_report(a_report("r3", bindings=(a_binding("t", "c"),)))
            assert (await again.viewer.session(CHAT, "t")).session.version == 1
            assert (await again.viewer.audit_verification()).intact


async def test_routers_that_know_more_than_the_backup_get_a_table_above_theirs(
    api: ApiInstance, database_url: str, postgres_url: str, tmp_path: Path
) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(A, B))
    dump = dumped(database_url, tmp_path)
    for version in range(2, 6):
        await api.pool_operator.put_pool_state(CHAT, a_state(A, B, *([C] if version % 2 else []), version=version))
    with restored(dump, postgres_url) as url:
        async with running_api(url) as again:
            await again.router.post_report(a_report("r1", acknowledged=(Acknowledgement(pool=CHAT, version=5),)))
            leaving = an_instance("b", InstanceState.DRAINING)
            told = await again.pool_operator.put_pool_state(CHAT, a_state(A, leaving, C, version=6))
            assert told.table_version == 6
            assert not told.table_acknowledged
            assert {one.id: one.acknowledged for one in told.instances} == {"a": False, "b": False, "c": False}
            async with following(again.router.api, "router-0") as lines:
                assert (await the_table(lines)).table.version == 6
            await again.router.post_report(a_report("r2", acknowledged=(Acknowledgement(pool=CHAT, version=6),)))
            told = await again.pool_operator.put_pool_state(CHAT, a_state(A, leaving, C, version=6))
            assert (told.table_version, told.table_acknowledged) == (6, True)
            assert all(one.acknowledged for one in told.instances)
            (entry,) = await losses(again)
            assert "routers had table 5 of default/chat, and the database has 1" in (entry.reason or "")
            assert "check what was revoked since 20" in (entry.reason or "")


async def losses(api: ApiInstance) -> list[AuditEntry]:
    """Return the audit entries that report a database whose content went back."""
    return [one for one in (await api.viewer.audit()).items if one.action == AuditAction.DATABASE_WENT_BACK]


async def test_a_process_that_lives_through_a_failover_tells_once_that_commits_are_missing(api: ApiInstance, database_url: str) -> None:
    """Two processes notice that a revocation is missing; the metric, the audit log and the pools' conditions report
    it.
    """
    await api.pool_operator.put_pool_state(CHAT, a_state(A))
    await api.operator.create_gateway_key(GatewayKeyRequest(name="kept"))
    watches = [LostCommits(Database(UPKEEP, Pulse(database_url))) for _ in range(2)]
    now = datetime.now(UTC)
    for one in watches:
        await one.look(now)
        assert (one.noticed_at, one.words) == (0.0, "")
    kept = (await api.viewer.audit_verification()).head
    assert kept is not None
    key = await api.operator.create_gateway_key(GatewayKeyRequest(name="lost"))
    await api.operator.revoke_gateway_key(key.id)
    for one in watches:
        await one.look(now)
    with psycopg.connect(plain(database_url), autocommit=True) as connection:  # as the server that takes over was behind
        for table in ("audit_log", "audit_heads"):
            connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        connection.execute("DELETE FROM audit_log WHERE id > %s", (kept.id,))
        connection.execute("UPDATE audit_heads SET last_id = %s, chain = %s, at = %s", (kept.id, kept.chain, kept.at))
    for one in watches:
        await one.look(now)
        assert one.noticed_at > 0
        assert f"the audit log had {kept.id + 2} entries and has {kept.id}" in one.words
        assert f"check what was revoked since {kept.at:%Y-%m-%dT%H:%M:%SZ}: tokens, gateway keys" in one.words
    assert len(await losses(api)) == 1
    assert (await api.viewer.audit_verification()).intact
    for one in watches:
        await one.look(now + timedelta(seconds=5))
    assert len(await losses(api)) == 1


@pytest.mark.parametrize("spec", [SPEC | {"replicas": 7}, {**SPEC, "replicas": 7, "slo": {"ttft": "9s"}}], ids=["scale", "scale and patch"])
async def test_a_change_told_late_is_attributed_by_what_the_record_lacks(api: ApiInstance, spec: dict[str, Any]) -> None:
    """The operator's status has the change already, so that alone would attribute it to the last writer."""
    owners = {"replicas": "kubectl", "slo": "kubectl-edit", "engine": "kubectl-patch"}
    await api.pool_operator.put_pool_state(CHAT, a_state(A, changed_by="helm", owners=owners, last_writer="kubectl-patch"))
    await api.pool_operator.put_pool_state(
        CHAT, a_state(A, version=2, generation=2, spec=spec, changed_by="kubectl-patch", owners=owners, last_writer="kubectl-patch")
    )
    entry = next(one for one in (await api.viewer.audit()).items if one.action == AuditAction.POOL_SPEC_CHANGED)
    assert entry.actor == ("kubectl" if "slo" not in spec or spec["slo"] == SPEC.get("slo") else "kubectl, kubectl-edit")


async def test_the_same_table_goes_out_again_when_only_its_version_was_lost(
    api: ApiInstance, database_url: str, postgres_url: str, tmp_path: Path
) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(A, B))
    dump = dumped(database_url, tmp_path)
    with restored(dump, postgres_url) as url:
        async with running_api(url) as again:
            await again.router.post_report(a_report("r1", acknowledged=(Acknowledgement(pool=CHAT, version=9),)))
            assert (await again.pool_operator.put_pool_state(CHAT, a_state(A, B))).table_version == 10
            assert (await again.pool_operator.put_pool_state(CHAT, a_state(A, B))).table_version == 10


async def test_bindings_that_the_backup_lacks_are_kept_and_others_are_settled_by_it(
    api: ApiInstance, database_url: str, postgres_url: str, tmp_path: Path
) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(A, B))
    await api.router.post_report(a_report("r1", bindings=(a_binding("old", "a", id="c1"),)))
    dump = dumped(database_url, tmp_path)
    with restored(dump, postgres_url) as url:
        async with running_api(url) as again:
            unknown = a_binding("new", "b", id="c2", previous="a", reason=BindingReason.HOT_MIGRATION, based_on=3)
            newer = a_binding("old", "b", id="c3", previous="b", reason=BindingReason.HOT_MIGRATION, based_on=4)
            receipt = await again.router.post_report(a_report("r2", bindings=(unknown, newer)))
            assert [(lost.session, lost.instance, lost.version) for lost in receipt.conflicts] == [("old", "a", 1)]
            session = await again.viewer.session(CHAT, "new")
            assert (session.session.instance, session.session.version) == ("b", 4)
            stays = a_binding("stays", "a", previous="a", based_on=6)
            await again.router.post_report(a_report("r3", bindings=(stays,)))
            session = await again.viewer.session(CHAT, "stays")
            assert (session.session.instance, session.session.version) == ("a", 7)


@pytest.mark.parametrize("tool", ["pg_dump", "pg_restore"])
def test_the_tools_are_those_of_the_servers_own_version(tool: str) -> None:
    said = [
        subprocess.run([str(find_binaries() / one), "--version"], capture_output=True, text=True, check=True).stdout
        for one in (tool, "postgres")
    ]
    assert said[0].split()[-1] == said[1].split()[-1]

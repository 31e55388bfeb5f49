"""The commands `backup` and `restore`."""

import asyncio
import os
from importlib.metadata import version
from pathlib import Path

import click

from fairlead_api.infra.audit_log import PostgresAudit
from fairlead_api.infra.connections import connected
from fairlead_api.infra.database import UPKEEP, Database
from fairlead_api.infra.pulse import Pulse
from fairlead_api.infra.upgrading import heads, older, upgrade
from fairlead_api.migrating import read_settings
from fairlead_api.serving import await_database
from fairlead_cli.backups import database
from fairlead_cli.backups.archive import DATABASE, POOLS, ROLES, SECRETS, Backup, Manifest, NotABackup, Writer, opened, written
from fairlead_cli.backups.cluster import cluster
from fairlead_cli.printing import json_option, print_json
from fairlead_client.resources.audit import AuditHead
from fairlead_process.commands import ExitCode

_kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The cluster whose pools, roles' replica counts and Secrets belong to the backup too.",
)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_kubeconfig_option
@click.option(
    "--release-namespace", default="fairlead-system", show_default=True, help="Namespace of the chart's Secrets, with --kubeconfig."
)
@json_option
def backup(file: Path, kubeconfig: Path | None, release_namespace: str, as_json: bool) -> None:
    """Write all of FAIRLEAD_DATABASE_URL's database into FILE, while everything runs.

    FILE contains secrets, and only its owner may read it. It appears when it is complete. pg_dump of the server's
    version or newer is needed.
    """
    url = _reachable()
    with written(file) as writer, database.snapshot(url) as (name, connection):
        schema = database.schema(connection)
        if schema is None:
            raise NotABackup("FAIRLEAD_DATABASE_URL: the database has no tables of Fairlead's: name the one that the control API uses")
        server = connection.info.server_version
        with database.dumping(url, name, server) as dump:
            writer.add(DATABASE, dump)
        if kubeconfig is not None:
            asyncio.run(_add_cluster(writer, str(kubeconfig), release_namespace))
        head = database.head(connection)
        manifest = Manifest(
            fairlead=version("fairlead"),
            schema=schema,
            postgres=server,
            made_at=database.now(connection),
            audit_head=head,
            sha256=writer.sha256,
        )
        writer.close(manifest)
    _tell(f"{file}: {file.stat().st_size:,} bytes", manifest, as_json)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@_kubeconfig_option
@json_option
def restore(file: Path, kubeconfig: Path | None, as_json: bool) -> None:
    """Fill FAIRLEAD_DATABASE_URL's empty database from FILE, bring it to this version, and verify its audit log.

    Stop the control API and the operator first. docs/install.md describes what happens to objects that the backup
    lacks. With --kubeconfig, Secrets and pools that the cluster lacks are created too; existing objects there are not
    changed.
    """
    url = _reachable()
    with opened(file) as found:
        _refuse_newer(file, found.manifest)
        server = _of_empty(url)
        made = [] if kubeconfig is None else asyncio.run(_restore_cluster(found, str(kubeconfig)))  # first: it can be repeated
        _restore_database(url, found, server)
    for line in made:
        click.echo(line, err=True)
    _tell(f"restored {file}", found.manifest, as_json)


def _reachable() -> str:
    url = read_settings(os.environ).url
    await_database(url, 0)
    return url


def _refuse_newer(file: Path, manifest: Manifest) -> None:
    if manifest.schema not in older() | {heads()}:
        raise NotABackup(
            f"{file} is of Fairlead {manifest.fairlead} with schema {manifest.schema}, and this one ({version('fairlead')}) knows schemas up "
            f"to {heads()}: restore it with a Fairlead that knows its schema"
        )


def _of_empty(url: str) -> int:
    """Return the server's version. Raises NotEmpty if the database has tables."""
    with connected(url) as connection:
        if (there := database.schema(connection)) is not None:
            raise database.NotEmpty(
                f"FAIRLEAD_DATABASE_URL: the database has Fairlead's tables already (schema {there}): restore into an empty one"
            )
        return connection.info.server_version


def _restore_database(url: str, found: Backup, server: int) -> None:
    with found.open(DATABASE) as dump:
        database.restore(url, max(server, found.manifest.postgres), dump)
    upgrade(url)
    _verify(url, found.manifest)


def _verify(url: str, manifest: Manifest) -> None:
    head = manifest.audit_head
    kept = None if head is None else AuditHead(id=head.id, chain=head.chain, at=manifest.made_at)

    async def look() -> None:
        verification = await PostgresAudit(Database(UPKEEP, Pulse(url))).verify(kept)
        if not verification.intact:
            click.echo(f"the audit log is not whole: entry {verification.first_broken} is the first that is wrong or missing", err=True)
            raise click.exceptions.Exit(ExitCode.FAILED)

    asyncio.run(look())


async def _add_cluster(writer: Writer, kubeconfig: str, namespace: str) -> None:
    async with cluster(kubeconfig) as there:
        writer.document(POOLS, await there.pools())
        writer.document(ROLES, await there.roles())
        secrets = await there.secrets(namespace)
        writer.document(SECRETS, secrets)
    if not secrets:
        click.echo(
            f"--release-namespace: {namespace} has no Secret that the chart made, so the backup has neither tokens nor the gateway's keys",
            err=True,
        )


async def _restore_cluster(found: Backup, kubeconfig: str) -> list[str]:
    """Restore the part of the backup that came from the cluster. Return lines for the user: one about each created
    object, and the commands to run after the operator has created the roles.
    """
    async with cluster(kubeconfig) as there:
        made = [await there.make(one) for name in (SECRETS, POOLS) for one in found.document(name)]
    roles = found.document(ROLES)
    return made + [f"then: kubectl scale fprole -n {one['namespace']} {one['name']} --replicas={one['replicas']}" for one in roles]


def _tell(done: str, manifest: Manifest, as_json: bool) -> None:
    if as_json:
        print_json(manifest)
        return
    head = manifest.audit_head
    audit = "an empty audit log" if head is None else f"an audit log of {head.id:,} entries that ends with {head.chain[:16]}"
    click.echo(f"{done}; schema {manifest.schema}, {', '.join(sorted(manifest.sha256))}, {audit}")

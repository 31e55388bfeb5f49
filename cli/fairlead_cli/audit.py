"""`fairlead audit` shows who did what, and checks that nobody changed the log."""

from typing import Any

import click

from fairlead.errors import InvalidInput
from fairlead_cli.asking import ask, token_option, url_option
from fairlead_cli.listing import List, Look, list_options, look_options, print_found, range_options, show_list, watched
from fairlead_cli.printing import json_option, print_facts, print_json, short, when
from fairlead_client.resources.audit import AuditEntry, AuditHead, AuditVerification
from fairlead_process.clock import utc_now
from fairlead_process.option_types import WholeOption
from fairlead_process.pool_names import pool_argument

COLUMNS = ("at (UTC)", "id", "actor", "role", "action", "object", "result", "reason")


@click.group()
def audit() -> None:
    """Show and verify the audit log: who did what, with which result."""


@audit.command("list")
@pool_argument
@click.option("--actor", help="Only by this actor; with * at the end by all that begin so.")
@click.option("--action", help="Only this action, such as plan.applied, or plan.*.")
@click.option("--object", "object", help="Only on this object, such as default/chat; a * at the end matches any ending.")
@range_options
@list_options
def list_entries(span: dict[str, Any], limit: int, look: Look, **filters: Any) -> None:
    """List entries, newest first."""
    listed = List(fetch=lambda api, query: api.audit(query), path="/v1/audit", columns=COLUMNS, row=_row, empty="No entry was found.")
    show_list(look, listed, {**filters, **span}, limit)


@audit.command()
@click.argument("entry", metavar="ID", type=WholeOption(1, 2**63 - 1))
@look_options
def show(entry: int, look: Look) -> None:
    """Show one entry, with what it changed."""

    def shown(found: AuditEntry) -> None:
        if look.output == "json":
            print_found(look, found)
            return
        links = [("plan", short(found.plan)), ("request", short(found.request_id)), ("from", found.source), ("chain", found.chain)]
        print_facts([*zip(COLUMNS, _row(found), strict=True), *links])
        before, after = found.before or {}, found.after or {}
        for name in [*before, *(name for name in after if name not in before)]:
            click.echo(f"  {name}: {short(before.get(name), 200)} → {short(after.get(name), 200)}")

    watched(look, lambda api: api.audit_entry(entry), shown)


@audit.command()
@json_option
@url_option
@token_option
def head(as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Print the newest entry's place in the chain, to keep outside the database: `ID:CHAIN`."""
    found = ask(url, token, lambda api: api.audit_head())
    if as_json:
        print_json(found)
    else:
        click.echo(f"{found.id}:{found.chain}")


@audit.command()
@click.option("--head", "kept", metavar="ID:CHAIN", help="A head that was kept; the log must still contain it.")
@json_option
@url_option
@token_option
def verify(kept: str | None, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Check the hash chain of the whole log. The exit code is 1 if an entry was changed or removed."""
    place = None if kept is None else _head(kept)
    found = ask(url, token, lambda api: api.audit_verification(place))
    whole = found.intact and found.kept_head_holds is not False
    if as_json:
        print_json(found)
    else:
        click.echo(_verdict(found))
    if not whole:
        raise click.exceptions.Exit(1)


def _head(text: str) -> AuditHead:
    number, colon, chain = text.partition(":")
    if not colon or not number.isdecimal():
        raise InvalidInput("--head", text, "write ID:CHAIN, as `fairlead audit head` prints it")
    return AuditHead(id=int(number), chain=chain, at=utc_now())


def _verdict(found: AuditVerification) -> str:
    entries = f"{found.entries:,} entries"
    if not found.intact:
        gone = f"; {found.missing:,} are missing" if found.missing else ""
        return f"The log was tampered with: entry {found.first_broken} of {entries} is wrong{gone}."
    if found.kept_head_holds is False:
        return f"The log was rewritten: its {entries} form a valid chain, but it does not contain the kept head."
    return f"The chain of {entries} is intact" + (" and contains the kept head." if found.kept_head_holds else ".")


def _row(one: AuditEntry) -> tuple[str, ...]:
    return when(one.at), f"{one.id}", one.actor, one.role, one.action, one.object, one.result.value, short(one.reason)

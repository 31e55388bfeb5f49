"""`fairlead audit` shows the actors and their actions, also by saved views, and checks that nobody changed the log."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from fairlead.errors import InvalidInput
from fairlead_cli.asking import ask, token_option, url_option
from fairlead_cli.listing import List, Look, list_options, look_options, print_found, range_options, show_list, watched
from fairlead_cli.printing import confirm, json_option, print_done, print_facts, print_json, print_table, short, when
from fairlead_client.audit_exports import verified
from fairlead_client.client import ControlApi
from fairlead_client.resources.audit import (
    AuditEntry,
    AuditHead,
    AuditKind,
    AuditVerification,
    AuditView,
    AuditViewChange,
    AuditViewRequest,
)
from fairlead_process.clock import utc_now
from fairlead_process.option_types import TimeOption, WholeOption
from fairlead_process.pool_names import METAVAR, namespace_option, optional_pool, pool_argument

COLUMNS = ("at (UTC)", "id", "actor", "role", "action", "object", "result", "reason")
VIEW_COLUMNS = ("id", "name", "owner", "shared", "filters")


@click.group()
def audit() -> None:
    """Show and verify the audit log: who did what, and with what result."""


def _filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add to a command the options that filter entries, except the pool and the range."""
    for option in (
        click.option("--object", "object", help="Only on this object, such as default/chat; a * at the end matches any ending."),
        click.option("--action", help="Only this action, such as plan.applied, or plan.*."),
        click.option("--actor", help="Only by this actor; with * at the end by all whose name begins like this."),
        click.option("--kind", type=click.Choice([kind.value for kind in AuditKind]), help="Only by people, or by the system."),
    ):
        command = option(command)
    return command


@audit.command("list")
@pool_argument
@_filter_options
@click.option("--view", metavar="NAME", help="Use the filters of this saved view; filters given here replace its own.")
@range_options
@list_options
def list_entries(span: dict[str, Any], limit: int, look: Look, view: str | None, **filters: Any) -> None:
    """List entries, newest first."""
    if view is not None:
        saved = _view_named(view, ask(look.url, look.token, lambda api: api.audit_views()).views)
        given = {name: value for name, value in {**filters, **span}.items() if value is not None}
        filters, span = {**saved.query, **given}, {}
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
    """Print the newest entry's place in the chain as `ID:CHAIN`, to be kept outside the database."""
    found = ask(url, token, lambda api: api.audit_head())
    if as_json:
        print_json(found)
    else:
        click.echo(f"{found.id}:{found.chain}")


@audit.command()
@click.option("--from", "start", type=TimeOption(), default="now-30d", show_default=True, help="Begin: RFC 3339, or as now-7d.")
@click.option("--to", "end", type=TimeOption(), default="now", show_default=True, help="End: RFC 3339, or as now-1d.")
@url_option
@token_option
def export(start: str, end: str, url: tuple[str, ...], token: str | None) -> None:
    """Print the entries of a range with their hash chain, signed: a file for `fairlead audit verify FILE`."""

    async def copied(api: ControlApi) -> None:
        async for chunk in api.export("/v1/audit/export", {"from": start, "to": end}):
            sys.stdout.buffer.write(chunk)

    ask(url, token, copied)


@audit.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--key", metavar="HEX", help="With FILE: the public key that the signature of FILE must agree with.")
@click.option(
    "--head", "kept", metavar="ID:CHAIN", help="A head that `fairlead audit head` printed earlier; the log must still contain it."
)
@json_option
@url_option
@token_option
def verify(file: str | None, key: str | None, kept: str | None, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Check the hash chain of the whole log, or of an export. The exit code is 1 if an entry was changed or removed.

    An export (`fairlead audit export`) is checked without the API: its chain, its end, and its signature. Compare the
    printed key with the key that the log's owner gave you, or give that key as --key.
    """
    if file is not None:
        _verify_file(file, key, as_json)
        return
    if key is not None:
        raise click.UsageError("--key is for an export; name its FILE")
    place = None if kept is None else _head(kept)
    found = ask(url, token, lambda api: api.audit_verification(place))
    whole = found.intact and found.kept_head_holds is not False
    if as_json:
        print_json(found)
    else:
        click.echo(_verdict(found))
    if not whole:
        raise click.exceptions.Exit(1)


@audit.group()
def views() -> None:
    """Saved views of the audit log: list, save, change and delete them."""


@views.command("list")
@json_option
@url_option
@token_option
def list_views(as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """List your saved views, and views that other people share with you, by name."""
    found = ask(url, token, lambda api: api.audit_views()).views
    if as_json:
        print_json(found)
    elif found:
        print_table(VIEW_COLUMNS, [_view_row(one) for one in found])
    else:
        click.echo("There is no saved view. Save one with `fairlead audit views save NAME`.")


@views.command()
@click.argument("view_name", metavar="NAME")
@click.option("--pool", metavar=METAVAR, help="Only of this pool, its instances and its schedules.")
@namespace_option
@_filter_options
@click.option("--from", "start", metavar="TIME", help="Begin, relative, such as now-7d.")
@click.option("--to", "end", metavar="TIME", help="End, relative, such as now-1d.")
@click.option("--shared", is_flag=True, help="Share it with all who see its pool. The token needs the role operator there.")
@json_option
@url_option
@token_option
def save(
    view_name: str,
    pool: str | None,
    namespace: str | None,
    shared: bool,
    as_json: bool,
    url: tuple[str, ...],
    token: str | None,
    **filters: Any,
) -> None:
    """Save filters of the audit log under a name, for `fairlead audit list --view NAME` and the audit page."""
    named = optional_pool(pool, namespace)
    request = AuditViewRequest(name=view_name, pool=None if named is None else str(named), shared=shared, **filters)
    made = ask(url, token, lambda api: api.save_audit_view(request))
    print_done(as_json, made, f"View {made.name} is saved ({made.id}).")


@views.command()
@click.argument("view_id", metavar="ID")
@click.option("--name", help="The new name.")
@click.option("--shared/--private", default=None, help="Share it, or stop sharing it.")
@json_option
@url_option
@token_option
def change(view_id: str, name: str | None, shared: bool | None, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Rename a saved view, share it, or stop sharing it."""
    now = ask(url, token, lambda api: api.change_audit_view(view_id, AuditViewChange(name=name, shared=shared)))
    print_done(as_json, now, f"View {now.name} ({now.id}) is {'shared' if now.shared else 'private'}.")


@views.command()
@click.argument("view_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@json_option
@url_option
@token_option
def delete(view_id: str, yes: bool, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Delete a saved view."""
    confirm(yes, f"Delete the saved view {view_id}?")
    ask(url, token, lambda api: api.delete_audit_view(view_id))
    print_done(as_json, {"id": view_id, "done": "deleted"}, f"View {view_id} is deleted.")


def _view_named(name: str, views: Sequence[AuditView]) -> AuditView:
    found = [one for one in views if name in (one.name, one.id)]
    if len(found) != 1:
        why = "no saved view has this name" if not found else f"{len(found)} views have this name; write the id of one"
        raise InvalidInput("--view", name, f"{why} (`fairlead audit views list`)")
    return found[0]


def _view_row(one: AuditView) -> tuple[str, ...]:
    filters = " ".join(f"{name}={value}" for name, value in one.query.items())
    return one.id, one.name, one.owner, "yes" if one.shared else "no", filters or "all"


def _verify_file(file: str, key: str | None, as_json: bool) -> None:
    with click.open_file(file, "rb") as lines:
        found = verified(lines, _is_signed, None if key is None else key.lower())
    if as_json:
        print_json(found)
    elif found.fault is not None:
        click.echo(f"The export cannot be trusted: {found.fault}.")
    else:
        signed = f"It is signed by {found.key}." if found.key else "It is not signed: only its chain was checked."
        ids = "" if found.first is None else f", {found.first} to {found.last},"
        click.echo(f"The chain of {found.entries:,} entries{ids} from {found.start} to {found.end} is intact. {signed}")
    if found.fault is not None:
        raise click.exceptions.Exit(1)


def _is_signed(key: str, signature: str, message: bytes) -> bool:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise click.ClickException("signatures need the package cryptography: pip install 'fairlead[audit]'") from None
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), message)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


_MOST_DIGITS = 18
"""Maximum number of digits of an entry's id."""


def _head(text: str) -> AuditHead:
    number, colon, chain = text.partition(":")
    if not colon or not number.isdecimal() or len(number) > _MOST_DIGITS:
        raise InvalidInput("--head", text, "write ID:CHAIN, as `fairlead audit head` prints it")
    return AuditHead(id=int(number), chain=chain, at=utc_now())


def _verdict(found: AuditVerification) -> str:
    entries = f"{found.entries:,} entries"
    if not found.intact:
        gone = f"; {found.missing:,} are missing" if found.missing else ""
        return f"The log was tampered with: entry {found.first_broken} of {entries} is wrong{gone}."
    if found.kept_head_holds is False:
        return f"The log was rewritten: its {entries} form a valid chain, but it does not contain the head that you kept."
    return f"The chain of {entries} is intact" + (" and contains the head that you kept." if found.kept_head_holds else ".")


def _row(one: AuditEntry) -> tuple[str, ...]:
    return when(one.at), f"{one.id}", one.actor, one.role, one.action, one.object, one.result.value, short(one.reason)

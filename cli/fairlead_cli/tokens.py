"""`fairlead tokens` makes, lists and revokes tokens of the control API."""

from datetime import UTC, datetime

import click

from fairlead.errors import InvalidInput
from fairlead_cli.asking import ask, token_option, url_option
from fairlead_cli.listing import List, Look, list_options, show_list
from fairlead_cli.printing import confirm, json_option, print_done, print_json, when
from fairlead_client.resources.access import PEOPLE, RISING, AccessRole, Rights, TokenItem, TokenRequest
from fairlead_process.option_types import WholeOption

COLUMNS = ("id", "name", "role", "namespaces", "state", "made (UTC)", "by", "last used (UTC)")


@click.group()
def tokens() -> None:
    """API tokens, for people, scripts and this command line: list, make and revoke them."""


@tokens.command("list")
@list_options
def list_tokens(limit: int, look: Look) -> None:
    """List tokens, newest first, without secrets. The token needs the role admin."""
    listed = List(
        fetch=lambda api, query: api.tokens(cursor=query["cursor"], limit=query["limit"]),
        path="/v1/tokens",
        columns=COLUMNS,
        row=_row,
        empty="There is no token. Make one with `fairlead tokens create NAME --role viewer`.",
    )
    show_list(look, listed, {}, limit)


@tokens.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([one.value for one in AccessRole]),
    default=AccessRole.NONE.value,
    show_default=True,
    help="Role in all namespaces; the system- roles are for processes.",
)
@click.option(
    "--in",
    "rights",
    multiple=True,
    metavar="NAMESPACE=ROLE",
    help="A higher role in this namespace: viewer, operator or admin; may be repeated.",
)
@click.option("--days", type=WholeOption(1, 365), default=90, show_default=True, help="Days until it expires.")
@json_option
@url_option
@token_option
def create(name: str, role: str, rights: tuple[str, ...], days: int, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Make a token and print its secret once. Your own token needs the role admin wherever the new token has rights."""
    namespaces = _rights(rights)
    if role == AccessRole.NONE and not namespaces:
        raise InvalidInput("--role", role, f"write one of {', '.join(PEOPLE)}, or name namespaces with --in")
    request = TokenRequest(name=name, role=AccessRole(role), days=days, namespaces=namespaces)
    made = ask(url, token, lambda api: api.create_token(request))
    if as_json:
        print_json(made)
        return
    click.echo(made.secret)
    click.echo(f"Token {made.id} expires {when(made.expires_at)} UTC. Keep the secret above: it is not shown again.", err=True)


@tokens.command()
@click.argument("token_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Revoke without asking.")
@json_option
@url_option
@token_option
def revoke(token_id: str, yes: bool, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Revoke a token, and end every web session that it opened. Your own token needs the role admin."""
    confirm(yes, f"Revoke the token {token_id}? Whatever uses it stops working.")
    ask(url, token, lambda api: api.revoke_token(token_id))
    print_done(as_json, {"id": token_id, "done": "revoked"}, f"Token {token_id} is revoked.")


def _rights(written: tuple[str, ...]) -> Rights:
    """Parse rights such as `team-a=operator`: a role in a namespace. Raises InvalidInput."""
    found: Rights = {}
    for one in written:
        namespace, equals, role = one.partition("=")
        if not namespace or not equals or role not in RISING[1:] or namespace in found:
            raise InvalidInput("--in", one, f"write NAMESPACE=ROLE, each namespace once, with one of {', '.join(PEOPLE)}")
        found[namespace] = AccessRole(role)
    return found


def _row(one: TokenItem) -> tuple[str, ...]:
    namespaces = ", ".join(f"{name}={role.value}" for name, role in one.namespaces.items()) or "-"
    return one.id, one.name, one.role.value, namespaces, _state(one), when(one.created_at), one.created_by, when(one.last_used_at)


def _state(one: TokenItem) -> str:
    if one.revoked_at is not None:
        return f"revoked {when(one.revoked_at)}"
    return f"{'expired' if one.expires_at <= datetime.now(UTC) else 'expires'} {when(one.expires_at)}"

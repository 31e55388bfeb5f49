"""`fairlead sessions` shows which instance holds a session, and all that held it before."""

import click

from fairlead_cli.listing import List, Look, list_options, look_options, print_found, show_list, watched
from fairlead_cli.planning import name_argument, pool_named, pool_option
from fairlead_cli.printing import print_table, short, when
from fairlead_client.resources.sessions import SessionDetail, SessionSummary

COLUMNS = ("last seen (UTC)", "pool", "session", "instance", "why", "moves", "context tokens")


@click.group()
def sessions() -> None:
    """Sessions: the instance that holds each, and all that held it before."""


@sessions.command("list")
@pool_option
@click.option("--instance", help="Only those that this instance holds.")
@click.option("--search", "part", help="Only those with this part in their name.")
@list_options
def list_sessions(pool: str | None, instance: str | None, part: str | None, limit: int, look: Look) -> None:
    """List sessions, the newest seen first."""
    listed = List(
        fetch=lambda api, query: api.sessions(query), path="/v1/sessions", columns=COLUMNS, row=_row, empty="No session was found."
    )
    show_list(look, listed, {"pool": pool, "instance": instance, "q": part}, limit)


@sessions.command()
@name_argument
@click.argument("session", metavar="SESSION")
@look_options
def show(name: str, session: str, look: Look) -> None:
    """Show one session with everything that held it, newest first."""
    pool = pool_named(name)

    def shown(found: SessionDetail) -> None:
        if look.output == "json":
            print_found(look, found)
            return
        print_table(COLUMNS, [_row(found.session)])
        click.echo()
        rows = [
            (when(one.bound_at), when(one.released_at), one.instance, one.reason.value, one.router, short(one.migration))
            for one in found.history
        ]
        print_table(("from (UTC)", "until", "instance", "why", "router", "migration"), rows)

    watched(look, lambda api: api.session(pool, session), shown)


def _row(one: SessionSummary) -> tuple[str, ...]:
    moves, tokens = f"{one.migrations:,}", f"{one.context_tokens:,}"
    return when(one.last_seen_at), one.pool, one.session, short(one.instance), one.reason.value, moves, tokens

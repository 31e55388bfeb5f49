"""`fairlead sessions` shows the instances that hold or held a session, and keeps all routing decisions of a session."""

import click

from fairlead_cli.asking import ask, token_option, url_option
from fairlead_cli.listing import List, Look, list_options, look_options, print_found, show_list, watched
from fairlead_cli.printing import json_option, print_done, print_json, print_table, short, when
from fairlead_client.resources.sessions import KeepSessionRequest, KeptSessions, SessionDetail, SessionSummary
from fairlead_process.option_types import WholeOption
from fairlead_process.pool_names import name_argument, pool_argument, pool_named

COLUMNS = ("last seen (UTC)", "pool", "session", "key", "instance", "why", "moves", "context tokens")


@click.group()
def sessions() -> None:
    """Sessions: their present and earlier instances; keep all decisions of a session."""


@sessions.command("list")
@pool_argument
@click.option("--instance", help="Only sessions that this instance holds.")
@click.option("--search", "part", help="Only sessions whose names contain this text.")
@list_options
def list_sessions(pool: str | None, instance: str | None, part: str | None, limit: int, look: Look) -> None:
    """List sessions, the most recently seen first."""
    listed = List(
        fetch=lambda api, query: api.sessions(query), path="/v1/sessions", columns=COLUMNS, row=_row, empty="No session was found."
    )
    show_list(look, listed, {"pool": pool, "instance": instance, "q": part}, limit)


@sessions.command()
@name_argument
@click.argument("session", metavar="SESSION")
@look_options
def show(name: str, session: str, look: Look) -> None:
    """Show one session and the instances that held it, newest first."""
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


@sessions.command()
@name_argument
@click.argument("session", metavar="SESSION")
@click.option("--minutes", type=WholeOption(1, 60), default=10, show_default=True, help="For how long, 1 to 60.")
@json_option
@url_option
@token_option
def keep(name: str, session: str, minutes: int, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Keep all decisions of a session from now on. The token needs the role operator.

    See them with `fairlead decisions list --session SESSION`.
    """
    pool = pool_named(name)
    found = ask(url, token, lambda api: api.keep_session(pool, KeepSessionRequest(session=session, minutes=minutes)))
    if as_json:
        print_json(found)
        return
    click.echo(f"All decisions of session {found.session} of {pool} are kept until {when(found.until)} UTC.")


@sessions.command()
@name_argument
@look_options
def kept(name: str, look: Look) -> None:
    """List the sessions of a pool for which all decisions are kept now."""
    pool = pool_named(name)

    def shown(found: KeptSessions) -> None:
        if look.output == "json":
            print_found(look, found)
        elif not found.sessions:
            click.echo("There is no session for which all decisions are kept. Start with `fairlead sessions keep`.")
        else:
            print_table(("session", "until (UTC)", "by"), [(one.session, when(one.until), one.by) for one in found.sessions])

    watched(look, lambda api: api.kept_sessions(pool), shown)


@sessions.command("let-go")
@name_argument
@click.argument("session", metavar="SESSION")
@json_option
@url_option
@token_option
def let_go(name: str, session: str, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Keep only a sample of a session's decisions again, as for other sessions. The token needs the role operator."""
    pool = pool_named(name)
    ask(url, token, lambda api: api.let_session_go(pool, session))
    done = {"pool": str(pool), "session": session, "done": "let-go"}
    print_done(as_json, done, f"From now on, only a sample of the decisions of session {session} of {pool} is kept.")


def _row(one: SessionSummary) -> tuple[str, ...]:
    moves, tokens = f"{one.migrations:,}", f"{one.context_tokens:,}"
    return when(one.last_seen_at), one.pool, one.session, short(one.key), short(one.instance), one.reason.value, moves, tokens

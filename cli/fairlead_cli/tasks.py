"""`fairlead tasks` shows the cost of agents' tasks, the tree of a session, and the think times of sessions: how long
they wait between turns.
"""

from typing import Any

import click

from fairlead_cli.listing import List, Look, list_options, look_options, print_found, show_list, watched
from fairlead_cli.printing import percent, print_table, seconds, short, when
from fairlead_client.client import ControlApi
from fairlead_client.resources.pages import Page
from fairlead_client.resources.trees import SessionTree, TaskFigures, TaskList, ThinkTimes, TreeSession
from fairlead_process.pool_names import name_argument, pool_argument, pool_named

COLUMNS = ("ended (UTC)", "pool", "task", "sessions", "turns", "refused", "hits", "in the model", "wall", "moves", "target")
SESSION_COLUMNS = ("session", "from", "turns", "refused", "hits", "in the model", "between turns", "compactions", "moves", "held by")


@click.group()
def tasks() -> None:
    """Tasks of agents: their cost, their sessions, and the think times of these sessions."""


@tasks.command("list")
@pool_argument
@list_options
def list_tasks(pool: str | None, limit: int, look: Look) -> None:
    """List tasks, the newest turns first; at most 100."""
    chosen = None if pool is None else pool_named(pool)

    async def found(api: ControlApi, asked: dict[str, Any]) -> Page[TaskFigures]:
        return Page(items=(await api.tasks(chosen)).tasks[:limit])

    if look.output == "csv":
        listed = List(fetch=found, path="/v1/tasks", columns=COLUMNS, row=_row, empty="")
        show_list(look, listed, {"pool": pool}, limit)
        return

    def shown(answer: TaskList) -> None:
        if look.output == "json":
            print_found(look, answer)
        elif answer.tasks:
            print_table(COLUMNS, [_row(one) for one in answer.tasks[:limit]])
        else:
            click.echo("No task was recorded. See docs/agents.md for the requests that are recorded.")

    watched(look, lambda api: api.tasks(chosen), shown)


@tasks.command()
@name_argument
@click.argument("session", metavar="SESSION")
@look_options
def show(name: str, session: str, look: Look) -> None:
    """Show the tree that a session belongs to: its sessions, each below its parent, and its tasks."""
    pool = pool_named(name)

    def shown(tree: SessionTree) -> None:
        if look.output == "json":
            print_found(look, tree)
            return
        if not tree.sessions:
            click.echo("No request of this session is recorded. See docs/agents.md for the requests that are recorded.")
            return
        if tree.key is not None:
            click.echo(f"Sessions of the key {tree.key}:")
        print_table(SESSION_COLUMNS, [_session_row(one) for one in tree.sessions])
        if len(tree.sessions) < tree.sessions_in_all:
            click.echo(f"The first {len(tree.sessions):,} of {tree.sessions_in_all:,} sessions.")
        click.echo()
        print_table(COLUMNS, [_row(one) for one in tree.tasks])

    watched(look, lambda api: api.tree(pool, session), shown)


@tasks.command("think-times")
@name_argument
@look_options
def think_times(name: str, look: Look) -> None:
    """Show how long a pool's sessions wait between an answer and the next turn, by key and tool."""
    pool = pool_named(name)

    def shown(found: ThinkTimes) -> None:
        if look.output == "json":
            print_found(look, found)
        elif not found.times:
            click.echo("No session had two turns yet.")
        else:
            columns = ("key", "tool", "turns", "median", "p90", "p99", "last (UTC)")
            rows = [
                (
                    one.tenant or "none",
                    f"{one.other_tools} others" if one.other_tools else one.tool or "none",
                    f"{one.turns:,}",
                    *(seconds(value) for value in (one.p50_seconds, one.p90_seconds, one.p99_seconds)),
                    when(one.last_at),
                )
                for one in found.times
            ]
            print_table(columns, rows)

    watched(look, lambda api: api.think_times(pool), shown)


def _row(one: TaskFigures) -> tuple[str, ...]:
    return (
        when(one.ended_at),
        one.pool,
        short(one.task),
        f"{one.sessions:,}",
        f"{one.turns:,}",
        f"{one.refusals:,}",
        percent(one.hit_share),
        seconds(one.model_seconds),
        seconds(one.wall_seconds),
        f"{one.moves:,}",
        "–" if one.verdict is None else one.verdict.value,
    )


def _session_row(one: TreeSession) -> tuple[str, ...]:
    origin = "" if one.link is None or one.evidence is None else f"{one.link.value} ({one.evidence.value})"
    return (
        "  " * one.depth + short(one.session),
        origin,
        f"{one.turns:,}",
        f"{one.refusals:,}",
        percent(one.hit_share),
        seconds(one.model_seconds),
        seconds(one.tool_seconds),
        f"{one.compactions:,}",
        f"{one.moves:,}",
        short(one.instance),
    )

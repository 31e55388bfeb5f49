"""`fairlead comments` lists, adds and deletes people's comments on a pool's time or plans."""

from collections.abc import Mapping
from typing import Any

import click

from fairlead_cli.asking import ask, token_option, url_option
from fairlead_cli.listing import List, Look, list_options, print_found, show_list, watched
from fairlead_cli.printing import confirm, json_option, print_done, print_table, when
from fairlead_client.client import ControlApi
from fairlead_client.resources.comments import Comment, CommentRequest, Comments
from fairlead_client.resources.pages import Page
from fairlead_process.option_types import TimeOption
from fairlead_process.pool_names import name_argument, pool_argument, pool_named

COLUMNS = ("from (UTC)", "to (UTC)", "id", "pool", "plan", "author", "text")


@click.group()
def comments() -> None:
    """Comments of people on a range of a pool's time, or on a plan."""


@comments.command("list")
@pool_argument
@click.option("--plan", metavar="ID", help="Only on this plan.")
@click.option("--from", "start", type=TimeOption(), help="Only comments on a time that ends after this: RFC 3339, or as now-6h.")
@click.option("--to", "end", type=TimeOption(), help="Only comments on a time that begins before this: RFC 3339, or as now-1h.")
@list_options
def list_comments(pool: str | None, plan: str | None, start: str | None, end: str | None, limit: int, look: Look) -> None:
    """List comments by their time, the latest first; at most 200."""
    asked = {"pool": None if pool is None else str(pool_named(pool)), "plan": plan, "from": start, "to": end}

    async def found(api: ControlApi, query: Mapping[str, Any]) -> Page[Comment]:
        return Page(items=(await api.comments(asked)).comments[:limit])

    if look.output == "csv":
        show_list(look, List(fetch=found, path="/v1/comments", columns=COLUMNS, row=_row, empty=""), asked, limit)
        return

    def shown(answer: Comments) -> None:
        answer = Comments(comments=answer.comments[:limit], complete=answer.complete and len(answer.comments) <= limit)
        if look.output == "json":
            print_found(look, answer)
        elif answer.comments:
            print_table(COLUMNS, [_row(one) for one in answer.comments])
        else:
            click.echo("There is no comment. Write one with `fairlead comments add POOL TEXT --from now-1h`.")

    watched(look, lambda api: api.comments(asked), shown)


@comments.command()
@name_argument
@click.argument("text")
@click.option("--plan", metavar="ID", help="Comment on this plan of the pool.")
@click.option("--from", "start", type=TimeOption(), help="Comment on the time from here: RFC 3339, or as now-1h.")
@click.option("--to", "end", type=TimeOption(), help="The end of this time; default: now.")
@json_option
@url_option
@token_option
def add(
    name: str,
    text: str,
    plan: str | None,
    start: str | None,
    end: str | None,
    as_json: bool,
    url: tuple[str, ...],
    token: str | None,
) -> None:
    """Comment on a range of a pool's time, or on one of its plans. Everybody who sees the pool reads it."""
    if (start is None) == (plan is None):
        raise click.UsageError("name the time with --from and --to, or a plan with --plan")
    request = CommentRequest(text=text, plan=plan, start=start, end=end)
    made = ask(url, token, lambda api: api.add_comment(pool_named(name), request))
    print_done(as_json, made, f"{made.id} is on {made.pool}, {_span(made)}.")


@comments.command()
@click.argument("comment", metavar="ID")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@json_option
@url_option
@token_option
def delete(comment: str, yes: bool, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Delete a comment: your own, or with the role admin another person's. The audit log keeps the comment's text."""
    confirm(yes, f"Delete the comment {comment}?")
    ask(url, token, lambda api: api.delete_comment(comment))
    print_done(as_json, {"id": comment, "done": "deleted"}, f"{comment} is deleted.")


def _span(one: Comment) -> str:
    return f"plan {one.plan}" if one.plan else f"{when(one.start)} to {when(one.end)} UTC"


def _row(one: Comment) -> tuple[str, ...]:
    return when(one.start), when(one.end), one.id, one.pool, one.plan or "–", one.author, " ".join(one.text.split())

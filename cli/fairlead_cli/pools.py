"""`fairlead pools` shows the revisions of a pool, rolls it back, and pauses or resumes its rollout, through plans."""

import click

from fairlead.instances import Role
from fairlead_cli.asking import ask, token_option, url_option
from fairlead_cli.planning import name_argument, plan_and_apply, pool_named, reason_option, steps, time_words, yes_option
from fairlead_client.resources.plans import PlanKind, PlanRequest
from fairlead_client.resources.rollouts import Rollout, TemplateRevision


@click.group()
def pools() -> None:
    """Look at a pool's revisions, go back to one, and pause or resume its rollout."""


@pools.command()
@name_argument
@url_option
@token_option
def revisions(name: str, url: tuple[str, ...], token: str | None) -> None:
    """List the revisions of a pool: its engine and templates as they were, and what going back would change."""
    found = ask(url, token, lambda api: api.rollout(pool_named(name)))
    for line in _progress(found):
        click.echo(line)
    if not found.revisions:
        click.echo("No revision is kept yet.")
        return
    for one in found.revisions:
        click.echo(f"{one.number:>4}  {time_words(one.created_at)}  {_mark(one)}".rstrip())
        for line in steps(one.diff):
            click.echo(f"    {line}")


@pools.command()
@name_argument
@click.option("--to", "revision", type=click.IntRange(1), help="Number of the revision; without it the newest that differs from the spec.")
@click.option("--role", type=click.Choice([role.value for role in Role]), help="Give back only this role's template, not the engine.")
@reason_option
@yes_option
@url_option
@token_option
def rollback(
    name: str, revision: int | None, role: str | None, reason: str | None, yes: bool, url: tuple[str, ...], token: str | None
) -> None:
    """Write the engine and templates of a former revision into the pool's spec, as `kubectl rollout undo` does.

    Shows the plan with its effect first. The token needs the role operator.
    """
    request = PlanRequest(kind=PlanKind.ROLLBACK, revision=revision, role=Role(role) if role is not None else None)
    plan_and_apply(pool_named(name), request, reason, yes, url, token)


@pools.command()
@name_argument
@reason_option
@yes_option
@url_option
@token_option
def pause(name: str, reason: str | None, yes: bool, url: tuple[str, ...], token: str | None) -> None:
    """Pause a pool's rollout: outdated instances stay. Writes `rollout.paused`, as `kubectl rollout pause` does.

    Shows the plan with its effect first. The token needs the role operator.
    """
    plan_and_apply(pool_named(name), PlanRequest(kind=PlanKind.ROLLOUT, fields={"paused": True}), reason, yes, url, token)


@pools.command()
@name_argument
@reason_option
@yes_option
@url_option
@token_option
def resume(name: str, reason: str | None, yes: bool, url: tuple[str, ...], token: str | None) -> None:
    """Resume a paused rollout. One that a regression stopped goes on, judged anew, when it is paused and resumed.

    Shows the plan with its effect first. The token needs the role operator.
    """
    plan_and_apply(pool_named(name), PlanRequest(kind=PlanKind.ROLLOUT, fields={"paused": False}), reason, yes, url, token)


def _progress(found: Rollout) -> list[str]:
    updated = ", ".join(f"{one.role.value} {one.updated} of {one.desired}" for one in found.roles)
    words = f"{found.reason}: {found.message}" if found.reason else "The operator has not reported on this pool."
    return [words, *([f"Instances with the present template: {updated}."] if updated else [])]


def _mark(one: TemplateRevision) -> str:
    marks = (("in force", one.in_force), ("on all instances last", one.completed))
    return ", ".join(words for words, holds in marks if holds)

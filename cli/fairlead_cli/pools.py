"""`fairlead pools` shows the revisions of a pool, rolls it back, and pauses or resumes its rollout, through plans."""

from datetime import UTC, datetime
from typing import Any

import click

from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead.tables import PoolKey
from fairlead_cli.asking import ask, token_option, url_option
from fairlead_client.resources.plans import ApplyRequest, Plan, PlanKind, PlanRequest
from fairlead_client.resources.rollouts import Rollout, TemplateRevision

_name = click.argument("name", metavar="[NAMESPACE/]NAME")
_reason = click.option("--reason", help="Why, for the audit log; asked for where the change is heavy.")
_yes = click.option("--yes", is_flag=True, help="Apply without asking.")


@click.group()
def pools() -> None:
    """Look at a pool's revisions, go back to one, and pause or resume its rollout."""


@pools.command()
@_name
@url_option
@token_option
def revisions(name: str, url: tuple[str, ...], token: str | None) -> None:
    """List the revisions of a pool: its engine and templates as they were, and what going back would change."""
    found = ask(url, token, lambda api: api.rollout(_pool(name)))
    for line in _progress(found):
        click.echo(line)
    if not found.revisions:
        click.echo("No revision is kept yet.")
        return
    for one in found.revisions:
        click.echo(f"{one.number:>4}  {_time(one.created_at)}  {_mark(one)}".rstrip())
        for line in _steps(one.diff):
            click.echo(f"    {line}")


@pools.command()
@_name
@click.option("--to", "revision", type=click.IntRange(1), help="Number of the revision; without it the newest that differs from the spec.")
@click.option("--role", type=click.Choice([role.value for role in Role]), help="Give back only this role's template, not the engine.")
@_reason
@_yes
@url_option
@token_option
def rollback(
    name: str, revision: int | None, role: str | None, reason: str | None, yes: bool, url: tuple[str, ...], token: str | None
) -> None:
    """Write the engine and templates of a former revision into the pool's spec, as `kubectl rollout undo` does.

    Shows the plan with its effect first. The token needs the role operator.
    """
    request = PlanRequest(kind=PlanKind.ROLLBACK, revision=revision, role=Role(role) if role is not None else None)
    _change(_pool(name), request, reason, yes, url, token)


@pools.command()
@_name
@_reason
@_yes
@url_option
@token_option
def pause(name: str, reason: str | None, yes: bool, url: tuple[str, ...], token: str | None) -> None:
    """Pause a pool's rollout: outdated instances stay. Writes `rollout.paused`, as `kubectl rollout pause` does.

    Shows the plan with its effect first. The token needs the role operator.
    """
    _change(_pool(name), PlanRequest(kind=PlanKind.ROLLOUT, fields={"paused": True}), reason, yes, url, token)


@pools.command()
@_name
@_reason
@_yes
@url_option
@token_option
def resume(name: str, reason: str | None, yes: bool, url: tuple[str, ...], token: str | None) -> None:
    """Resume a paused rollout. One that a regression stopped goes on, judged anew, when it is paused and resumed.

    Shows the plan with its effect first. The token needs the role operator.
    """
    _change(_pool(name), PlanRequest(kind=PlanKind.ROLLOUT, fields={"paused": False}), reason, yes, url, token)


def _change(pool: PoolKey, request: PlanRequest, reason: str | None, yes: bool, url: tuple[str, ...], token: str | None) -> None:
    """Plan, tell, ask, apply."""
    plan = ask(url, token, lambda api: api.create_plan(pool, request))
    for line in _told(plan):
        click.echo(line)
    if plan.owner is not None:
        raise click.ClickException(f"{plan.owner} owns this pool; commit this patch there:\n{plan.patch}".rstrip())
    if not yes and not click.confirm("Apply?"):
        click.echo("Nothing was changed.")
        return
    if plan.effect.heavy and not reason:
        if yes:
            raise click.ClickException("this is a heavy change; say why with --reason")
        reason = click.prompt("This is a heavy change. Why")
    done = ask(url, token, lambda api: api.apply_plan(plan.id, ApplyRequest(confirm=pool.name, reason=reason)))
    click.echo(f"Applied. The plan {done.id} can be undone on its page until {_time(done.undo_until)}: {url[0]}/plans/{done.id}")


def _pool(name: str) -> PoolKey:
    namespace, slash, rest = name.rpartition("/")
    if not rest or (slash and not namespace) or "/" in namespace:
        raise InvalidInput("NAME", name, "write a pool's name, or namespace/name")
    return PoolKey(namespace=namespace or "default", name=rest)


def _progress(found: Rollout) -> list[str]:
    updated = ", ".join(f"{one.role.value} {one.updated} of {one.desired}" for one in found.roles)
    words = f"{found.reason}: {found.message}" if found.reason else "The operator has not reported on this pool."
    return [words, *([f"Instances with the present template: {updated}."] if updated else [])]


def _mark(one: TemplateRevision) -> str:
    marks = (("in force", one.in_force), ("on all instances last", one.completed))
    return ", ".join(words for words, holds in marks if holds)


def _told(plan: Plan) -> list[str]:
    return [
        "What changes:",
        *_steps(plan.diff),
        *plan.effect.warnings,
        *plan.effect.notes,
        f"Sessions that move: about {plan.effect.sessions_moved}.",
    ]


def _steps(diff: list[dict[str, Any]]) -> list[str]:
    return [f"  {step['path']}: {_value(step.get('before'))} → {_value(step.get('after'))}" for step in diff]


def _value(value: Any) -> str:
    text = "(unset)" if value is None else str(value)
    return text if len(text) <= 200 else f"{text[:199]}…"


def _time(at: datetime | None) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if at is not None else "unknown"

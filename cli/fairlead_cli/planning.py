"""Changing a pool from the command line: the plan is shown with its effect, and applied when told to."""

from datetime import UTC, datetime
from typing import Any

import click

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_cli.asking import ask
from fairlead_client.resources.plans import ApplyRequest, Plan, PlanEffect, PlanRequest

name_argument = click.argument("name", metavar="[NAMESPACE/]NAME")
reason_option = click.option("--reason", help="Why, for the audit log; asked for where the change is heavy.")
yes_option = click.option("--yes", is_flag=True, help="Apply without asking.")


def plan_and_apply(pool: PoolKey, request: PlanRequest, reason: str | None, yes: bool, url: tuple[str, ...], token: str | None) -> None:
    """Plan, tell, ask, apply. Raises ClickException for a pool that is owned elsewhere."""
    tell_and_apply(pool, ask(url, token, lambda api: api.create_plan(pool, request)), reason, yes, url, token)


def tell_and_apply(pool: PoolKey, plan: Plan, reason: str | None, yes: bool, url: tuple[str, ...], token: str | None) -> None:
    """Tell of a plan, ask, apply. Raises as `plan_and_apply`."""
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
    click.echo(f"Applied. The plan {done.id} can be undone on its page until {time_words(done.undo_until)}: {url[0]}/plans/{done.id}")


def pool_named(name: str) -> PoolKey:
    """The pool that `name` or `namespace/name` means. Raises InvalidInput."""
    namespace, slash, rest = name.rpartition("/")
    if not rest or (slash and not namespace) or "/" in namespace:
        raise InvalidInput("NAME", name, "write a pool's name, or namespace/name")
    return PoolKey(namespace=namespace or "default", name=rest)


def _told(plan: Plan) -> list[str]:
    return [
        "What changes:",
        *steps(plan.diff),
        *plan.effect.warnings,
        *plan.effect.notes,
        *_predicted(plan.effect),
        f"Sessions that move: about {plan.effect.sessions_moved}.",
    ]


def _predicted(effect: PlanEffect) -> list[str]:
    if effect.predicted_attainment is None:
        return []
    return [f"In time would have been {effect.predicted_attainment:.1%}, {effect.prediction_basis}."]


def steps(diff: list[dict[str, Any]]) -> list[str]:
    """A line for each value that changes."""
    return [f"  {step['path']}: {_value(step.get('before'))} → {_value(step.get('after'))}" for step in diff]


def _value(value: Any) -> str:
    text = "(unset)" if value is None else str(value)
    return text if len(text) <= 200 else f"{text[:199]}…"


def time_words(at: datetime | None) -> str:
    """A time in UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if at is not None else "unknown"

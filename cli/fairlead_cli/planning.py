"""Changing a pool from the command line: the plan is shown with its effect, and applied when the user agrees."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_cli.asking import ask, place, token_option, url_option
from fairlead_cli.printing import steps, time_words
from fairlead_client.resources.expectations import ExpectationState, ExpectedFigure, PlanExpectation, Quantity
from fairlead_client.resources.plan_kinds import PlanRequest
from fairlead_client.resources.plans import ApplyRequest, Plan, PlanEffect


def _pool(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    try:
        return None if text is None else str(PoolKey.named(text))
    except ValueError as remedy:
        raise InvalidInput("--pool", text, str(remedy)) from None


name_argument = click.argument("name", metavar="[NAMESPACE/]NAME")
pool_option = click.option("--pool", callback=_pool, metavar="[NAMESPACE/]NAME", help="Only this pool.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """How a change is approved (`yes`: without asking), and which API makes it."""

    reason: str | None
    yes: bool
    url: tuple[str, ...]
    token: str | None


def approval_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command `--reason`, `--yes`, `--url` and `--token`, which it gets as one Approval."""

    @click.option("--reason", help="Why, for the audit log; required for high-impact changes.")
    @click.option("--yes", is_flag=True, help="Apply without asking.")
    @url_option
    @token_option
    @wraps(command)
    def with_approval(*arguments: Any, reason: str | None, yes: bool, url: tuple[str, ...], token: str | None, **options: Any) -> Any:
        return command(*arguments, approval=Approval(reason=reason, yes=yes, url=url, token=token), **options)

    return with_approval


def plan_and_apply(pool: PoolKey, request: PlanRequest, approval: Approval) -> bool:
    """Plan, show, confirm, apply; return whether it was applied. Raises ClickException for a pool owned elsewhere."""
    return tell_and_apply(pool, ask(approval.url, approval.token, lambda api: api.create_plan(pool, request)), approval)


def tell_and_apply(pool: PoolKey, plan: Plan, approval: Approval) -> bool:
    """Show a plan, confirm, apply. Returns and raises as `plan_and_apply`."""
    for line in (*lines_of(plan), *expected_lines(ask(approval.url, approval.token, lambda api: api.plan_expectation(plan.id)))):
        click.echo(line)
    if plan.owner is not None:
        raise click.ClickException(f"{plan.owner} owns this pool; commit this patch there:\n{plan.patch}".rstrip())
    if not approval.yes and not click.confirm("Apply?"):
        click.echo("Nothing was changed.")
        return False
    reason = approval.reason
    if plan.effect.heavy and not reason:
        if approval.yes:
            raise click.ClickException("this is a high-impact change; give a reason with --reason")
        reason = click.prompt("This is a high-impact change. Reason")
    done = ask(approval.url, approval.token, lambda api: api.apply_plan(plan.id, ApplyRequest(confirm=pool.name, reason=reason)))
    page = f"{place(approval.url, approval.token)[0][0]}/plans/{done.id}"
    click.echo(f"Applied. The plan {done.id} can be undone on its page until {time_words(done.undo_until)}: {page}")
    return True


def pool_named(name: str) -> PoolKey:
    """The pool named by `name` or `namespace/name`. Raises InvalidInput."""
    try:
        return PoolKey.named(name)
    except ValueError as remedy:
        raise InvalidInput("NAME", name, str(remedy)) from None


def lines_of(plan: Plan) -> list[str]:
    """A plan's change and effect, line by line."""
    return [
        "What changes:",
        *steps(plan.diff),
        *plan.effect.warnings,
        *plan.effect.notes,
        *_predicted(plan.effect),
        f"Sessions that move: about {plan.effect.sessions_moved}.",
    ]


QUANTITIES = {
    Quantity.ATTAINMENT: "in time",
    Quantity.REFUSED_SHARE: "refused",
    Quantity.HIT_RATE: "of prompt tokens from caches",
    Quantity.SESSIONS_MOVED: "sessions that move",
}


def expected_lines(found: PlanExpectation) -> list[str]:
    """The effect that a plan's simulation expects, line by line; or why it is unknown, or the simulation's progress."""
    if found.state is ExpectationState.UNKNOWN:
        return [f"Not simulated: {found.reason}."]
    if found.state is not ExpectationState.DONE:
        return [f"Simulating the effect, {found.done:,} of {found.total:,} requests; see `fairlead plans show {found.plan}`."]
    seeds = " and ".join(map(str, found.seeds))
    if found.rates:
        seeds += f" (with this plan also at {' and '.join(f'{rate:g}' for rate in found.rates)} times the rate)"
    head = (
        f"Simulation of {found.requests or 0:,} requests recorded from {time_words(found.start)} to "
        f"{time_words(found.end)}, seeds {seeds}. "
        f"The change happens halfway; in the second half ({found.measured_seconds or 0:,.0f} s):"
    )
    return [head, *map(_figure, found.figures)]


def _figure(one: ExpectedFigure) -> str:
    words = QUANTITIES[one.quantity]
    if one.unknown is not None:
        return f"  {words}: unknown; {one.unknown}"
    shown = "{:.0f}" if one.quantity is Quantity.SESSIONS_MOVED else "{:.1%}"
    return f"  {words}: {shown.format(one.before)} now, {shown.format(one.after)} with this plan"


def _predicted(effect: PlanEffect) -> list[str]:
    if effect.predicted_attainment is None:
        return []
    return [f"Share of requests in time with this plan: {effect.predicted_attainment:.1%}, estimated {effect.prediction_basis}."]

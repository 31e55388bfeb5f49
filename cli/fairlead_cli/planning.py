"""Changes of a pool by commands: the plan is shown with its effect, and applied after confirmation."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from typing import Any

import click
import msgspec

from fairlead.tables import PoolKey
from fairlead_cli.asking import ask, is_behind_kubernetes, place, program, token_option, url_option
from fairlead_cli.printing import json_option, percent, print_json, steps, time_words
from fairlead_client.resources.expectations import ExpectationState, ExpectedFigure, PlanExpectation, Quantity
from fairlead_client.resources.plan_kinds import PlanRequest
from fairlead_client.resources.plans import ApplyRequest, HandOverForecast, HandOverResult, Plan, PlanEffect
from fairlead_process.commands import ExitCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """Settings of a change: its confirmation, the form in which it is shown, and the control API that plans it.

    `yes`: apply without asking.
    `planned_only`: do not apply.
    """

    reason: str | None
    yes: bool
    planned_only: bool
    as_json: bool
    url: tuple[str, ...]
    token: str | None

    def tell(self, line: str) -> None:
        """Print a line for people. If standard output has JSON for programs, the line goes to standard error."""
        click.echo(line, err=self.as_json)


class Outcome(StrEnum):
    """The outcome of a requested change; its values are also the values of `done` in JSON."""

    APPLIED = "applied"
    PLANNED = "planned"
    DECLINED = "declined"
    OWNED_ELSEWHERE = "owned-elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A plan, whether it was applied, and the effect that a simulation expects of it."""

    plan: Plan
    expectation: PlanExpectation
    done: Outcome

    def document(self) -> dict[str, Any]:
        """Return the JSON document about the change: the plan with its current id and state, `expectation` and
        `done`.
        """
        found: dict[str, Any] = msgspec.to_builtins(self.plan)
        return found | {"expectation": msgspec.to_builtins(self.expectation), "done": self.done.value}


def approval_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--reason`, `--yes`, `--no-apply`, `-o`, `--url` and `--token` to a command, which gets them as one
    `Approval`.
    """

    @click.option("--reason", help="Why, for the audit log; required for high-impact changes.")
    @click.option("--yes", is_flag=True, help="Apply without asking.")
    @click.option("--no-apply", "planned_only", is_flag=True, help="Make and show the plan only; `fairlead plans apply ID` applies it.")
    @json_option
    @url_option
    @token_option
    @wraps(command)
    def with_approval(*arguments: Any, reason: str | None, yes: bool, planned_only: bool, as_json: bool, **options: Any) -> Any:
        if yes and planned_only:
            raise click.UsageError("give --yes or --no-apply, not both")
        url, token = options.pop("url"), options.pop("token")
        approval = Approval(reason=reason, yes=yes, planned_only=planned_only, as_json=as_json, url=url, token=token)
        return command(*arguments, approval=approval, **options)

    return with_approval


def plan_and_apply(pool: PoolKey, request: PlanRequest, approval: Approval) -> None:
    """Make a plan, show it, apply it after confirmation, and print the outcome. Raises the exceptions of
    `tell_and_apply`.
    """
    tell_and_apply(pool, planned(pool, request, approval), approval)


def planned(pool: PoolKey, request: PlanRequest, approval: Approval) -> Plan:
    """Return a new plan for the request. Raises ClickException."""
    return ask(approval.url, approval.token, lambda api: api.create_plan(pool, request))


def tell_and_apply(pool: PoolKey, plan: Plan, approval: Approval) -> None:
    """Show a plan, apply it after confirmation, and print the outcome. Raises ClickException if the pool is owned by
    another tool, Exit if the user declined.
    """
    change = carry_out(pool, plan, approval)
    if approval.as_json:
        print_json(change.document())
    require_done(change)


def require_done(change: Change) -> None:
    """Raise the exceptions of `tell_and_apply` for a change that was not carried out."""
    if change.done is Outcome.OWNED_ELSEWHERE:
        raise click.ClickException(f"{change.plan.owner} owns this pool; commit the patch above there")
    if change.done is Outcome.DECLINED:
        raise click.exceptions.Exit(ExitCode.FAILED)


def carry_out(pool: PoolKey, plan: Plan, approval: Approval) -> Change:
    """Show a plan, apply it after confirmation, and return the outcome."""
    expectation = ask(approval.url, approval.token, lambda api: api.plan_expectation(plan.id))
    for line in (*lines_of(plan), *expected_lines(expectation)):
        approval.tell(line)
    if approval.planned_only:
        approval.tell(f"Planned. Apply it until {time_words(plan.expires_at)}: {program()} plans apply {plan.id}")
        return Change(plan=plan, expectation=expectation, done=Outcome.PLANNED)
    if plan.owner is not None:
        approval.tell(plan.patch.rstrip())
        return Change(plan=plan, expectation=expectation, done=Outcome.OWNED_ELSEWHERE)
    if not approval.yes and not click.confirm("Apply?", err=approval.as_json):
        click.echo("Nothing was changed.", err=True)
        return Change(plan=plan, expectation=expectation, done=Outcome.DECLINED)
    return Change(plan=_apply(pool, plan, approval), expectation=expectation, done=Outcome.APPLIED)


def _apply(pool: PoolKey, plan: Plan, approval: Approval) -> Plan:
    reason = approval.reason
    if plan.effect.heavy and not reason:
        if approval.yes:
            raise click.ClickException("this is a high-impact change; give a reason with --reason")
        reason = click.prompt("This is a high-impact change. Reason", err=approval.as_json)
    done = ask(approval.url, approval.token, lambda api: api.apply_plan(plan.id, ApplyRequest(confirm=pool.name, reason=reason)))
    approval.tell(
        f"Applied. Until {time_words(done.undo_until)} undo it with `{program()} change undo {done.id}`{_or_page(done, approval)}"
    )
    return done


def _or_page(plan: Plan, approval: Approval) -> str:
    """Return a hint at the web page where the plan can be undone; empty if the control API is reached through the
    Kubernetes API.
    """
    if is_behind_kubernetes(approval.url):
        return ""
    return f", or at {place(approval.url, approval.token)[0][0]}/plans/{plan.id}"


def lines_of(plan: Plan) -> list[str]:
    """Return a plan's change and effect, line by line."""
    return [
        "What changes:",
        *steps(plan.diff),
        *plan.effect.warnings,
        *plan.effect.notes,
        *_predicted(plan.effect),
        f"Sessions that move: about {plan.effect.sessions_moved}.",
        *hand_over_lines(plan.effect.hand_over),
    ]


def hand_over_lines(expected: HandOverForecast | None) -> list[str]:
    """Return a line about the share of the pool's cache hits that the plan is expected to keep, and what keeping them
    costs; empty without a forecast.
    """
    if expected is None:
        return []
    if expected.hits_kept is None:
        return [f"How much is kept of the leaving instances' caches is not known: {expected.unknown}."]
    price = f"{expected.seconds_longer or 0:.0f} s longer and {expected.more_work or 0:.1%} more work"
    return [f"Keeps {expected.hits_kept:.0%} of the pool's cache hits in the next five minutes; this takes {price}."]


def outcome_lines(found: HandOverResult) -> list[str]:
    """Return lines about the share of requests within the objectives, since the plan was applied and in the ten minutes
    before; empty if the plan was not applied.
    """
    if found.until is None:
        return []
    after, before = ("not known" if one is None else percent(one) for one in (found.attainment_after, found.attainment_before))
    return [f"Requests in time since the plan was applied, until {time_words(found.until)}: {after}; in the ten minutes before: {before}."]


def kept_lines(found: HandOverResult) -> list[str]:
    """Return a line about the share of the pool's cache hits that was kept, next to the expected share; empty if the
    plan was not applied.
    """
    if found.until is None:
        return []
    expected = "" if found.expected is None or found.expected.hits_kept is None else f" ({found.expected.hits_kept:.0%} expected)"
    kept = "not known" if found.hits_kept is None else f"{found.hits_kept:.0%}{expected}"
    return [
        f"Share of the pool's hits that was kept until {time_words(found.until)}: {kept}. Of {found.sessions_moved} sessions that moved, routers handed "
        f"{found.sessions_handed_over} over before their next turn. {found.tokens_moved:,} tokens were transferred, {found.tokens_computed_ahead:,} "
        f"were computed in advance, and {found.tokens_lost:,} were computed again in later turns."
    ]


QUANTITIES = {
    Quantity.ATTAINMENT: "in time",
    Quantity.REFUSED_SHARE: "refused",
    Quantity.HIT_RATE: "of prompt tokens from caches",
    Quantity.SESSIONS_MOVED: "sessions that move",
}


def expected_lines(found: PlanExpectation) -> list[str]:
    """Return lines about the effect that the plan's simulation expects. If it is not known, the lines give the reason
    or the simulation's progress.
    """
    if found.state is ExpectationState.UNKNOWN:
        return [f"Not simulated: {found.reason}."]
    if found.state is not ExpectationState.DONE:
        return [f"Simulating the effect, {found.done:,} of {found.total:,} requests; see `{program()} plans show {found.plan}`."]
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
    return [f"Share of requests in time with this plan: {percent(effect.predicted_attainment)}, estimated {effect.prediction_basis}."]

"""`fairlead plans` lists, shows, applies and undoes plans."""

from typing import Any

import click
import msgspec

from fairlead_cli.asking import ask, token_option, url_option
from fairlead_cli.listing import List, Look, list_options, look_options, print_found, range_options, show_list, watched
from fairlead_cli.planning import Approval, approval_options, expected_lines, kept_lines, lines_of, outcome_lines, tell_and_apply
from fairlead_cli.printing import json_option, print_done, print_facts, short, when
from fairlead_client.client import ControlApi
from fairlead_client.resources.expectations import PlanExpectation
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PROPOSER, HandOverResult, Plan
from fairlead_process.pool_names import pool_argument, pool_named

COLUMNS = ("made (UTC)", "id", "pool", "kind", "state", "by", "applied (UTC)", "applied by", "undo until (UTC)")
_id = click.argument("plan_id", metavar="ID")


@click.group()
def plans() -> None:
    """Plans: list and show them with their effects; apply or undo them."""


@plans.command("list")
@pool_argument
@click.option("--kind", type=click.Choice([one.value for one in PlanKind]), help="Only of this kind.")
@click.option("--by", "created_by", help="Only plans that this person made.")
@click.option("--proposed", is_flag=True, help="Only plans that Fairlead proposed from its advice.")
@range_options
@list_options
def list_plans(span: dict[str, Any], limit: int, look: Look, proposed: bool, **filters: Any) -> None:
    """List plans, newest first."""
    if proposed:
        filters["created_by"] = PROPOSER
    sort = "created_at" if span.pop("sort") else None
    listed = List(fetch=lambda api, query: api.plans(query), path="/v1/plans", columns=COLUMNS, row=_row, empty="There is no plan.")
    show_list(look, listed, {**filters, **span, "sort": sort}, limit)


@plans.command()
@_id
@look_options
def show(plan_id: str, look: Look) -> None:
    """Show a plan: what it changes, its immediate effect, and its simulated effect."""

    async def read(api: ControlApi) -> tuple[Plan, PlanExpectation, HandOverResult]:
        return await api.plan(plan_id), await api.plan_expectation(plan_id), await api.plan_hand_over(plan_id)

    def shown(all_of_it: tuple[Plan, PlanExpectation, HandOverResult]) -> None:
        found, expectation, kept = all_of_it
        if look.output == "json":
            print_found(look, msgspec.to_builtins(found) | {"expectation": expectation, "hand_over": kept})
            return
        print_facts([*zip(COLUMNS, _row(found), strict=True), ("target", found.target), ("owner", short(found.owner))])
        if found.proposal is not None:
            click.echo(f"Proposed: {found.proposal.because}")
        for line in (*lines_of(found), *expected_lines(expectation), *outcome_lines(kept), *kept_lines(kept)):
            click.echo(line)

    watched(look, read, shown)


@plans.command()
@_id
@json_option
@url_option
@token_option
def patch(plan_id: str, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Print a plan's change as a patch, to commit where the pool is declared, or for kubectl patch."""
    plan = ask(url, token, lambda api: api.plan(plan_id))
    print_done(as_json, {"id": plan.id, "target": plan.target, "patch": plan.patch}, plan.patch.rstrip())


@plans.command()
@_id
@approval_options
def apply(plan_id: str, approval: Approval) -> None:
    """Apply a plan, after showing it."""
    plan = ask(approval.url, approval.token, lambda api: api.plan(plan_id))
    tell_and_apply(pool_named(plan.pool), plan, approval)


@plans.command()
@_id
@approval_options
def undo(plan_id: str, approval: Approval) -> None:
    """Undo an applied plan: make the inverse plan, show it and apply it."""
    plan = ask(approval.url, approval.token, lambda api: api.undo_plan(plan_id))
    tell_and_apply(pool_named(plan.pool), plan, approval)


def _row(one: Plan) -> tuple[str, ...]:
    applied = when(one.applied_at), short(one.applied_by), when(one.undo_until)
    return when(one.created_at), one.id, one.pool, one.kind.value, one.state.value, one.created_by, *applied

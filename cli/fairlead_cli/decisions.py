"""`fairlead decisions` shows the routing decisions: for each request, the chosen instance and the reason for the
choice.
"""

from typing import Any

import click

from fairlead.reports.decisions import DecisionReason, KeptFor, RequestOutcome, ShadowChoice
from fairlead_cli.listing import List, Look, list_options, look_options, print_found, range_options, show_list, watched
from fairlead_cli.printing import print_facts, print_table, seconds, short, when
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_process.pool_names import pool_argument

COLUMNS = ("at (UTC)", "id", "pool", "session", "policy", "chosen", "why", "prompt tokens", "queued", "TTFT", "kept for", "outcome")


@click.group()
def decisions() -> None:
    """Routing decisions: why a request went to its instance."""


@decisions.command("list")
@pool_argument
@click.option("--instance", help="Only decisions that chose this instance.")
@click.option("--session", help="Only of this session.")
@click.option("--reason", type=click.Choice([one.value for one in DecisionReason]), help="Only for this reason.")
@click.option("--kept", type=click.Choice([one.value for one in KeptFor]), help="Only decisions that are kept for this reason.")
@click.option("--outcome", type=click.Choice([one.value for one in RequestOutcome]), help="Only of requests with this outcome.")
@click.option("--trace", metavar="ID", help="Only of the request with this trace (32 hexadecimal digits).")
@click.option("--class", "priority_class", help="Only of this priority class.")
@range_options
@list_options
def list_decisions(span: dict[str, Any], limit: int, look: Look, **filters: Any) -> None:
    """List decisions that are kept, newest first."""
    listed = List(
        fetch=lambda api, query: api.decisions(query),
        path="/v1/decisions",
        columns=COLUMNS,
        row=_row,
        empty="No decision was recorded in this time.",
    )
    show_list(look, listed, {**filters, **span}, limit)


@decisions.command()
@click.argument("decision", metavar="ID")
@look_options
def show(decision: str, look: Look) -> None:
    """Show one decision with every candidate's score."""

    def shown(found: RoutingDecision) -> None:
        if look.output == "json":
            print_found(look, found)
            return
        click.echo(found.explanation)
        ids = [("rule", found.rule.code), ("request", found.request), ("trace", short(found.trace)), ("router", found.router)]
        print_facts([*zip(COLUMNS, _row(found), strict=True), *ids])
        click.echo(f"\n{len(found.candidates)} of {found.considered} considered instances:")
        rows = [
            (
                one.instance,
                f"{one.hit_tokens:,}",
                f"{one.miss_tokens:,}",
                f"{one.pending_tokens:,}",
                seconds(one.predicted_ttft_seconds),
                "-" if one.total is None else f"{one.total:.4g}",
            )
            for one in found.candidates
        ]
        print_table(("instance", "cached tokens", "to compute", "waiting before", "predicted TTFT", "total"), rows)
        if found.shadows:
            click.echo("\nPolicies that only advise, predicted:")
            print_table(("policy", "instance", "cached tokens", "predicted TTFT", "as decided"), [_advised(one) for one in found.shadows])

    watched(look, lambda api: api.decision(decision), shown)


def _advised(one: ShadowChoice) -> tuple[str, ...]:
    if one.target is None:
        return (one.policy, "failed", "-", "-", "-")
    return (one.policy, one.target, f"{one.hit_tokens:,}", seconds(one.predicted_ttft_seconds), seconds(one.chosen_ttft_seconds))


def _row(one: RoutingDecision) -> tuple[str, ...]:
    tokens, queued = f"{one.prompt_tokens:,}", seconds(one.queued_seconds)
    return (
        when(one.at),
        one.id,
        one.pool,
        short(one.session),
        one.policy,
        one.target,
        one.reason.value,
        tokens,
        queued,
        seconds(one.ttft_seconds),
        one.kept.value,
        short(one.outcome and one.outcome.value),
    )

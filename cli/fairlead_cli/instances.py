"""`fairlead instances` shows a pool's instances: state, load and cache."""

import click

from fairlead.capabilities import in_words
from fairlead_cli.listing import List, Look, list_options, look_options, print_found, show_list, watched
from fairlead_cli.printing import percent, print_facts, print_table, seconds, short, when
from fairlead_client.resources.instances import InstanceDetail, InstanceSummary
from fairlead_process.pool_names import name_argument, pool_named

COLUMNS = ("instance", "state", "role", "in flight", "waiting", "to prefill", "KV", "sessions", "hit rate", "TTFT p95", "since (UTC)")


@click.group()
def instances() -> None:
    """A pool's instances: their state, their load, their cache."""


@instances.command("list")
@name_argument
@list_options
def list_instances(name: str, limit: int, look: Look) -> None:
    """List the living instances of a pool: load of the newest second, hit rate and TTFT of the last five minutes."""
    pool = pool_named(name)
    listed = List(
        fetch=lambda api, query: api.instances(pool, cursor=query["cursor"], limit=query["limit"]),
        path=f"/v1/pools/{pool}/instances",
        columns=COLUMNS,
        row=row,
        empty=f"{pool} has no instance.",
    )
    show_list(look, listed, {}, limit)


@instances.command()
@name_argument
@click.argument("instance", metavar="INSTANCE")
@look_options
def show(name: str, instance: str, look: Look) -> None:
    """Show one instance with its past states, even if it is gone."""
    pool = pool_named(name)

    def shown(found: InstanceDetail) -> None:
        if look.output == "json":
            print_found(look, found)
            return
        one = found.instance
        print_facts(
            [
                *zip(COLUMNS, row(one), strict=True),
                ("address", short(one.address)),
                ("node", short(one.node)),
                ("reason", one.reason),
                ("restarts", f"{one.restarts}"),
                ("share of ring", percent(one.key_share)),
                *((known.name.lower(), f"{known.value} ({known.source})") for known in in_words(found.capability) if known.value),
                *((found_now.reason, f"{found_now.message} (by {found_now.routers} routers)") for found_now in found.conditions),
            ]
        )
        rows = [(when(step.at), short(step.before), step.after.value, step.reason) for step in found.transitions]
        click.echo()
        print_table(("at (UTC)", "from", "to", "why"), rows)
        if found.held.top:
            click.echo()
            largest = [(held.session, f"{held.context_tokens:,}", percent(held.share), when(held.last_seen_at)) for held in found.held.top]
            print_table(("largest sessions", "context tokens", "share", "last seen (UTC)"), largest)

    watched(look, lambda api: api.instance(pool, instance), shown)


def row(one: InstanceSummary) -> tuple[str, ...]:
    """Return the table cells of one instance, in the order of COLUMNS."""
    return (
        one.id,
        one.state.value,
        one.role.value,
        f"{one.in_flight}",
        f"{one.waiting}",
        f"{one.pending_prefill_tokens:,}",
        percent(one.kv_usage),
        f"{one.bound_sessions:,}",
        percent(one.hit_rate),
        seconds(one.ttft_p95_seconds),
        when(one.state_since),
    )

"""`fairlead what-if` tries policies on a pool's own traffic. The control API runs the simulations."""

import time
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from fairlead_cli.asking import ask, token_option, url_option
from fairlead_cli.planning import Approval, approval_options, tell_and_apply
from fairlead_cli.printing import json_option, percent, print_done, print_json, print_table, seconds
from fairlead_client.resources.simulations import (
    EngineModel,
    SimulatedPolicy,
    Simulation,
    SimulationItem,
    SimulationPlanRequest,
    SimulationRequest,
    SimulationState,
    TraceRequest,
)
from fairlead_process.json_documents import decode_json
from fairlead_process.option_types import NumberOption, TimeOption, WholeOption
from fairlead_process.pool_names import name_argument, pool_named

AT_WORK = (SimulationState.QUEUED, SimulationState.RUNNING)
LOOK_SECONDS = 0.5

_id = click.argument("simulation_id", metavar="ID")

_PARAMETERS = msgspec.json.Decoder(dict[str, Any])


@click.group("what-if")
def what_if() -> None:
    """Try policies on a pool's recorded traffic, and make plans from the results."""


@what_if.command()
@name_argument
@click.option("--policy", "policies", multiple=True, required=True, help='A policy, or as name:{"key": value}; may be repeated.')
@click.option(
    "--rate",
    "rates",
    multiple=True,
    type=NumberOption(positive=True),
    default=(1.0,),
    help="Multiple of the recorded rate [1]; may be repeated.",
)
@click.option(
    "--from", "start", type=TimeOption(), default="now-1h", show_default=True, help="First recorded request: RFC 3339, or as now-2h."
)
@click.option("--to", "end", type=TimeOption(), default="now", show_default=True, help="End: RFC 3339, or as now-5m.")
@click.option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Use a trace in Mooncake's JSONL format instead (may be .gz).",
)
@click.option("--replicas", type=WholeOption(1, 10_000), help="Number of instances; default: the present number.")
@click.option("--prefill-replicas", type=WholeOption(1, 10_000), help="Number of prefill instances, in a pool of prefill and decode.")
@click.option("--decode-replicas", type=WholeOption(1, 10_000), help="Number of decode instances, in a pool of prefill and decode.")
@click.option("--engine", type=click.Choice([one.value for one in EngineModel]), help="Model of the engines, as fast as the pool's.")
@click.option(
    "--seed",
    type=WholeOption(0, 2**31 - 1),
    default=0,
    show_default=True,
    help="Seed of the simulation: the same seed gives the same figures.",
)
@click.option("--no-wait", is_flag=True, help="Do not wait for the results.")
@json_option
@url_option
@token_option
def run(name: str, url: tuple[str, ...], token: str | None, *, no_wait: bool, as_json: bool, **options: Any) -> None:
    """Simulate a pool under several policies, and compare the policies with the first one.

    The token needs the role operator.
    """
    pool = pool_named(name)
    engine = options["engine"]
    request = SimulationRequest(
        policies=[_policy(text) for text in options["policies"]],
        rates=list(options["rates"]),
        start=options["start"],
        end=options["end"],
        trace=None if options["trace"] is None else _trace(options["trace"]),
        replicas=options["replicas"],
        prefill_replicas=options["prefill_replicas"],
        decode_replicas=options["decode_replicas"],
        engine=None if engine is None else EngineModel(engine),
        seed=options["seed"],
    )
    found = ask(url, token, lambda api: api.create_simulation(pool, request))
    if not no_wait:
        found = _watched(name, found, url, token)
    _print(found, as_json)


@what_if.command()
@name_argument
@_id
@click.option("--watch", is_flag=True, help="Wait for its end.")
@json_option
@url_option
@token_option
def show(name: str, simulation_id: str, watch: bool, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Show a simulation: its progress, or its results."""
    found = ask(url, token, lambda api: api.simulation(pool_named(name), simulation_id))
    _print(_watched(name, found, url, token) if watch else found, as_json)


@what_if.command("list")
@name_argument
@json_option
@url_option
@token_option
def list_simulations(name: str, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """List a pool's newest simulations."""
    found = ask(url, token, lambda api: api.simulations(pool_named(name))).items
    if as_json:
        print_json(found)
        return
    rows = [(one.id, one.created_at.strftime("%Y-%m-%d %H:%M"), one.state.value, _share(one), _names(one), one.created_by) for one in found]
    print_table(("id", "asked (UTC)", "state", "done", "policies", "by"), rows)


@what_if.command()
@name_argument
@_id
@json_option
@url_option
@token_option
def cancel(name: str, simulation_id: str, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Cancel a simulation. The token needs the role operator."""
    found = ask(url, token, lambda api: api.cancel_simulation(pool_named(name), simulation_id))
    print_done(as_json, found, f"The simulation {found.id} is {found.state.value}.")


@what_if.command()
@name_argument
@_id
@click.option("--policy", type=WholeOption(1, 1000), help="Number of the policy in the results, from 1; default: the winner.")
@approval_options
def apply(name: str, simulation_id: str, policy: int | None, approval: Approval) -> None:
    """Apply the winning policy to the pool, through a plan that is shown first. The token needs the role admin."""
    pool = pool_named(name)
    request = SimulationPlanRequest(policy=None if policy is None else policy - 1)
    plan = ask(approval.url, approval.token, lambda api: api.create_simulation_plan(pool, simulation_id, request))
    tell_and_apply(pool, plan, approval)


def _policy(text: str) -> SimulatedPolicy:
    name, colon, rest = text.partition(":")
    if not colon:
        return SimulatedPolicy(policy=name)
    try:
        return SimulatedPolicy(policy=name, parameters=decode_json(rest.encode("utf-8", "replace"), _PARAMETERS))
    except msgspec.DecodeError as error:
        raise click.BadParameter(f'{text!r}: {error}; write it like dualmap:{{"slo_fraction": 0.5}}', param_hint="--policy") from None


def _trace(path: Path) -> list[TraceRequest]:
    from fairlead_simulator.errors import TraceInvalid  # only here: no other command of these needs the simulator
    from fairlead_simulator.traces.rows import read_trace

    try:
        return [
            TraceRequest(
                timestamp=row.timestamp_ms,
                input_length=row.input_length,
                output_length=row.output_length,
                hash_ids=[*row.hash_ids],
                session_id=row.session,
            )
            for row in read_trace(path)
        ]
    except TraceInvalid as error:
        raise click.BadParameter(str(error), param_hint="--trace") from None


def _watched(name: str, found: Simulation, url: tuple[str, ...], token: str | None) -> Simulation:
    """Wait until the simulation has ended, with progress on standard error, and return it."""
    pool, simulation_id = pool_named(name), found.id
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("requests", total=found.total)
        while found.state in AT_WORK:
            progress.update(task, completed=found.done)
            time.sleep(LOOK_SECONDS)
            found = ask(url, token, lambda api: api.simulation(pool, simulation_id))
    return found


def _print(found: Simulation, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        for line in _heading(found):
            click.echo(line)
        if found.results:
            columns = ("", "rate", "policy", "in time", "change", "refused", "TTFT p50", "p90", "p99", "TPOT p90", "hit rate")
            print_table(columns, [_row(found, number) for number in range(len(found.results))])
            best = found.policies[found.winner or 0]
            click.echo(f"Best: {_policy_text(best)}. Plan it: fairlead what-if apply {found.pool} {found.id}")
        for note in found.notes:
            click.echo(note)
    if found.state is SimulationState.FAILED:
        raise click.ClickException(f"the simulation failed: {found.error}")


def _heading(found: Simulation) -> list[str]:
    span = f"recorded from {found.start:%Y-%m-%d %H:%M} to {found.end:%H:%M} UTC" if found.start and found.end else "of a trace"
    size = (
        f"{found.replicas} instances"
        if found.replicas
        else f"{found.prefill_replicas} prefill and {found.decode_replicas} decode instances"
    )
    return [
        f"Simulation {found.id} of {found.pool}: {found.state.value}, {_share(found)}.",
        f"{found.requests or 0:,} requests {span}; {size}; seed {found.seed}.",
    ]


def _row(found: Simulation, number: int) -> tuple[str, ...]:
    one = found.results[number]
    place = number % len(found.policies)
    latencies = (one.ttft_p50, one.ttft_p90, one.ttft_p99, one.tpot_p90)
    return (
        f"{place + 1}{'*' if place == found.winner else ''}",
        f"{one.rate:g}x ({one.requests_per_second:.3g}/s)",
        _policy_text(found.policies[place]),
        percent(one.attainment),
        f"{100 * one.attainment_change:+.1f}" if place else "",
        percent(one.refused_share),
        *map(seconds, latencies),
        f"{one.hit_rate:.1%} of {one.ideal_hit_rate:.1%}",
    )


def _policy_text(one: SimulatedPolicy) -> str:
    return one.policy + (f" {msgspec.json.encode(one.parameters).decode()}" if one.parameters else "")


def _names(one: SimulationItem) -> str:
    return ", ".join(policy.policy for policy in one.policies)


def _share(one: SimulationItem) -> str:
    return f"{one.done / one.total:.0%}" if one.total else "0%"

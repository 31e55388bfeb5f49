"""`fairlead change` changes a pool by a plan: shown with its effect, applied on confirmation, undone by
another plan.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import click
import yaml

from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead.tables import MIGRATIONS_MODES, PoolKey
from fairlead_cli.asking import ask
from fairlead_cli.planning import (
    Approval,
    Change,
    Outcome,
    approval_options,
    carry_out,
    plan_and_apply,
    planned,
    require_done,
    tell_and_apply,
)
from fairlead_cli.printing import print_json
from fairlead_client.client import ControlApi
from fairlead_client.resources.kind_facts import Input
from fairlead_client.resources.plan_kinds import OF_INSTANCES, SECTIONS, PlanKind, PlanRequest, ScheduleAction
from fairlead_process.option_types import NumberOption, TimeOption
from fairlead_process.pool_names import name_argument, namespace_option, pool_named
from fairlead_process.yaml_documents import complaint, read_yaml


@click.group()
def change() -> None:
    """Change a pool by a plan, which is shown with its effect first; `undo` reverts an applied plan."""


def _bounded(one: Input) -> NumberOption:
    return NumberOption(least=-inf if one.least is None else one.least, most=inf if one.most is None else one.most)


def _inputs(kind: PlanKind) -> Sequence[Callable[[Any], Any]]:
    """Return the click arguments and options of the command for this kind of change: one for each input of the kind."""
    asked: dict[str, Callable[[Any], Any]] = {
        "replicas": click.argument("replicas", type=click.IntRange(0)),
        "role": click.option(
            "--role", type=click.Choice([one.value for one in Role]), help="The role to scale, in a pool of prefill and decode."
        ),
        "instance": click.argument("instance"),
        "session": click.argument("session"),
        "revision": click.argument("revision", type=click.IntRange(1)),
    }
    of_fields = [click.argument(one.name, type=_bounded(one)) for one in kind.facts.inputs]
    return [one for name in kind.facts.takes for one in (of_fields if name == "fields" else [asked[name]])]


def _add_command(kind: PlanKind) -> None:
    """Add the command for a kind of plan that has its own, such as `fairlead change scale chat 5`."""
    facts = kind.facts

    def changed(name: str, approval: Approval, **given: Any) -> None:
        fields = {one.name: given.pop(one.name) for one in facts.inputs}
        role = given.pop("role", None)
        request = PlanRequest(kind=kind, fields=fields or None, role=None if role is None else Role(role), **given)
        plan_and_apply(pool_named(name), request, approval)

    command: Any = approval_options(changed)
    for one in reversed(_inputs(kind)):
        command = one(command)
    change.command(kind.value, help=f"{facts.command} The token needs the role {facts.role}.")(name_argument(command))


for _kind in PlanKind:
    if _kind.facts.command:
        _add_command(_kind)


@change.command()
@click.argument("mode", type=click.Choice([mode.lower() for mode in MIGRATIONS_MODES]))
@click.argument("names", nargs=-1, metavar="[[NAMESPACE/]NAME]...")
@click.option("--all", "all_pools", is_flag=True, help="All pools: make a plan for each pool that is not in this state yet.")
@namespace_option
@approval_options
def migrations(mode: str, names: tuple[str, ...], all_pools: bool, namespace: str | None, approval: Approval) -> None:
    """Pause the migrations of pools, or let them go on. The token needs the role operator."""
    if bool(names) is all_pools:
        raise InvalidInput("NAME", None, "name at least one pool, or write --all")
    wanted = next(one for one in MIGRATIONS_MODES if one.lower() == mode)
    request = PlanRequest(kind=PlanKind.MIGRATIONS, fields={"migrations": wanted})
    pools = _other_pools(wanted, approval) if all_pools else [pool_named(name, namespace) for name in names]
    made: dict[PoolKey, Change] = {}
    refused = 0
    for pool in pools:
        approval.tell(f"{pool}:")
        try:
            made[pool] = carry_out(pool, planned(pool, request, approval), approval)
            require_done(made[pool])
        except click.ClickException as error:  # the others are still to be changed
            refused += 1
            click.echo(f"{pool}: {error.format_message()}", err=True)
        except click.exceptions.Exit:
            refused += 1
        except click.Abort as stopped:
            changed = [one for one, change in made.items() if change.done is Outcome.APPLIED]
            raise _left_off(stopped, changed, [one for one in pools if one not in changed]) from stopped
    if approval.as_json:
        print_json([change.document() for change in made.values()])
    if refused:
        raise click.ClickException("1 pool was not changed" if refused == 1 else f"{refused} pools were not changed")


_OF_SECTIONS = [kind.value for kind in PlanKind if kind in SECTIONS and kind.value not in change.commands]
"""Kinds of change that change a section of the spec and have no command of their own, so that `set` makes them."""


@change.command("set")
@name_argument
@click.argument("section", type=click.Choice(_OF_SECTIONS))
@click.argument("fields", nargs=-1, required=True, metavar="FIELD=VALUE...")
@approval_options
def set_(name: str, section: str, fields: tuple[str, ...], approval: Approval) -> None:
    """Change fields of a section of the spec: `fairlead change set chat slo ttft=3s`.

    `policy` and `ring` are parts of the manifest's `routing`; fields have the manifest's names. Nested fields are
    written with dots, as in `zero.idleAfter=10m`; the value `null` resets a field to its default. The token needs the
    role admin; for `rollout`, operator.
    """
    request = PlanRequest(kind=PlanKind(section), fields=_fields(fields))
    plan_and_apply(pool_named(name), request, approval)


@change.command()
@click.argument("kind", type=click.Choice([kind.value for kind in OF_INSTANCES]))
@name_argument
@click.argument("instance")
@approval_options
def instance(kind: str, name: str, instance: str, approval: Approval) -> None:
    """Cordon or drain one instance, or end its cordon or drain. The token needs the role operator."""
    plan_and_apply(pool_named(name), PlanRequest(kind=PlanKind(kind), instance=instance), approval)


@change.command()
@name_argument
@click.argument("action", type=click.Choice([action.value for action in ScheduleAction]))
@click.argument("schedule")
@click.option("--spec", type=click.File("rb"), help="For set: a file with the schedule as a manifest writes it, without its name.")
@click.option("--start", type=TimeOption(), help="For skip and run: the start, such as 2026-12-01T07:00:00Z.")
@approval_options
def schedule(name: str, action: str, schedule: str, spec: Any, start: str | None, approval: Approval) -> None:
    """Set, delete, pause or resume a schedule; skip one of its starts, or add a start. The token needs the role
    operator.
    """
    fields = {"name": schedule, "action": action}
    given = {"spec": None if spec is None else _manifest(spec), "start": start}
    request = PlanRequest(kind=PlanKind.SCHEDULE, fields={**fields, **{key: value for key, value in given.items() if value is not None}})
    plan_and_apply(pool_named(name), request, approval)


@change.command()
@click.argument("plan")
@approval_options
def undo(plan: str, approval: Approval) -> None:
    """Undo an applied plan by its inverse, which is shown first. The token needs the role that the plan needed."""
    inverse = ask(approval.url, approval.token, lambda api: api.undo_plan(plan))
    tell_and_apply(PoolKey.parse(inverse.pool), inverse, approval)


@change.command()
@click.argument("plan")
@approval_options
def again(plan: str, approval: Approval) -> None:
    """Plan a change again if its plan expired or no longer fits the pool. The token needs the role that the plan
    needed.
    """
    renewed = ask(approval.url, approval.token, lambda api: api.plan_again(plan))
    tell_and_apply(PoolKey.parse(renewed.pool), renewed, approval)


def _left_off(stopped: click.Abort, changed: Sequence[PoolKey], left: Sequence[PoolKey]) -> Exception:
    """Return the error for a change of several pools that ended because a question was not answered. The error lists
    the changed pools and the unchanged pools.
    """
    told = f"changed: {', '.join(map(str, changed)) or 'no pool'}; unchanged: {', '.join(map(str, left))}"
    if isinstance(stopped.__context__, EOFError):
        return click.ClickException(f"standard input gave no answer ({told}); pass --yes and --reason instead")
    click.echo(f"\n{told}", err=True)
    return click.Abort()


def _manifest(file: Any) -> Any:
    """Return the content of a file given by `--spec`. Raises InvalidInput."""
    try:
        return read_yaml(file.read())
    except yaml.YAMLError as error:
        raise InvalidInput("--spec", file.name, f"write a schedule as YAML in UTF-8 ({complaint(error)})") from error


def _fields(given: Sequence[str]) -> dict[str, Any]:
    """Return fields such as `a.b=1` as `{"a": {"b": 1}}`; values are YAML. Raises InvalidInput."""
    found: dict[str, Any] = {}
    for one in given:
        path, equals, text = one.partition("=")
        *sections, name = path.split(".")
        if not equals or not name or not all(sections):
            raise InvalidInput("FIELD=VALUE", one, "write a field of the section and its value, such as ttft=3s")
        inner = found
        for section in sections:
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                raise InvalidInput("FIELD=VALUE", one, f"{section} is given both as one value and by its fields; write one of them")
        if name in inner:
            raise InvalidInput("FIELD=VALUE", one, f"{path} is given twice; write it once")
        inner[name] = _value(path, text)
    return found


def _value(path: str, text: str) -> Any:
    """Return a field's value from YAML text. An empty text, or a mere comment, would be null in YAML; it is refused,
    because the user probably does not mean the default. Raises InvalidInput.
    """
    try:
        value = read_yaml(text)
    except yaml.YAMLError as error:
        raise InvalidInput(path, text, f"write the value as YAML ({complaint(error)})") from error
    if value in (None, "") and text.strip() not in {"null", "~"}:
        raise InvalidInput(path, text, "write a value, or null for the default; the shell variable in it may be empty")
    return value


def _other_pools(wanted: str, approval: Approval) -> list[PoolKey]:
    """Return all pools whose migrations are not in the state `wanted` yet."""

    async def found(api: ControlApi) -> list[PoolKey]:
        keys: list[PoolKey] = []
        cursor: str | None = None
        while True:
            page = await api.pools(cursor=cursor)
            keys += [PoolKey(namespace=one.namespace, name=one.name) for one in page.items]
            if (cursor := page.next_cursor) is None:
                break
        specs = {key: (await api.pool(key)).spec for key in keys}
        return [key for key, spec in specs.items() if (spec.get("routing") or {}).get("migrations", MIGRATIONS_MODES[0]) != wanted]

    return ask(approval.url, approval.token, found)

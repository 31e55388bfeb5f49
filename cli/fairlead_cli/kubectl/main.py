"""Entry points of the kubectl plugin: `kubectl-fairlead`, and `kubectl_complete-fairlead`, which kubectl runs for
completion.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click
from click.shell_completion import ShellComplete

from fairlead_cli.asking import DOOR
from fairlead_cli.changes import change
from fairlead_cli.decisions import show as show_decision
from fairlead_cli.kubectl.door import USUAL_SERVICE, Door, ServicePlace, place_of
from fairlead_cli.kubectl.glance import status
from fairlead_cli.main import LazyGroup
from fairlead_cli.planning import Approval, approval_options, plan_and_apply
from fairlead_cli.plans import apply, undo
from fairlead_cli.subcommands import SUBCOMMANDS, Subcommand
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_process import commands
from fairlead_process.pool_names import USUAL_NAMESPACE, name_argument, pool_named

PROGRAM = "kubectl fairlead"
KUBECTLS_OWN = ("--context", "--cluster", "--user", "--kubeconfig", "--as", "--request-timeout")
"""Options that are passed on to kubectl; each takes a value."""
OWN = (*KUBECTLS_OWN, "--service")


class Planning(click.Group):
    """A group of commands that make and show the plan of a change without applying it; `--no-apply` is added to
    each.
    """

    def __init__(self) -> None:
        super().__init__(
            "plan", help="Make and show the plan of a change without applying it; `apply ID` applies it.", commands=change.commands
        )

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, ["--no-apply", *rest]


@click.command()
@name_argument
@click.argument("instance")
@approval_options
def drain(name: str, instance: str, approval: Approval) -> None:
    """Drain one instance: it takes no new requests, its sessions move, and it ends when it is idle. The token needs the
    role operator.
    """
    plan_and_apply(pool_named(name), PlanRequest(kind=PlanKind.DRAIN, instance=instance), approval)


def _shown(command: click.Command) -> Callable[[], click.Command]:
    return lambda: command


def _why() -> click.Command:
    return SUBCOMMANDS["advice"].load()


VERBS = {
    "status": Subcommand(help="All pools in a line each, or one pool at a glance.", load=_shown(status)),
    "why": Subcommand(help="The problems of a pool, their causes, and the plan that would help.", load=_why),
    "plan": Subcommand(help="Make and show the plan of a change without applying it.", load=lambda: Planning()),
    "apply": Subcommand(help="Apply a plan.", load=_shown(apply)),
    "undo": Subcommand(help="Undo an applied plan.", load=_shown(undo)),
    "drain": Subcommand(help="Drain one instance.", load=_shown(drain)),
    "logs": Subcommand(help="One routing decision, with every candidate's score.", load=_shown(show_decision)),
}
OF_THE_API = (
    "change", "pools", "instances", "sessions", "migrations", "decisions", "rejections", "schedules", "plans", "slo", "advice", "keys",
    "tokens", "what-if", "audit", "verify",
)  # fmt: skip


class Plugin(LazyGroup):
    """The plugin's command group. Its options may be anywhere on the command line, like kubectl's own."""

    def __init__(self) -> None:
        super().__init__({**VERBS, **{name: SUBCOMMANDS[name] for name in OF_THE_API}})
        self.name, self.callback = PROGRAM, _enter
        self.help = "Fairlead's pools in the cluster that kubectl is signed in to, through its API server: no port is forwarded."
        for name in KUBECTLS_OWN:
            self.params.append(click.Option([name], metavar="VALUE", help="As kubectl's own."))
        self.params.append(
            click.Option(["-n", "--namespace"], help="Namespace of pools that are named without one; default: the context's.")
        )
        self.params.append(
            click.Option(
                ["--service"],
                default=USUAL_SERVICE,
                show_default=True,
                callback=place_of,
                metavar="NAMESPACE/NAME:PORT",
                help="The Service of the control API.",
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, own_first(args))


def _enter(namespace: str | None, service: ServicePlace, **given: str | None) -> None:
    options = [word for name, value in given.items() if value is not None for word in (f"--{name.replace('_', '-')}", value)]
    context = click.get_current_context()
    door = Door(tuple(options), service)
    context.meta[DOOR] = door
    context.meta[USUAL_NAMESPACE] = lambda: namespace or door.namespace


def own_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the plugin's options moved to the beginning. Arguments after `--` stay."""
    first: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            return [*first, *rest, word, *words]
        if word.partition("=")[0] in OWN:
            first += [word] if "=" in word else [word, *([value] if (value := next(words, None)) is not None else [])]
        else:
            rest.append(word)
    return [*first, *rest]


def main() -> NoReturn:
    """Run the command line in `sys.argv`, and exit with a code of `fairlead_process.commands`."""
    commands.run_program(Plugin(), PROGRAM)


def complete() -> None:
    """Print the completions of the last word in `sys.argv`, one per line with its help, and a directive to kubectl
    (`:4`) not to complete file names.
    """
    *before, incomplete = sys.argv[1:] or [""]
    for one in completions(before, incomplete):
        click.echo(f"{one.value}\t{one.help}" if one.help else one.value)
    click.echo(":4")


def completions(before: list[str], incomplete: str) -> list[Any]:
    """Return the completions of `incomplete` after the words `before`."""
    return ShellComplete(Plugin(), {}, PROGRAM, "").get_completions(own_first(before), incomplete)


if __name__ == "__main__":
    main()

"""Entry point of `fairlead`: a lazy click group that prints an error as one line."""

from collections.abc import Mapping
from typing import NoReturn

import click
from click.shell_completion import CompletionItem

from fairlead_cli.subcommands import SUBCOMMANDS, Subcommand
from fairlead_process import commands


class LazyGroup(click.Group):
    """A group that imports the module of a subcommand only when the subcommand runs or its help is shown."""

    def __init__(self, subcommands: Mapping[str, Subcommand]) -> None:
        super().__init__(
            name="fairlead",
            help="Cache-aware routing and audited scaling for LLM inference pools.",
            no_args_is_help=True,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        self._subcommands = subcommands
        self.params.append(
            click.Option(["--version"], is_flag=True, expose_value=False, is_eager=True, help="Print the version.", callback=_print_version)
        )

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._subcommands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self._subcommands.get(cmd_name)
        return None if found is None else _load(cmd_name, found)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name, help=one.help) for name, one in self._subcommands.items() if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in self._subcommands.items()])


def main() -> NoReturn:
    """Run the command line in `sys.argv`, and exit with a code of `fairlead_process.commands`."""
    commands.run_program(LazyGroup(SUBCOMMANDS), "fairlead")


def run(arguments: list[str]) -> int:
    """Run a command line; returns its exit code. Every error becomes one line on standard error."""
    return commands.run(LazyGroup(SUBCOMMANDS), arguments, "fairlead")


def _load(name: str, command: Subcommand) -> click.Command:
    try:
        return command.load()
    except ImportError as problem:
        extra = f"[{command.extra}]" if command.extra else ""
        raise click.ClickException(f"`fairlead {name}` is not completely installed ({problem}); install fairlead{extra}") from None


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import PackageNotFoundError, version

        try:
            click.echo(f"fairlead {version('fairlead')}")
        except PackageNotFoundError:
            click.echo("fairlead (not installed as a package)")
        ctx.exit()


if __name__ == "__main__":
    main()

"""Entry point of `fairlead`: a lazy click group that prints an error as one line."""

import os
import sys
from collections.abc import Mapping
from typing import NoReturn

import click
from click.shell_completion import CompletionItem

from fairlead.errors import InvalidInput
from fairlead_cli.subcommands import SUBCOMMANDS, Subcommand
from fairlead_process.starting import debug, line_of

FAILED, WRONG, INTERRUPTED = 1, 2, 130
"""Exit codes: for a failure, for an unusable command line or setting, and for Ctrl-C."""


class LazyGroup(click.Group):
    """Imports a subcommand when it is run or its help is shown, never to list it."""

    def __init__(self, subcommands: Mapping[str, Subcommand]) -> None:
        super().__init__(name="fairlead", help="Cache-aware routing and audited scaling for LLM inference pools.", no_args_is_help=True)
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
    """Run the command line in `sys.argv`, and exit with one of the codes above."""
    try:
        tracebacks = debug(os.environ)
    except InvalidInput as problem:
        sys.exit(_complain(str(problem), WRONG))
    if tracebacks:
        LazyGroup(SUBCOMMANDS).main(prog_name="fairlead")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command line; returns its exit code. Every error becomes one line on standard error."""
    try:
        try:
            result = LazyGroup(SUBCOMMANDS).main(arguments, prog_name="fairlead", standalone_mode=False)
        finally:
            sys.stdout.flush()  # here, where it is known what to do when nobody reads it, and not as the interpreter ends
    except click.ClickException as problem:
        problem.show()
        return problem.exit_code
    except click.Abort as problem:
        if isinstance(problem.__context__, EOFError):  # a question that nobody is there to answer
            return _complain("standard input gave no answer, so nothing was changed; pass --yes and --reason instead")
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BrokenPipeError:  # the reader of our output (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as problem:  # noqa: BLE001 - the last line of defence between a user and a traceback
        line = line_of(problem) or f"{type(problem).__name__}: {problem} (set FAIRLEAD_DEBUG=1 to see where)"
        return _complain(line, WRONG if isinstance(problem, InvalidInput) else FAILED)
    return result if isinstance(result, int) else 0


def _load(name: str, command: Subcommand) -> click.Command:
    try:
        return command.load()
    except ImportError as problem:
        extra = f"[{command.extra}]" if command.extra else ""
        raise click.ClickException(f"`fairlead {name}` is not completely installed ({problem}); install fairlead{extra}") from None


def _complain(text: str, code: int = FAILED) -> int:
    print(f"fairlead: {' '.join(text.splitlines())}", file=sys.stderr)
    return code


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

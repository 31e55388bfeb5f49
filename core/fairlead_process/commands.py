"""Runs every command of Fairlead. Every error becomes one line on standard error, and all commands share one table of
exit codes.

`fairlead`, `kubectl fairlead` and each `python -m …` end here. No input may end in a traceback: the message names the
option, argument or variable that cannot be used, its value (never a secret) and the remedy.
"""

import os
import sys
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import NoReturn

import click

from fairlead.errors import InvalidInput
from fairlead_process.starting import debug, line_of


class ExitCode(IntEnum):
    """The exit code of a command."""

    DONE = 0
    FAILED = 1
    WRONG = 2
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.DONE: "Done; also when the reader of a pipe has seen enough (`| head`), and if `down` finds nothing that runs.",
    ExitCode.FAILED: "Not done, or a problem was found: the API, a file or a process refused or did not answer; a change was declined, "
    "or another program owns the object; or a check (`verify`, `audit verify`, `kv-events check`, `status`) found a problem.",
    ExitCode.WRONG: "A command line, an input or a setting that cannot be used; nothing was tried.",
    ExitCode.INTERRUPTED: "Ended by Ctrl-C.",
}
"""The meaning of each exit code; docs/cli.md has this table."""


def run_program(command: click.Command, program: str) -> NoReturn:
    """Run the command line in `sys.argv` and exit with its code; with FAIRLEAD_DEBUG=1 faults show their traceback."""
    _replace_closed_streams()
    try:
        tracebacks = debug(os.environ)
    except InvalidInput as problem:
        sys.exit(_complain(program, str(problem), ExitCode.WRONG))
    if tracebacks:
        command.main(prog_name=program)
    sys.exit(run(command, sys.argv[1:], program))


def _replace_closed_streams() -> None:
    """Put the null device in place of each standard stream that the caller has closed (`>&-`). Python has no object for
    such a stream, and the stream's number would go to the next file or connection. Text that libraries print to the
    stream would then go there too.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - it stays open until the process ends


def run(command: click.Command, arguments: Sequence[str], program: str) -> int:
    """Run a command line and return its exit code. Every error becomes one line on standard error."""
    try:
        try:
            require_values(arguments)
            result = command.main(list(arguments), prog_name=program, standalone_mode=False)
        finally:
            sys.stdout.flush()  # here, where it is known what to do when nobody reads it, and not as the interpreter ends
    except click.exceptions.NoArgsIsHelpError as problem:
        return _without_arguments(problem, program)
    except click.ClickException as problem:
        return _complain(program, line_of_click(problem), problem.exit_code)
    except click.Abort as problem:
        if isinstance(problem.__context__, EOFError):  # a question that nobody is there to answer
            told = "standard input gave no answer, so nothing was changed; pass --yes and --reason"
            return _complain(program, told, ExitCode.FAILED)
        return ExitCode.INTERRUPTED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BrokenPipeError:  # the reader of our output (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except Exception as problem:  # noqa: BLE001 - the last line of defence between a user and a traceback
        line = line_of(problem) or f"{type(problem).__name__}: {problem} (set FAIRLEAD_DEBUG=1 to see where)"
        return _complain(program, " ".join(line.splitlines()), ExitCode.WRONG if isinstance(problem, InvalidInput) else ExitCode.FAILED)
    return result if isinstance(result, int) else ExitCode.DONE


def require_values(arguments: Sequence[str]) -> None:
    """Refuse a command line with an empty value (as from `--pool "$POOL"` if the variable is not set) or with a value
    that is not in UTF-8. An empty value is never taken for the default. Raises InvalidInput.
    """
    for before, one in zip(("", *arguments), arguments, strict=False):
        name, equals, value = one.partition("=") if one.startswith("--") else (before, "=", one)
        if equals and not value.strip():
            place = name if name.startswith("-") else f"the argument after {before!r}" if before else "the first argument"
            raise InvalidInput(place, value, "write a value, or leave it out; the variable it is from may be empty")
        if not one.isprintable() and any("\ud800" <= sign <= "\udfff" for sign in one):
            raise InvalidInput(before or "the first argument", one, "write text in UTF-8")


def line_of_click(problem: click.ClickException) -> str:
    """Return click's error in Fairlead's form: name, value and remedy."""
    message = problem.format_message()
    if isinstance(problem, click.MissingParameter):
        return f"{_name(problem)}: is missing; write {_wanted(problem.param)}"
    if isinstance(problem, click.BadParameter):
        told = problem.message.strip().rstrip(".")
        return f"{_name(problem)}: {told}" + ("" if "; " in told else f"; write {_wanted(problem.param)}")
    if isinstance(problem, click.UsageError) and "; " not in message:
        path = problem.ctx.command_path if problem.ctx is not None else ""
        return f"{message.rstrip('.')}; see `{f'{path} --help'.strip()}`"
    return message


def _name(problem: click.BadParameter) -> str:
    """Return the name of the wrong option or argument or, if its value comes from a variable, the name of the
    variable.
    """
    param, hint = problem.param, problem.param_hint
    if param is None or hint is not None:
        return hint if isinstance(hint, str) else " / ".join(hint or ("input",))
    source = problem.ctx.get_parameter_source(param.name or "") if problem.ctx is not None else None
    if source is click.core.ParameterSource.ENVIRONMENT and isinstance(param.envvar, str):
        return param.envvar
    return name_of(param)


def name_of(param: click.Parameter) -> str:
    """Return the name of an option as it is written on the command line, or of an argument as the help shows it,
    without brackets.
    """
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    return param.metavar if param.metavar and param.metavar.isalpha() else (param.name or "").upper()


def _wanted(param: click.Parameter | None) -> str:
    kind = None if param is None else param.type
    if isinstance(kind, click.Choice):
        return "one of " + ", ".join(map(str, kind.choices))
    if isinstance(kind, click.IntRange | click.FloatRange):
        noun = "a whole number" if isinstance(kind, click.IntRange) else "a number"
        return f"{noun}{'' if kind.min is None else f' of at least {kind.min}'}{'' if kind.max is None else f', at most {kind.max}'}"
    named = {"integer": "a whole number", "float": "a number", "file": "the path of a file", "directory": "the path of a folder"}
    fallback = "a value" if param is None or param.metavar is None else param.metavar
    return named.get(getattr(kind, "name", ""), fallback)


def _without_arguments(problem: click.exceptions.NoArgsIsHelpError, program: str) -> int:
    """Handle a command line that ends after a group of commands, and return the exit code. For the program itself its
    whole help is printed; for a group below it, one line that names the group's commands.
    """
    context = problem.ctx
    assert context is not None
    group = context.command
    if context.parent is None or not isinstance(group, click.Group):
        click.echo(context.get_help())
        return ExitCode.DONE
    names = ", ".join(group.list_commands(context))
    return _complain(program, f"`{context.command_path}` is a group of commands; write one of {names} after it", ExitCode.WRONG)


def _complain(program: str, text: str, code: int) -> int:
    print(f"{program}: {text}", file=sys.stderr)
    return code

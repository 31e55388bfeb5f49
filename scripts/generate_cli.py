#!/usr/bin/env python3
"""Writes docs/cli.md (`--check` only says whether it is as it should be): every command of `fairlead`, from click."""

import inspect
import sys
from collections.abc import Iterator

import click
from generated_page import DOCS, settle, table

from fairlead_cli.subcommands import SUBCOMMANDS

INTRODUCTION = """
# Command line

`fairlead COMMAND --help` says the same as this page, which is written by `make generate` from the commands themselves. A wrong command line ends with
exit code 2, a failure with 1; each with one line that says what to do. `FAIRLEAD_DEBUG=1` shows where a failure happened. `fairlead --version` prints
the version.

In a checkout `make .venv/ready && source .venv/bin/activate` installs every command with all that it needs. The package is not on PyPI yet. In an
environment of your own a command needs the extra of the package that is named below its usage.
"""
_INSTALLED_WITH = "It needs the extra `{extra}` of the package `fairlead`."


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION.strip() + "\n"]
    rows = [(f"[`{name}`](#fairlead-{name})", subcommand.help) for name, subcommand in SUBCOMMANDS.items()]
    parts.append(table(("Command", "What it does"), rows))
    for name, subcommand in SUBCOMMANDS.items():
        parts += sections(subcommand.load(), f"fairlead {name}", subcommand.extra)
    return "\n".join(parts)


def sections(command: click.Command, path: str, extra: str = "") -> Iterator[str]:
    """The command, then those below it."""
    context = click.Context(command, info_name=path)
    pieces = [path, *command.collect_usage_pieces(context)]
    parts = [f"## {path}", f"`{' '.join(pieces)}`", inspect.cleandoc(command.help or "")]
    if extra:
        parts.append(_INSTALLED_WITH.format(extra=extra))
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if options:
        rows = [(names(option), values(option), default(option, context), meaning(option)) for option in options]
        parts.append(table(("Option", "Value", "Default", "Meaning"), rows).rstrip())
    yield "\n\n".join(part for part in parts if part) + "\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from sections(found, f"{path} {name}")


def names(option: click.Option) -> str:
    """All spellings."""
    return ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def values(option: click.Option) -> str:
    """What may be written; nothing for a switch."""
    if option.is_flag:
        return ""
    kind = option.type
    if isinstance(kind, click.Choice):
        written = ", ".join(f"`{choice}`" for choice in kind.choices)
    elif isinstance(kind, click.IntRange | click.FloatRange):
        written = bounds(kind)
    else:
        written = (option.metavar or {"integer": "whole number", "float": "number"}.get(kind.name, kind.name)).lower()
        written = option.metavar or written
    return f"{written}; once or more" if option.multiple else written


def bounds(kind: click.IntRange | click.FloatRange) -> str:
    """A range in words."""
    word = "whole number" if isinstance(kind, click.IntRange) else "number"
    if kind.max is None:
        return f"{word}, at least {kind.min}"
    return f"{word}, {kind.min} to {kind.max}" if kind.min is not None else f"{word}, at most {kind.max}"


def default(option: click.Option, context: click.Context) -> str:
    """The default as it would be written; `required` where there must be a value."""
    if option.required:
        return "required"
    given = option.get_default(context, call=False)
    if option.is_flag:
        if not option.secondary_opts:
            return ""
        return f"`{(option.opts if given else option.secondary_opts)[0]}`"
    return f"`{given}`" if isinstance(given, str | int | float) and given != "" else ""


def meaning(option: click.Option) -> str:
    """The help text, with the variable that can stand for the option."""
    text = option.help or ""
    variable = option.envvar
    return f"{text} Also `{variable}`." if isinstance(variable, str) and variable not in text else text


if __name__ == "__main__":
    sys.exit(settle(DOCS / "cli.md", page()))

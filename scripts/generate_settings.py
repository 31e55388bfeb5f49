#!/usr/bin/env python3
"""Writes docs/settings.md, the page of every environment variable of every process. With `--check` it only compares the
page.
"""

import sys
from collections.abc import Iterator

import click
from generated_page import DOCS, settle

from fairlead_cli.subcommands import SUBCOMMANDS
from fairlead_host.settings import HostSettings
from fairlead_operator.settings import OperatorSettings
from fairlead_process.logs import LogSettings
from fairlead_process.reference import CommandOption, Section, page
from fairlead_process.starting import FaultSettings
from fairlead_router.settings import RouterSettings
from fairlead_sandbox.settings import SandboxSettings
from fairlead_web.frame.settings import AloneSettings

INTRODUCTION = """
# Settings

Every process reads its settings from environment variables, once, at its start; where to listen is told on the command line (`--help`). A value that
cannot be used ends the start with one line that names variable, value and remedy, and with exit code 2. An empty variable counts as not set. A
variable that begins with `FAIRLEAD_` and that the process does not have is a warning in its log, with the name it may be meant for.

This page is written by `make generate` from the settings themselves.
"""

COMMON = Section(
    title="Every process",
    started_by="Log lines go to standard error: time, level, logger, what happened, and `name=value` of what it happened to.",
    settings=(LogSettings, FaultSettings),
)

SECTIONS = (
    Section(title="Router", started_by="`fairlead router`, or `python -m fairlead_router.main`.", settings=(RouterSettings,)),
    Section(
        title="Control API and web UI",
        started_by="`fairlead api` serves both. `python -m fairlead_api.main` serves the API alone, without `FAIRLEAD_WEB` and `FAIRLEAD_PUBLIC_URL`.",
        settings=(HostSettings,),
    ),
    Section(title="Web UI alone", started_by="`python -m fairlead_web.main`.", settings=(AloneSettings,)),
    Section(title="Operator", started_by="`fairlead operator`, or `python -m fairlead_operator.main`.", settings=(OperatorSettings,)),
    Section(
        title="Sandbox",
        started_by="`fairlead up` hands each process those of your variables that the process has, and says which ones nothing reads.",
        settings=(SandboxSettings,),
    ),
)


def options() -> list[CommandOption]:
    """Return the options, of subcommands at all levels, that an environment variable can set."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for name, subcommand in SUBCOMMANDS.items():
        for option in options_of(subcommand.load()):
            if isinstance(option.envvar, str):
                text = (option.help or "").partition(" [")[0].rstrip(".") + "."
                names = found.setdefault((option.envvar, option.opts[0], text), [])
                if name not in names:
                    names.append(name)
    return [
        CommandOption(variable=variable, option=option, help=text, commands=tuple(commands))
        for (variable, option, text), commands in sorted(found.items())
    ]


def options_of(command: click.Command) -> Iterator[click.Option]:
    """Yield the command's options, then those of its subcommands."""
    yield from (option for option in command.params if isinstance(option, click.Option))
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            yield from options_of(inner)


def main() -> int:
    """Write the page, or with `--check` compare it; return 1 if it differs."""
    return settle(DOCS / "settings.md", page(INTRODUCTION, COMMON, SECTIONS, options()))


if __name__ == "__main__":
    sys.exit(main())

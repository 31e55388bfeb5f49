#!/usr/bin/env python3
"""Writes docs/cli.md, the page of every command of `fairlead`, from click. With `--check` it only compares the page."""

import inspect
import sys
from collections.abc import Iterator

import click
from generated_page import DOCS, settle, table

from fairlead_cli.kubectl.door import USUAL_SERVICE
from fairlead_cli.kubectl.main import OF_THE_API
from fairlead_cli.subcommands import SUBCOMMANDS
from fairlead_process.commands import MEANINGS, ExitCode

INTRODUCTION = """
# Command line

`fairlead COMMAND --help` (or `-h`) says the same as this page, which is written by `make generate` from the commands themselves. `fairlead --version`
prints the version.

In a checkout `make .venv/ready && source .venv/bin/activate` installs every command with all that it needs. The package is not on PyPI yet. In an
environment of your own a command needs the extra of the package that is named below its usage.

## In scripts

- **Output.** Results are on standard output, all else on standard error. With `-o json` standard output has one JSON document and nothing more. Of a
  change that is the plan (`id`, `state`, `diff`, `effect`), its `expectation`, and `done`: `applied`, `planned` (`--no-apply`), `declined` or
  `owned-elsewhere` (its `patch` is to be committed there).
- **Approval.** `--yes` applies without a question, `--reason` says why; `--no-apply` only makes the plan, and `fairlead plans apply ID` applies it.
  Without an answer on standard input nothing is changed.
- **Pools.** A pool is named `NAME` or `NAMESPACE/NAME`; `-n NAMESPACE` says where a name without a namespace is, else `default` is meant.
- **Values.** An empty value, as `--reason "$WHY"` has where the variable is not set, is refused and never taken for the default. URLs, times and
  numbers are judged before anything is asked.
- **Faults.** Whatever goes wrong is one line on standard error, with the name and value of what cannot be used and what to write instead; secrets are
  never in it. A conflict between two changes, and a patch for Git, take more lines. `FAIRLEAD_DEBUG=1` shows where a failure happened.
- **Where.** `--url` and `--token`, or `FAIRLEAD_URL` and `FAIRLEAD_TOKEN`. Without them the sandbox of this folder is asked.

The exit codes of every command:

EXIT_CODES

## kubectl fairlead

The commands about pools as a plugin of kubectl: `kubectl-fairlead` is installed with the package, and kubectl finds it on `PATH`. It asks the control
API through the API server that kubectl is signed in to, by the service proxy: no port is forwarded. It needs the right to `get` and `create` (to revoke
and let go: `delete`, to change a key: `patch`) `services/proxy` of `fairlead-api:http` in its namespace.

```console
$ kubectl fairlead status                                  # all pools in a line each
$ kubectl fairlead status chat                             # one at a glance, in the namespace of kubectl's context
$ kubectl fairlead why chat                                # what hurts it, and the plan that would help
$ kubectl fairlead plan scale chat 6                       # what would happen to whom; nothing is applied
$ kubectl fairlead apply ID                                # and `undo ID` takes it back
$ kubectl fairlead drain chat INSTANCE
$ kubectl fairlead logs ID                                 # a decision, with every candidate's score
```

COMMANDS_OF_THE_API are there too, as below. `--context`, `--cluster`, `--user`, `--kubeconfig`, `--as`, `--request-timeout` and `-n` are kubectl's own and
may stand anywhere. `--service NAMESPACE/NAME:PORT` names another Service than SERVICE. Fairlead's token is
`--token` or `FAIRLEAD_TOKEN`; without one it is that of kubectl's user, where kubectl's configuration holds one and Fairlead asks the cluster who it is
([install.md](install.md#who-may-sign-in)). The API server keeps the `Authorization` header to itself, so the token is sent as `X-Fairlead-Token`. A name with
a slash in it, as a session may have, cannot be asked for this way: the API server decodes it. `FAIRLEAD_URL` is not heeded.

krew installs it from an archive that `scripts/krew_plugin.py WHEEL OUT URI HOMEPAGE` packs, with the manifest beside it; no release is published yet.
kubectl 1.26 or newer completes commands and options by `kubectl_complete-fairlead`, which is installed beside it.

## Commands
"""
_INSTALLED_WITH = "It needs the extra `{extra}` of the package `fairlead`."


def page() -> str:
    """Return the whole page."""
    codes = table(("Code", "Meaning"), [(f"{code.value}", MEANINGS[code]) for code in ExitCode]).strip()
    of_the_api = ", ".join(f"`{name}`" for name in OF_THE_API)
    introduction = (
        INTRODUCTION.replace("EXIT_CODES", codes).replace("COMMANDS_OF_THE_API", of_the_api).replace("SERVICE.", f"`{USUAL_SERVICE}`.")
    )
    parts = [introduction.strip() + "\n"]
    rows = [(f"[`{name}`](#fairlead-{name})", subcommand.help) for name, subcommand in SUBCOMMANDS.items()]
    parts.append(table(("Command", "What it does"), rows))
    for name, subcommand in SUBCOMMANDS.items():
        parts += sections(subcommand.load(), f"fairlead {name}", subcommand.extra)
    return "\n".join(parts)


def sections(command: click.Command, path: str, extra: str = "") -> Iterator[str]:
    """Yield the section of the command, then those of its subcommands."""
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
    """Return all spellings of an option."""
    return ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def values(option: click.Option) -> str:
    """Return the possible values of an option in words; empty for a flag."""
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
    """Return a range in words."""
    word = "whole number" if isinstance(kind, click.IntRange) else "number"
    if kind.max is None:
        return f"{word}, at least {kind.min}"
    return f"{word}, {kind.min} to {kind.max}" if kind.min is not None else f"{word}, at most {kind.max}"


def default(option: click.Option, context: click.Context) -> str:
    """Return the default as a user would write it; `required` if the option has to be given."""
    if option.required:
        return "required"
    given = option.get_default(context, call=False)
    if option.is_flag:
        if not option.secondary_opts:
            return ""
        return f"`{(option.opts if given else option.secondary_opts)[0]}`"
    return f"`{given}`" if isinstance(given, str | int | float) and given != "" else ""


def meaning(option: click.Option) -> str:
    """Return the help text, with the environment variable that can replace the option."""
    text = option.help or ""
    variable = option.envvar
    return f"{text} Also `{variable}`." if isinstance(variable, str) and variable not in text else text


if __name__ == "__main__":
    sys.exit(settle(DOCS / "cli.md", page()))

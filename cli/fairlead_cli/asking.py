"""Calls of the control API by commands: the options for its address and token, and errors as one line.

Without `--url` and `--token`, commands use the sandbox of this folder, if one runs: `fairlead up`, then any command.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click

from fairlead.errors import InvalidInput
from fairlead_cli.printing import steps, time_words
from fairlead_client.client import ControlApi
from fairlead_client.problems import ApiLate, ApiProblem, ApiUnreachable, ClientBusy, told
from fairlead_client.resources.problems import Problem
from fairlead_process.kinds import Addresses
from fairlead_process.option_types import InputUnusable, KindOption

Answer = TypeVar("Answer")

_ADDRESSES = Addresses("http://127.0.0.1:8080")
DOOR = "fairlead.door"
"""Key in the click context's `meta` for the `Door`: the connection of `kubectl fairlead` to the control API."""
_OR_FOLDER = "or name the sandbox's state directory with FAIRLEAD_STATE_DIR"
_OF_FAIRLEAD = f"give the API's address with --url and a token with --token, {_OR_FOLDER}"
_OF_LATE = "it or its database is overloaded or waits for something; send it again later, and look at the API's log"
_OF_KUBECTL = "name the Service of the control API with --service NAMESPACE/NAME:PORT, or another cluster with --context"


def _bearer(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is not None and not (text.isascii() and text.isprintable()):
        raise click.BadParameter("it has characters that no token has; copy it again")
    return text


url_option = click.option(
    "--url",
    envvar="FAIRLEAD_URL",
    type=KindOption(_ADDRESSES),
    default=(),
    help="Address of the control API, or several addresses with commas: after a failure, the next one is used [FAIRLEAD_URL]. "
    f"Default: the sandbox of this folder, else {_ADDRESSES.example}.",
)
token_option = click.option(
    "--token",
    envvar="FAIRLEAD_TOKEN",
    callback=_bearer,
    help="An API token [FAIRLEAD_TOKEN]; default: the sandbox's own.",
)


def place(url: tuple[str, ...], token: str | None) -> tuple[tuple[str, ...], str | None]:
    """Return the addresses and the token of the control API. Values that are not given come from this folder's running
    sandbox. Raises InvalidInput if FAIRLEAD_STATE_DIR names a folder without a running sandbox, because otherwise the
    request would go to another system.
    """
    if url and token:
        return url, token
    named = os.environ.get("FAIRLEAD_STATE_DIR")
    found = _sandbox(Path(named or ".fairlead").absolute())
    if named and found is None and not url:
        raise InvalidInput(
            "FAIRLEAD_STATE_DIR", named, "no sandbox of yours runs there; name the folder of a running sandbox, or give --url"
        )
    if found is not None and (not url or set(url) == set(found.apis)):
        return url or found.apis, token or found.admin
    return url or (_ADDRESSES.example,), token


def connect(url: tuple[str, ...], token: str | None) -> ControlApi:
    """Return a client of the control API, which the caller must close."""
    urls, bearer = place(url, token)
    return ControlApi(urls, bearer, timeout_seconds=30.0)


def program() -> str:
    """Return the name of the program as its user types it: `fairlead` or `kubectl fairlead`."""
    context = click.get_current_context(silent=True)
    return "fairlead" if context is None else context.find_root().info_name or "fairlead"


def is_behind_kubernetes(url: tuple[str, ...]) -> bool:
    """Return whether the control API is reached through a Kubernetes API server: with `kubectl fairlead`, unless
    `--url` is given on its command line.

    FAIRLEAD_URL is for `fairlead` only.
    """
    context = click.get_current_context(silent=True)
    if context is None or DOOR not in context.meta:
        return False
    return not url or context.get_parameter_source("url") is not click.core.ParameterSource.COMMANDLINE


@contextmanager
def reached(url: tuple[str, ...], token: str | None) -> Iterator[ControlApi]:
    """Yield a client of the control API that is closed when the block ends."""
    if is_behind_kubernetes(url):
        with click.get_current_context().meta[DOOR].opened(token) as api:
            yield api
    else:
        yield connect(url, token)


def ask(url: tuple[str, ...], token: str | None, question: Callable[[ControlApi], Awaitable[Answer]]) -> Answer:
    """Return the result of `question`, which calls the control API. Raises ClickException, which is printed as one
    line.
    """

    async def asked(client: ControlApi) -> Answer:
        async with client as api:
            return await question(api)

    try:
        with reached(url, token) as client:
            return asyncio.run(asked(client))
    except ApiProblem as error:
        raise _refusal(error, is_behind_kubernetes(url)) from error
    except ClientBusy as error:
        raise click.ClickException(str(error)) from error
    except ApiLate as error:
        raise click.ClickException(f"{error}; {_OF_LATE}") from error
    except ApiUnreachable as error:
        remedy = _OF_KUBECTL if is_behind_kubernetes(url) else _OF_FAIRLEAD
        raise click.ClickException(f"{error}; {remedy}") from error


def _refusal(error: ApiProblem, is_of_kubectl: bool) -> click.ClickException:
    """Return the control API's refusal as an exception. If the API refuses an input as invalid, the exception is a
    usage error, as if the command line had refused the input.
    """
    kind = InputUnusable if error.problem.status in {400, 422} else click.ClickException
    return kind("\n".join([told(error.problem) + _to_sign_in(error, is_of_kubectl), *conflict_lines(error.problem)]))


def conflict_lines(problem: Problem) -> list[str]:
    """Return lines about a plan's conflict: the plan's change, and the changes by others since the plan was made; empty
    for other problems.
    """
    conflict = problem.conflict
    if conflict is None:
        return []
    lines = [f"What plan {conflict.plan} changes:", *steps(conflict.planned)]
    for one in conflict.meanwhile:
        at = f", {time_words(one.at)}" if one.at is not None else ""
        lines += [f"Changed meanwhile by {one.by or 'somebody'}{at}{f' ({one.reason})' if one.reason else ''}:", *steps(one.diff)]
    return [*lines, f"Plan it again with: {program()} change again {conflict.plan}"]


def _to_sign_in(error: ApiProblem, is_of_kubectl: bool) -> str:
    if error.problem.status != 401:
        return ""
    return "; give a token with --token or FAIRLEAD_TOKEN" + ("" if is_of_kubectl else f", {_OR_FOLDER}")


def gateways() -> tuple[str, ...]:
    """Return the gateways of this folder's running sandbox; empty if no sandbox runs."""
    found = _sandbox(Path(os.environ.get("FAIRLEAD_STATE_DIR") or ".fairlead").absolute())
    return () if found is None else found.gateways


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSandbox:
    """The addresses of a sandbox's parts, and its admin's token."""

    apis: tuple[str, ...]
    gateways: tuple[str, ...]
    admin: str


def _sandbox(root: Path) -> RunningSandbox | None:
    """Return the sandbox that runs on this state directory. None if no sandbox runs, if the sandbox's package is not
    installed, or if another user owns the sandbox, because only its owner can read the file with the token.
    """
    try:
        if not (root / "run.json").exists():
            return None
        from fairlead_sandbox.ending import supervisor_of
        from fairlead_sandbox.secret_tokens import load_or_create
        from fairlead_sandbox.state_directory import StateDirectory, api_urls

        directory = StateDirectory(root=root)
        note = directory.read_run()
        if note is None or supervisor_of(note) is None or not directory.secrets.exists():
            return None
        gateways = tuple(url for name, url in sorted(note.urls.items()) if name.partition("-")[0] in {"router", "gateway"})
        return RunningSandbox(apis=api_urls(note.urls), gateways=gateways, admin=load_or_create(directory.secrets).admin)
    except (ImportError, PermissionError):
        return None

"""Asking the control API from the command line: the options that say where and as whom, and errors as one line.

Without `--url` and `--token` the sandbox of this folder is asked, if one runs: `fairlead up`, then any command.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click

from fairlead.errors import InvalidInput
from fairlead_cli.printing import steps, time_words
from fairlead_client.client import ControlApi
from fairlead_client.problems import ApiProblem, ApiUnreachable, told
from fairlead_client.resources.problems import Problem
from fairlead_process.environment import without_credentials
from fairlead_process.kinds import Addresses

Answer = TypeVar("Answer")

_ADDRESSES = Addresses("http://127.0.0.1:8080")
_OR_FOLDER = "or name the sandbox's state directory with FAIRLEAD_STATE_DIR"


def _addresses(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    try:
        return _ADDRESSES.parse(text)
    except ValueError:
        raise click.BadParameter(f"{without_credentials(text)!r} cannot be used; write {_ADDRESSES.wanted}") from None


def _bearer(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is not None and not (text.isascii() and text.isprintable()):
        raise click.BadParameter("it has characters that no token has; copy it once more")
    return text


url_option = click.option(
    "--url",
    envvar="FAIRLEAD_URL",
    callback=_addresses,
    help="The control API; several addresses, with commas, stand in for one another [FAIRLEAD_URL]. "
    f"Without it the sandbox of this folder, else {_ADDRESSES.example}.",
)
token_option = click.option(
    "--token",
    envvar="FAIRLEAD_TOKEN",
    callback=_bearer,
    help="An API token [FAIRLEAD_TOKEN]; default: the sandbox's own.",
)


def place(url: tuple[str, ...], token: str | None) -> tuple[tuple[str, ...], str | None]:
    """The addresses and the token for requests: those given, else those of this folder's running sandbox. Raises
    InvalidInput if FAIRLEAD_STATE_DIR names a folder without one, as another system would be asked instead.
    """
    if url and token:
        return url, token
    named = os.environ.get("FAIRLEAD_STATE_DIR")
    found = _sandbox(Path(named or ".fairlead").absolute())
    if named and found is None and not url:
        raise InvalidInput("FAIRLEAD_STATE_DIR", named, "nothing of yours runs there; name the folder of a running sandbox, or give --url")
    if found is not None and (not url or set(url) == set(found[0])):
        return url or found[0], token or found[1]
    return url or (_ADDRESSES.example,), token


def connect(url: tuple[str, ...], token: str | None) -> ControlApi:
    """A client, to be closed by the caller."""
    urls, bearer = place(url, token)
    return ControlApi(urls, bearer, timeout_seconds=30.0)


def ask(url: tuple[str, ...], token: str | None, question: Callable[[ControlApi], Awaitable[Answer]]) -> Answer:
    """The API's answer. Raises ClickException, which is printed as one line."""

    async def asked() -> Answer:
        async with connect(url, token) as api:
            return await question(api)

    try:
        return asyncio.run(asked())
    except ApiProblem as error:
        raise click.ClickException("\n".join([told(error.problem) + _to_sign_in(error), *conflict_lines(error.problem)])) from error
    except ApiUnreachable as error:
        raise click.ClickException(f"{error}; give the API's address with --url and a token with --token, {_OR_FOLDER}") from error


def conflict_lines(problem: Problem) -> list[str]:
    """The full lines of a plan's conflict: what it was to change and what changed meanwhile; none for another
    problem.
    """
    conflict = problem.conflict
    if conflict is None:
        return []
    lines = [f"What plan {conflict.plan} changes:", *steps(conflict.planned)]
    for one in conflict.meanwhile:
        at = f", {time_words(one.at)}" if one.at is not None else ""
        lines += [f"Changed meanwhile by {one.by or 'somebody'}{at}{f' ({one.reason})' if one.reason else ''}:", *steps(one.diff)]
    return [*lines, f"Plan it again with: fairlead change again {conflict.plan}"]


def _to_sign_in(error: ApiProblem) -> str:
    if error.problem.status != 401:
        return ""
    return f"; give a token with --token or FAIRLEAD_TOKEN, {_OR_FOLDER}"


def _sandbox(root: Path) -> tuple[tuple[str, ...], str] | None:
    """Addresses and admin token of the sandbox that runs on this state directory; None if there is none, if it is not
    installed, or if it belongs to somebody else: only its owner can read the file with the token.
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
        return api_urls(note.urls), load_or_create(directory.secrets).admin
    except (ImportError, PermissionError):
        return None

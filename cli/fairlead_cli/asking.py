"""Asking the control API from the command line: the options that say where and as whom, and errors as one line."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from fairlead_client.client import ControlApi
from fairlead_client.problems import ApiProblem, ApiUnreachable
from fairlead_process.kinds import Addresses

Answer = TypeVar("Answer")

_ADDRESSES = Addresses("http://127.0.0.1:8080")


def _addresses(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, ...]:
    try:
        return _ADDRESSES.parse(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} cannot be used; write {_ADDRESSES.wanted}") from None


url_option = click.option(
    "--url",
    default=_ADDRESSES.example,
    show_default=True,
    callback=_addresses,
    help="The control API; several addresses, with commas, stand in for one another.",
)
token_option = click.option("--token", envvar="FAIRLEAD_TOKEN", help="An API token [FAIRLEAD_TOKEN].")


def ask(url: tuple[str, ...], token: str | None, question: Callable[[ControlApi], Awaitable[Answer]]) -> Answer:
    """The API's answer. Raises ClickException, which is printed as one line."""

    async def asked() -> Answer:
        async with ControlApi(url, token, timeout_seconds=30.0) as api:
            return await question(api)

    try:
        return asyncio.run(asked())
    except ApiProblem as error:
        problem = error.problem
        told = problem.detail or problem.title
        more = f"; {problem.remedy}" if problem.remedy and problem.remedy not in told else ""
        raise click.ClickException(told + more) from error
    except ApiUnreachable as error:
        raise click.ClickException(f"{error}; give the API's address with --url and a token with --token") from error

"""Finds the model to request if the user named no model."""

import asyncio
from collections.abc import Sequence

import click
import orjson
from rich.console import Console

from fairlead_simulator.replay.http_client import AnswerMalformed, AnswerReader, ConnectFailed, ConnectionBroke, HttpClient, Origin

_ANSWER_SECONDS = 10.0
_PAUSE_SECONDS = 2.0


class ModelUnknown(Exception):
    """Raised when a router offers no model. The message is the reason; `question` is a hint that follows it for the
    user.
    """

    def __init__(self, words: str, question: str = "is the router running, and is --url right?") -> None:
        self.question = question
        super().__init__(words)


class _Document(AnswerReader):
    __slots__ = ("body",)

    def __init__(self) -> None:
        super().__init__()
        self.body = b""

    def on_piece(self, piece: bytes) -> None:
        self.body += piece


async def find_model(
    client: HttpClient,
    origins: Sequence[Origin],
    headers: Sequence[tuple[str, str]],
    pool: str | None,
    patient: bool,
    stop: asyncio.Event,
    console: Console,
) -> str:
    """Return the model of the pool `pool`. If `pool` is None, return the first model that a router lists for requests
    with these headers.

    If there is no model, raises ClickException or, if `patient`, waits until there is one. If `stop` is set during the
    wait, the result is "".
    """
    while True:
        problems = []
        for origin in origins:
            try:
                return await _model_of(client, origin, headers, pool)
            except ModelUnknown as error:
                problems.append(error)
        if not patient:
            raise click.ClickException(f"{problems[0]}; {problems[0].question}")
        console.print(f"replay: {problems[0]}; waiting", highlight=False, soft_wrap=True)
        try:
            async with asyncio.timeout(_PAUSE_SECONDS):
                await stop.wait()
            return ""
        except TimeoutError:
            continue


async def _model_of(client: HttpClient, origin: Origin, headers: Sequence[tuple[str, str]], pool: str | None) -> str:
    answer = _Document()
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    head = f"GET {origin.path}/v1/models HTTP/1.1\r\nhost: {origin.authority}\r\n{lines}\r\n".encode("latin-1")
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            await client.request(origin, head, b"", answer)
        cards = [(str(card["id"]), str(card.get("root") or card["id"])) for card in orjson.loads(answer.body)["data"]]
    except (ConnectFailed, ConnectionBroke, AnswerMalformed) as error:
        raise ModelUnknown(str(error)) from None
    except TimeoutError:
        raise ModelUnknown(f"{origin.url}/v1/models does not answer") from None
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise ModelUnknown(f"{origin.url}/v1/models is not a list of models (status {answer.status}); give --model") from None
    if pool is not None:
        served = dict(cards)
        if pool not in served:
            pools = sorted(name for name, model in cards if name != model)
            raise ModelUnknown(f"{origin.url} serves no pool {pool} yet", f"its pools: {', '.join(pools) or 'none'}")
        return served[pool]
    if not cards:
        raise ModelUnknown(f"{origin.url} serves no model yet")
    return cards[0][0]

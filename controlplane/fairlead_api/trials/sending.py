"""Sends one test request to a router, and reads the response."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import httpx

from fairlead.errors import InvalidInput
from fairlead_api.infra.errors import Conflict, Unavailable
from fairlead_client.http_clients import LARGEST_ANSWER, BoundedClient, NotReadable, decoded
from fairlead_client.resources.trials import Trial, TrialAnswer

LONGEST_PROMPT = 100_000
MOST_TOKENS = 4096
LONGEST_BODY = 64 * 1024
PATIENCE_SECONDS = 8.0
"""Maximum seconds for the whole response: less than a client of this API waits."""
_WITHHELD = frozenset({"set-cookie", "connection", "keep-alive", "transfer-encoding"})


class Trials:
    """Sends test requests to the router at `gateway_url`. If the URL is missing, requests are refused. `new_trace`
    makes 32 hexadecimal digits; `transport` replaces the network in tests.
    """

    def __init__(
        self,
        gateway_url: str | None,
        new_trace: Callable[[], str],
        transport: httpx.AsyncBaseTransport | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = gateway_url
        self._new_trace = new_trace
        self._transport = transport
        self._monotonic = monotonic

    async def send(self, pool: str, model: str, trial: Trial) -> TrialAnswer:
        """Send a request and return the response, whatever its status. Raises InvalidInput, Conflict (no-gateway),
        Unavailable.
        """
        check(trial)
        if self._url is None:
            raise Conflict("no-gateway", "the control API does not know where the routers are; set FAIRLEAD_GATEWAY_URL")
        trace, begun = self._new_trace(), self._monotonic()
        try:
            async with (
                asyncio.timeout(PATIENCE_SECONDS),
                BoundedClient(LARGEST_ANSWER, timeout=PATIENCE_SECONDS, transport=self._transport) as http,
            ):
                request = http.build_request(
                    "POST", f"{self._url}/v1/chat/completions", json=body_of(model, trial), headers=headers_of(pool, trace, trial)
                )
                answer = await http.send(request, stream=True)
                content = await _beginning(answer)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise Unavailable(
                f"no whole answer within {PATIENCE_SECONDS:g} s; ask for fewer tokens, or look at the pool's queue"
            ) from error
        except httpx.HTTPError as error:
            raise Unavailable(f"the router at {self._url} does not answer: {error or type(error).__name__}") from error
        return answer_of(pool, answer.status_code, answer.headers.multi_items(), content, self._monotonic() - begun, trace)


def check(trial: Trial) -> None:
    """Raises InvalidInput for a test request that is refused before anything is sent to a router."""
    if not trial.prompt.strip() or len(trial.prompt) > LONGEST_PROMPT:
        raise InvalidInput("prompt", f"{len(trial.prompt)} characters", f"write 1 to {LONGEST_PROMPT:,} characters")
    if not 1 <= trial.max_tokens <= MOST_TOKENS:
        raise InvalidInput("max_tokens", trial.max_tokens, f"write 1 to {MOST_TOKENS}")
    for name, value in (("session", trial.session), ("key", trial.key)):
        if value is not None and (not value.isprintable() or not value.isascii() or len(value) > 256):
            raise InvalidInput(name, None, "write at most 256 printable ASCII characters")


def headers_of(pool: str, trace: str, trial: Trial) -> dict[str, str]:
    """Return the headers of the test request. They name the pool, make the router keep the decision, and start a
    separate trace.
    """
    found = {"x-fairlead-pool": pool, "x-fairlead-explain": "1", "traceparent": f"00-{trace}-{trace[:16]}-01"}
    if trial.session:
        found["x-session-id"] = trial.session
    if trial.key:
        found["authorization"] = f"Bearer {trial.key}"
    return found


def body_of(model: str, trial: Trial) -> dict[str, Any]:
    """Return the JSON body of the test request."""
    messages = [{"role": "user", "content": trial.prompt}]
    return {"model": trial.model or model, "messages": messages, "max_tokens": trial.max_tokens}


async def _beginning(answer: httpx.Response) -> bytes:
    """Return the first part of the response's body, which is all that is shown."""
    found = b""
    async for chunk in answer.aiter_bytes():
        found += chunk
        if len(found) >= LONGEST_BODY:
            break
    await answer.aclose()
    return found[:LONGEST_BODY]


def answer_of(pool: str, status: int, headers: list[tuple[str, str]], content: bytes, seconds: float, trace: str) -> TrialAnswer:
    """Return the parts of a router's response that are shown to the person."""
    named = {name.lower(): value for name, value in headers}
    body = content.decode(errors="replace")
    return TrialAnswer(
        pool=pool,
        status=status,
        seconds=round(seconds, 3),
        headers=[(name.lower(), value) for name, value in headers if name.lower() not in _WITHHELD],
        text=_text(body),
        body=body,
        decision=named.get("x-fairlead-decision"),
        instance=named.get("x-fairlead-instance"),
        trace=trace,
    )


def _text(body: str) -> str | None:
    """Return the text of a chat completion; None for any other body."""
    try:
        found = decoded(body.encode(), dict[str, Any])["choices"][0]["message"]["content"]
    except (NotReadable, LookupError, TypeError):
        return None
    return found if isinstance(found, str) else None

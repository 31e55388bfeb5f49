"""Sends one request of a replay, reads its response while it arrives, and determines the outcome."""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import orjson

from fairlead_simulator.replay.http_client import AnswerMalformed, AnswerReader, ConnectFailed, ConnectionBroke, HttpClient, Origin
from fairlead_simulator.replay.outcomes import ReplayVerdict, RequestOutcome

REJECTION_HEADERS = (b"x-llm-d-request-dropped-reason", b"x-fairlead-rejection")
_CONTENT = re.compile(rb'"(?:content|text)":\s*"[^"]')
_KEPT_BYTES = 16_384


class StreamedAnswer(AnswerReader):
    """A streamed (SSE) response, of which only the last bytes are kept. `clock` returns seconds. `on_first_token`, if
    set, is called when the first token arrives.
    """

    __slots__ = ("_clock", "_end", "first_token_at", "on_first_token")

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._end = b""
        self.first_token_at: float | None = None
        self.on_first_token: Callable[[], None] | None = None

    def on_piece(self, piece: bytes) -> None:
        end = self._end + piece
        if self.first_token_at is None and self.status == 200 and _CONTENT.search(end):
            self.first_token_at = self._clock()
            if self.on_first_token is not None:
                self.on_first_token()
        self._end = end[-_KEPT_BYTES:] if len(end) > 2 * _KEPT_BYTES else end

    @property
    def complete(self) -> bool:
        """Whether the stream has ended with its end marker."""
        return self._end.rstrip().endswith(b"data: [DONE]")

    @property
    def rejected(self) -> bool:
        return self.status in (429, 503)

    def rejection_reason(self) -> str:
        """Return the reason why the router refused the request: a header of the response or, without such a header, the
        status as `http-429`.
        """
        for name in REJECTION_HEADERS:
            if name in self.headers:
                return self.text(name) or f"http-{self.status}"
        return f"http-{self.status}"

    def failure_reason(self) -> str:
        """Return the reason why the response counts as failed, such as `http-500` or `stream-incomplete`."""
        if self.status != 200:
            return f"http-{self.status}"
        return "stream-error" if b'"error"' in self._end else "stream-incomplete"

    def retry_after_seconds(self) -> float:
        """Return the seconds to wait before a retry: the value of the response's header `Retry-After`, or 1 without
        this header.
        """
        try:
            return max(0.0, float(self.text(b"retry-after") or 1.0))
        except ValueError:
            return 1.0

    def text(self, header: bytes) -> str | None:
        value = self.headers.get(header)
        return None if value is None else value.decode("latin-1")

    def usage(self) -> tuple[int, int, int] | None:
        """Return (prompt, cached, completion) tokens from the last reported usage; None if no usage was reported."""
        for line in reversed(self._end.split(b"\n")):
            if line.startswith(b"data: {") and b'"usage"' in line:
                try:
                    usage = orjson.loads(line[6:]).get("usage")
                except orjson.JSONDecodeError:
                    continue
                if usage:
                    details = usage.get("prompt_tokens_details") or {}
                    return usage.get("prompt_tokens", 0), details.get("cached_tokens") or 0, usage.get("completion_tokens", 0)
        return None


_PATH = "/v1/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A request to send now. The router at the index `first_origin` is tried first."""

    index: int
    session: str
    due_seconds: float
    lag_seconds: float
    body: bytes
    first_origin: int
    cancel: bool
    """Whether the client ends the request after the first token."""


class Sender:
    """Sends requests to the routers at `origins`. `clock` returns seconds."""

    def __init__(
        self,
        client: HttpClient,
        origins: Sequence[Origin],
        headers: Sequence[tuple[str, str]],
        session_header: str,
        timeout_seconds: float,
        retries_of_rejected: int,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._origins = origins
        self._timeout = timeout_seconds
        self._retries = retries_of_rejected
        self._clock = clock
        fixed = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self._heads = [
            f"POST {origin.path}{_PATH} HTTP/1.1\r\nhost: {origin.authority}\r\ncontent-type: application/json\r\n"
            f"accept: text/event-stream\r\n{fixed}{session_header}: "
            for origin in origins
        ]
        self.connected = False
        """Whether at least one request has reached a router."""

    async def send(self, planned: Planned) -> RequestOutcome:
        """Send a request, with retries, and return its outcome once it has ended."""
        started = self._clock()
        failovers = retries = 0
        while True:
            answer = StreamedAnswer(self._clock)
            verdict, reason, switched = await self._attempt(planned, answer)
            failovers += switched
            if verdict is ReplayVerdict.REJECTED and retries < self._retries:
                retries += 1
                await asyncio.sleep(answer.retry_after_seconds())
                continue
            break
        ended = self._clock()
        usage = answer.usage() if verdict is ReplayVerdict.SERVED else None
        prompt, cached, completion = usage if usage is not None else (None, None, None)
        return RequestOutcome(
            index=planned.index,
            session=planned.session,
            due_seconds=planned.due_seconds,
            lag_seconds=planned.lag_seconds,
            verdict=verdict,
            reason=reason,
            status=answer.status,
            instance=answer.text(b"x-fairlead-instance"),
            decode=answer.text(b"x-fairlead-decode"),
            decision=answer.text(b"x-fairlead-decision"),
            ttft_seconds=None if answer.first_token_at is None else answer.first_token_at - started,
            e2e_seconds=ended - started if verdict is ReplayVerdict.SERVED else None,
            ended_seconds=planned.due_seconds + planned.lag_seconds + ended - started,
            prompt_tokens=prompt,
            cached_tokens=cached,
            completion_tokens=completion,
            failovers=failovers,
            retries=retries,
        )

    async def _attempt(self, planned: Planned, answer: StreamedAnswer) -> tuple[ReplayVerdict, str, int]:
        """Send the request to a router. If the router refuses the connection, send the request to the next router.
        Return (verdict, reason, number of failovers).
        """
        count, reason = len(self._origins), ""
        attempts = [planned.first_origin % count] if count == 1 else [planned.first_origin % count, (planned.first_origin + 1) % count]
        for failovers, number in enumerate(attempts):
            head = f"{self._heads[number]}{planned.session}\r\ncontent-length: {len(planned.body)}\r\n\r\n".encode("latin-1")
            try:
                cancelled = await self._exchange(self._origins[number], head, planned, answer)
            except ConnectFailed as error:
                reason = str(error)
                continue
            except (ConnectionBroke, AnswerMalformed) as error:
                self.connected = True
                broken = "connection-broken" if isinstance(error, ConnectionBroke) else "answer-malformed"
                return ReplayVerdict.FAILED, broken, failovers
            except TimeoutError:
                self.connected = True
                return ReplayVerdict.FAILED, "timeout", failovers
            self.connected = True
            if cancelled:
                return ReplayVerdict.CANCELLED, "client", failovers
            if answer.rejected:
                return ReplayVerdict.REJECTED, answer.rejection_reason(), failovers
            if answer.status == 200 and answer.complete:
                return ReplayVerdict.SERVED, "", failovers
            return ReplayVerdict.FAILED, answer.failure_reason(), failovers
        return ReplayVerdict.FAILED, reason, len(attempts) - 1

    async def _exchange(self, origin: Origin, head: bytes, planned: Planned, answer: StreamedAnswer) -> bool:
        """Send the request and receive its response. Return True if the client ended the request after the first token,
        as planned; False if the response was complete.
        """
        async with asyncio.timeout(self._timeout):
            if not planned.cancel:
                await self._client.request(origin, head, planned.body, answer)
                return False
            exchange = asyncio.ensure_future(self._client.request(origin, head, planned.body, answer))
            seen = asyncio.Event()
            answer.on_first_token = seen.set
            first = asyncio.ensure_future(seen.wait())
            try:
                await asyncio.wait((exchange, first), return_when=asyncio.FIRST_COMPLETED)
                if exchange.done():
                    await exchange
                    return False
                return True
            finally:
                first.cancel()
                if not exchange.done():
                    exchange.cancel()
                    await asyncio.wait((exchange,))


def given_up(planned: Planned) -> RequestOutcome:
    """Return the outcome of a request that was abandoned because the replay stopped."""
    return RequestOutcome(
        index=planned.index,
        session=planned.session,
        due_seconds=planned.due_seconds,
        lag_seconds=planned.lag_seconds,
        verdict=ReplayVerdict.CANCELLED,
        reason="stopped",
    )

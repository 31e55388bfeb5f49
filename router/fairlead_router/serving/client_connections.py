"""The connection of one client: uvicorn's httptools protocol with limits.

The limits are for the size of headers, the time until they are complete, and the number of connections. The connection
ignores upgrades and responds to invalid requests.

The subclass uses private attributes of uvicorn, because uvicorn's ASGI interface wakes a task for every piece of a
body. So pyproject.toml bounds uvicorn's version, and `tests/unit/fairlead_router/serving/test_uvicorn_internals.py`
checks every attribute in use. Run this test before you raise the bound.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from secrets import token_hex
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from fairlead_process.doors import IDLE_SECONDS, STRANGER_SECONDS, Door
from fairlead_process.http_connections import MOST_PIPELINED, TooManyWaiting
from fairlead_router.protocols.refusals import BadRequest, Headers
from fairlead_router.protocols.requests import KnownHeaders, is_shown_id
from fairlead_router.serving.body_memory import BodyMemory
from fairlead_router.serving.client_requests import STATUS_LINES, ClientRequest
from fairlead_router.serving.cors import Cors


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of a client's connection. `refused`: counts refusals by the error code that the client got."""

    header_bytes: int = 64 * 1024
    """Maximum number of bytes of the request line and the headers together."""
    header_seconds: float = 10.0
    """Maximum number of seconds from the first byte of a request until its headers are complete."""
    keep_alive_seconds: float = 75.0
    """Seconds for which a connection may be idle before its first request, between requests, and while its client does
    not read a response.
    """
    door: Door = field(default_factory=lambda: Door(8192))
    is_ending: Callable[[], bool] = lambda: False
    """A function that returns True while the router is stopping. Each connection then ends after its next response, so
    that its client connects to another router.
    """
    refused: Counter[str] = field(default_factory=Counter)
    memory: BodyMemory = field(default_factory=lambda: BodyMemory(2**40))
    """The memory for bodies of all connections."""
    cors: Cors = field(default_factory=lambda: Cors(()))

    def full(self) -> BadRequest:
        """Return the error for a connection that exceeds the maximum number of connections."""
        message = f"this router has {self.door.most} connections already; try again, or another router"
        return BadRequest(503, "too_many_connections", message, None, [(b"retry-after", b"1")])

    def farewell(self) -> bytes:
        """Return the bytes of the response to a connection that is refused, and count the refusal."""
        self.refused["too_many_connections"] += 1
        return answer_lines(self.full(), [(b"x-request-id", b"unread-%s" % token_hex(8).encode())])


def answer_lines(problem: BadRequest, standing: Headers) -> bytes:
    """Return the bytes of a whole error response, made without ASGI. The connection ends after it."""
    answer = problem.answer(close=True)
    lines = b"".join(b"%s: %s\r\n" % pair for pair in (*standing, *answer.headers))
    return b"%s%s\r\n%s" % (STATUS_LINES[answer.status], lines, answer.body)


class Cycle(RequestResponseCycle):
    """One request and its response, like uvicorn's class of this kind.

    To save time for each request, two kinds of attributes are set only once, for the class: attributes with the same
    initial value for every request, and attributes that only ASGI's `receive` needs, which is not used here.
    """

    logger = logging.getLogger("uvicorn.error")
    access_logger = logging.getLogger("uvicorn.access")
    access_log = False
    message_event = asyncio.Event()
    disconnected = False
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0

    def __init__(
        self,
        scope: Any,
        transport: asyncio.Transport,
        flow: FlowControl,
        default_headers: Headers,
        expect_100_continue: bool,
        keep_alive: bool,
        on_response: Callable[..., None],
    ) -> None:
        self.scope = scope
        self.transport = transport
        self.flow = flow
        self.default_headers = default_headers
        self.waiting_for_100_continue = expect_100_continue
        self.keep_alive = keep_alive
        self.on_response = on_response


class _HeadersTooLarge(Exception):
    """An exception: the request's headers have more bytes than allowed."""


class ClientConnection(HttpToolsProtocol):
    """The connection of one client.

    Invalid and refused requests get a response in OpenAI's format. Their path is unknown, and therefore their protocol
    too.
    """

    limits = ConnectionLimits()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.known_headers = KnownHeaders()
        self._known_url: tuple[bytes, str, bytes, bytes] = (b"", "", b"", b"")
        """The target of the last request, its path (decoded and as sent) and its query. Most clients always request the
        same path.
        """
        self._in_head = True
        self._head_bytes = 0
        self._unparsed_bytes = 0
        self._too_large = False
        self._passing_over_head = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_timed = False  # whether part of a head has come, and the timer is for the rest of it
        self._idle_since = 0.0
        self._arriving: ClientRequest | None = None
        self._open: list[ClientRequest] = []
        self._unread_bytes = 0
        self._counted_bytes = 0
        """Number of unread bytes of a response that are counted in the memory for bodies."""
        self._unread_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._head_timer = self.loop.call_later(self.limits.keep_alive_seconds, self._headers_overdue)

    def may_go(self) -> bool:
        """Return whether the connection may be closed to make room for another connection, because it has had no
        request for some time.
        """
        if self.transport is None or self._open or (self.cycle is not None and not self.cycle.response_complete):
            return False
        patience = STRANGER_SECONDS if self.cycle is None or self._head_timed else IDLE_SECONDS
        return self.loop.time() - self._idle_since >= patience

    def turn_away(self) -> None:
        """Close the connection to make room for another connection."""
        if self._head_timed:
            self._answer(self.limits.full())
        else:
            self.limits.refused["idle_connection"] += 1
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._unparsed_bytes += len(data)
        self._parse(data)
        if self._in_head and self._unparsed_bytes > self.limits.header_bytes:
            self._refuse_headers()
        if self._in_head and not self._head_timed and not self.transport.is_closing():
            self._forget_head_timer()
            self._head_timed = True
            self._idle_since = self.loop.time()
            self._head_timer = self.loop.call_later(self.limits.header_seconds, self._headers_overdue)

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("")

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Ignore the client's offer of another protocol, such as `Upgrade: h2c` (Java's client sends it each time).

        A server may decline the offer by continuing in HTTP/1.1 (RFC 9110 §7.8). The parser has stopped before the
        body. So a new parser gets the headers that frame the body, and continues there.
        """
        framing = b"".join(b"%s: %s\r\n" % pair for pair in self.headers if pair[0] in (b"content-length", b"transfer-encoding"))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._passing_over_head = True
        try:
            self._parse(b"POST / HTTP/1.1\r\n" + framing + b"\r\n")
        finally:
            self._passing_over_head = False
        if rest and not self.transport.is_closing():
            self._parse(rest)

    def eof_received(self) -> None:
        """Respond with an error to a request in progress, because the client has closed its sending side. A client that
        has closed both sides does not receive the error.
        """
        if self._head_timed or (self.cycle is not None and not self.cycle.response_complete):
            message = "the client closed its sending side before the answer was complete; keep it open until then"
            self._answer(BadRequest(400, "half_closed", message), counted=False)  # nearly always the client has left altogether

    def _headers_overdue(self) -> None:
        self._head_timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._head_timer = self.loop.call_later(self.limits.header_seconds, self._headers_overdue)  # first what is being answered
        elif self._head_timed:
            message = f"the headers did not arrive within {self.limits.header_seconds:g} s"
            self._answer(BadRequest(408, "headers_timeout", message))
        else:
            self.limits.refused["idle_connection"] += 1
            self.transport.close()

    def _forget_head_timer(self) -> None:
        self._head_timed = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def on_message_begin(self) -> None:
        if self._passing_over_head:
            return
        self._in_head = True
        self._head_bytes = 0
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head and not self._passing_over_head:
            self.headers.append((name.lower(), value))
        elif not self._passing_over_head:  # a trailer must not pass for a header, which a proxy may have set or taken out
            self._count_head(len(name) + len(value) + 4)

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self.limits.header_bytes:
            self._overflow()

    def on_headers_complete(self) -> None:
        if self._passing_over_head:
            return
        headers, limits = self.headers, self.limits
        self._head_bytes += len(self.url) + len(b"".join(chain.from_iterable(headers))) + 4 * len(headers)
        if self._head_bytes > limits.header_bytes:
            self._overflow()
        if len(self._open) > MOST_PIPELINED:
            raise TooManyWaiting  # it ends the parser, which would make a request of each of thousands in one read
        names = dict(headers)
        if b"expect" in names and names[b"expect"].lower() == b"100-continue":
            self.expect_100_continue = True
        if self._head_timer is not None:
            self._forget_head_timer()
        self._in_head = self._head_timed = False
        self._unparsed_bytes = 0
        self._begin_request()
        if limits.is_ending():
            self.cycle.keep_alive = False
        self._arriving = request = ClientRequest(self, self.cycle, limits.memory, names.keys())
        if limits.cors.is_on:
            request.accompany(limits.cors.headers(headers))
        self._open.append(request)
        self.scope["extensions"] = {"fairlead.client": request}  # type: ignore[dict-item]  # uvicorn types values as mappings

    def _begin_request(self) -> None:
        """Do the work of uvicorn's `on_message_begin` and `on_headers_complete`, except for the parts that a gateway
        does not need: root paths, states, web sockets, a limit of tasks, and an event for ASGI's `receive`.
        """
        parser, before, version = self.parser, self.cycle, self.parser.get_http_version()
        if self.url != self._known_url[0]:
            url = httptools.parse_url(self.url)
            path = url.path.decode("ascii")
            self._known_url = (self.url, unquote(path) if "%" in path else path, url.path, url.query or b"")
        _, path, raw_path, query = self._known_url
        self.scope = {  # type: ignore[typeddict-item]  # without what describes ASGI itself
            "type": "http",
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            "scheme": self.scheme,
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self.headers,
            "client": self.client,
            "server": self.server,
        }
        keeps_alive = version != "1.0" and parser.should_keep_alive()
        self.cycle = cycle = Cycle(
            self.scope,
            self.transport,
            self.flow,
            self.server_state.default_headers,
            self.expect_100_continue,
            keeps_alive,
            self.on_response_complete,
        )
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def on_body(self, body: bytes) -> None:
        if self._arriving is not None:
            self._arriving.arrived(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # its body is still to come, see _ignore_upgrade
        if self._arriving is not None:
            self._arriving.completed()
            self._arriving = None

    def on_response_complete(self) -> None:
        """Process the end of a response as uvicorn does, but with one timer for the whole connection instead of one
        timer for each request.
        """
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._look_when_idle_for(self.timeout_keep_alive)

    def _look_when_idle_for(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection if it has been idle for the whole time. During a request, do nothing, because the end of
        its response schedules this call again.
        """
        self.timeout_keep_alive_task = None
        if self._head_timed or not self.cycle.response_complete:
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._look_when_idle_for(left)
        else:
            super().timeout_keep_alive_handler()

    def end_with_answer(self) -> None:
        """Let the connection end after the response in progress. An idle connection stays open: see `close_if_idle`."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False

    def close_if_idle(self) -> None:
        """Close the connection, unless a request is in progress or its headers are arriving."""
        if not self._head_timed and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()

    def drop_if_unread(self) -> None:
        """Drop the connection if its client has stopped reading a response, because closing it would wait for the
        client. Called every few seconds.

        While a request is in progress, the time limits of the request apply instead.
        """
        unread = self.transport.get_write_buffer_size()
        if not unread or self._open or unread != self._unread_bytes:
            self._unread_bytes, self._unread_since = unread, self.loop.time()
        elif self.loop.time() - self._unread_since >= self.limits.keep_alive_seconds:
            self.limits.refused["answer_unread"] += 1
            self.transport.abort()

    def forget(self, request: ClientRequest) -> None:
        """Remove a request that the application has handled."""
        if request in self._open:
            self._open.remove(request)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._count_unread(self.transport.get_write_buffer_size())

    def _count_unread(self, size: int) -> None:
        self.limits.memory.held += size - self._counted_bytes
        self._counted_bytes = size

    def resume_writing(self) -> None:
        super().resume_writing()
        self._count_unread(0)
        for request in tuple(self._open):
            request.caught_up()

    def _overflow(self) -> None:
        """Stop the parser, because more header bytes than allowed have arrived. `send_400_response` then sends the
        error.
        """
        self._too_large = True
        raise _HeadersTooLarge

    def send_400_response(self, msg: str) -> None:
        if self._too_large:
            self._refuse_headers()
        else:
            self._answer(BadRequest(400, "invalid_http", "the request is not valid HTTP"))

    def _refuse_headers(self) -> None:
        limit = self.limits.header_bytes
        self._answer(BadRequest(431, "headers_too_large", f"request line and headers are larger than {limit} bytes; send shorter ones"))

    def _answer(self, problem: BadRequest, *, counted: bool = True) -> None:
        """Send an error without ASGI, and close the connection.

        The error is the response if no response has begun. A response in progress is cut off instead.
        """
        if self.transport.is_closing():
            return
        if counted:
            self.limits.refused[problem.code] += 1
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not (cycle.response_started or self.pipeline):
            self.transport.write(answer_lines(problem, self._standing()))
        if cycle is not None:
            cycle.disconnected = True
        self.transport.close()
        self._leave()

    def _standing(self) -> Headers:
        """Return the headers that every response to the latest request has. They are made from the part of the
        request's headers that has arrived.
        """
        came: Headers = self.headers or []
        named = [pair for pair in came if pair[0] == b"x-request-id" and is_shown_id(pair[1].decode("latin-1"))]
        return [*self.limits.cors.headers(came), *(named[:1] or [(b"x-request-id", b"unread-%s" % token_hex(8).encode())])]

    def _leave(self) -> None:
        requests, self._open = self._open, []
        for request in requests:
            request.left()

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.door.leave(self)
        self._count_unread(0)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._forget_head_timer()
        self._leave()

"""A proxy that asks an endpoint picker as Envoy does: with Envoy's own messages (xds-protos) over a real gRPC client.

It does what `conformance/tests` of the Gateway API Inference Extension demand of a gateway: it sends the request to the
first endpoint of the picker's list that answers, and reports that endpoint to the picker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
import httpx
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from google.protobuf import json_format, struct_pb2

from fairlead_testing.waiting import PATIENCE_SECONDS

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
DESTINATION = "x-gateway-destination-endpoint"
SCORES = "x-gateway-destination-endpoint-scores"
SERVED = "x-gateway-destination-endpoint-served"
CHUNK_BYTES = 16_384


def request_headers(
    method: str = "POST",
    path: str = "/v1/chat/completions",
    headers: Mapping[str, str] | None = None,
    *,
    ended: bool = False,
    subset: object = None,
    modes: tuple[int, int] = (ProcessingMode.FULL_DUPLEX_STREAMED, ProcessingMode.FULL_DUPLEX_STREAMED),
) -> Any:
    """Return the first message of a stream, which has the request's headers.

    `subset` is a list of endpoints or a text with them; None = no subset hint.
    """
    message = ProcessingRequest()
    fields = {":method": method, ":path": path, ":authority": "models.example", "content-type": "application/json", **(headers or {})}
    for name, value in fields.items():
        message.request_headers.headers.headers.add(key=name, raw_value=value.encode())
    message.request_headers.end_of_stream = ended
    message.protocol_config.request_body_mode, message.protocol_config.response_body_mode = modes
    if subset is not None:
        hint = json_format.ParseDict({"x-gateway-destination-endpoint-subset": subset}, struct_pb2.Struct())
        message.metadata_context.filter_metadata["envoy.lb.subset_hint"].CopyFrom(hint)
    return message


def request_body(piece: bytes, *, ended: bool) -> Any:
    """Return the message with a piece of the client's body."""
    message = ProcessingRequest()
    message.request_body.body, message.request_body.end_of_stream = piece, ended
    return message


def response_headers(status: int, headers: Mapping[str, str], *, ended: bool = False, served: str | None = None) -> Any:
    """Return the message with the status and headers of an engine's response. `served` is the endpoint that gave the
    response.
    """
    message = ProcessingRequest()
    for name, value in {":status": str(status), **headers}.items():
        message.response_headers.headers.headers.add(key=name, raw_value=value.encode())
    message.response_headers.end_of_stream = ended
    if served is not None:
        message.metadata_context.filter_metadata["envoy.lb"].CopyFrom(json_format.ParseDict({SERVED: served}, struct_pb2.Struct()))
    return message


def response_body(piece: bytes, *, ended: bool) -> Any:
    """Return the message with a piece of an engine's response."""
    message = ProcessingRequest()
    message.response_body.body, message.response_body.end_of_stream = piece, ended
    return message


def headers_of(mutation: Any) -> dict[str, str]:
    """Return the headers that a HeaderMutation sets."""
    return {option.header.key: option.header.raw_value.decode("latin-1") for option in mutation.set_headers}


@dataclass
class Seen:
    """The response that a client of the proxy got, and the answers of the picker."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    endpoints: tuple[str, ...] = ()
    """The endpoints in the picker's order."""
    tried: list[str] = field(default_factory=list)
    served: str = ""
    immediate: Any = None
    """The picker's ImmediateResponse; None if there was none."""
    metadata: Any = None
    scores: dict[str, float] | None = None
    """Scores by endpoint; None if the picker sent none."""


class Call:
    """A stream to the picker."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def say(self, *messages: Any) -> None:
        """Send these messages to the picker."""
        for message in messages:
            await self.call.write(message)

    async def hear(self) -> Any:
        """Return the picker's next message, or None if the picker ended the stream with success. Raises the error of
        the stream.
        """
        async with asyncio.timeout(PATIENCE_SECONDS):
            message = await self.call.read()
        return None if message is grpc.aio.EOF else message

    async def status(self) -> tuple[grpc.StatusCode, str]:
        """Return the status code and the details with which the picker ended the stream."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.call.code(), await self.call.details()


class Proxy:
    """Sends clients' requests to engines through the picker at `target`."""

    def __init__(self, target: str, *, root_certificate: bytes | None = None, authority: str | None = None) -> None:
        options = [] if authority is None else [("grpc.default_authority", authority)]
        if root_certificate is None:
            self.channel = grpc.aio.insecure_channel(target, options=options)
        else:
            self.channel = grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(root_certificate), options=options)
        self._client = httpx.AsyncClient(
            timeout=PATIENCE_SECONDS, trust_env=False, verify=False
        )  # loads no authorities: 20 ms of each test

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()
        await self._client.aclose()

    def open(self) -> Call:
        """Open a stream on which the test sends all messages."""
        make: Callable[[], Any] = self.channel.stream_stream(
            PROCESS, request_serializer=ProcessingRequest.SerializeToString, response_deserializer=ProcessingResponse.FromString
        )
        return Call(make())

    async def request(
        self,
        body: bytes | None,
        *,
        method: str = "POST",
        path: str = "/v1/chat/completions",
        headers: Mapping[str, str] | None = None,
        subset: object = None,
        tells_served: bool = True,
    ) -> Seen:
        """Send a client's request through the picker to an engine, and return what client and proxy saw."""
        seen, stream = Seen(), self.open()
        sent = {**(headers or {})}
        await stream.say(request_headers(method, path, sent, ended=body is None, subset=subset))
        if body is not None:
            pieces = [body[start : start + CHUNK_BYTES] for start in range(0, len(body), CHUNK_BYTES)] or [b""]
            await stream.say(*(request_body(piece, ended=number == len(pieces)) for number, piece in enumerate(pieces, start=1)))
        passed = await self._passed(stream, seen, has_body=body is not None)
        if passed is None:
            return seen
        await self._serve(stream, seen, method, path, sent, passed, tells_served=tells_served)
        await stream.call.done_writing()
        assert await stream.hear() is None
        assert (await stream.status())[0] is grpc.StatusCode.OK
        return seen

    async def _passed(self, stream: Call, seen: Seen, *, has_body: bool) -> tuple[Any, bytes] | None:
        """Return the message with the picker's headers and the body for the engine; None if the picker answered the
        client.
        """
        first = await stream.hear()
        if first.WhichOneof("response") == "immediate_response":
            seen.immediate = first.immediate_response
            seen.status = first.immediate_response.status.code
            seen.headers = headers_of(first.immediate_response.headers)
            seen.body = first.immediate_response.body
            assert await stream.hear() is None
            return None
        common = first.request_headers.response
        changed = headers_of(common.header_mutation)
        seen.metadata = json_format.MessageToDict(first.dynamic_metadata)
        told = seen.metadata["envoy.lb"]
        assert set(seen.metadata) == {"envoy.lb"}
        assert told[DESTINATION] == changed[DESTINATION], "the same value in both"
        seen.scores = told.get(SCORES)
        assert set(told) == {DESTINATION, *({SCORES} if seen.scores else ())}
        assert common.clear_route_cache
        seen.endpoints = tuple(changed[DESTINATION].split(","))
        body = b""
        while has_body:
            piece = (await stream.hear()).request_body.response.body_mutation.streamed_response
            body += piece.body
            if piece.end_of_stream:
                break
        if has_body:
            assert int(changed["content-length"]) == len(body)
        return common.header_mutation, body

    async def _serve(
        self,
        stream: Call,
        seen: Seen,
        method: str,
        path: str,
        headers: Mapping[str, str],
        passed: tuple[Any, bytes],
        *,
        tells_served: bool,
    ) -> None:
        mutation, body = passed
        removed = set(mutation.remove_headers)
        fields = {name: value for name, value in headers.items() if name not in removed} | headers_of(mutation)
        for endpoint in seen.endpoints:
            seen.tried.append(endpoint)
            try:
                async with self._client.stream(method, f"http://{endpoint}{path}", headers=fields, content=body) as response:
                    seen.served = endpoint
                    await self._answer(stream, seen, response, endpoint if tells_served else None)
                    return
            except httpx.ConnectError:
                continue
        await stream.say(response_headers(503, {}, ended=True))  # the proxy's own answer
        seen.status = 503
        await stream.hear()

    async def _answer(self, stream: Call, seen: Seen, response: httpx.Response, served: str | None) -> None:
        shown = {"content-type": "", **{name: value for name, value in response.headers.items() if name in ("content-type", "metadata")}}
        await stream.say(response_headers(response.status_code, shown, served=served))
        mutation = (await stream.hear()).response_headers.response.header_mutation
        seen.status, seen.headers = response.status_code, headers_of(mutation)

        async def hear() -> None:
            """Read the response's body from the picker, which cuts it into pieces of its own."""
            ended = False
            while not ended:
                back = (await stream.hear()).response_body.response.body_mutation.streamed_response
                seen.body += back.body
                ended = back.end_of_stream

        heard = asyncio.create_task(hear())
        async for piece, ended in _with_end(response.aiter_raw()):
            await stream.say(response_body(piece, ended=ended))
        await heard


async def _with_end(pieces: AsyncIterator[bytes]) -> AsyncIterator[tuple[bytes, bool]]:
    async for piece in pieces:
        yield piece, False
    yield b"", True

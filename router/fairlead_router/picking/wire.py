"""Encodes and decodes Envoy's protobuf messages (envoy.service.ext_proc.v3, grpc.health.v1).

Only the fields that are used here are declared, with the field numbers of Envoy's files; other fields are skipped.
Strings are read as bytes, because a client's header may have any bytes. Messages to the proxy have few fields, and are
encoded by hand.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2
from google.protobuf.message import DecodeError as DecodeError

from fairlead_router.picking.messages import (
    AnswerAtOnce,
    BodyCame,
    HeaderList,
    HeadersCame,
    Incoming,
    Outgoing,
    PassBody,
    PassHeaders,
    Side,
    TrailersCame,
)

SUBSET_KEY = "x-gateway-destination-endpoint-subset"
ENDPOINT_NAMESPACE = "envoy.lb"
ENDPOINT_KEY = "x-gateway-destination-endpoint"
SCORES_KEY = "x-gateway-destination-endpoint-scores"
SERVED_KEY = "x-gateway-destination-endpoint-served"

_FULL_DUPLEX = 4
_MODES = {0: "NONE", 1: "STREAMED", 2: "BUFFERED", 3: "BUFFERED_PARTIAL", 5: "GRPC"}

_FIELD: Any = descriptor_pb2.FieldDescriptorProto
_BYTES, _BOOL, _INT32 = _FIELD.TYPE_BYTES, _FIELD.TYPE_BOOL, _FIELD.TYPE_INT32
_STRUCT = ".google.protobuf.Struct"
_SCHEMA: dict[str, tuple[tuple[str, int, int | str], ...]] = {
    # name: fields (name, number, type or message; "*message" = repeated)
    "HeaderValue": (("key", 1, _BYTES), ("value", 2, _BYTES), ("raw_value", 3, _BYTES)),
    "HeaderMap": (("headers", 1, "*HeaderValue"),),
    "HttpHeaders": (("headers", 1, "HeaderMap"), ("end_of_stream", 3, _BOOL)),
    "HttpBody": (("body", 1, _BYTES), ("end_of_stream", 2, _BOOL)),
    "HttpTrailers": (("trailers", 1, "HeaderMap"),),
    "FilterMetadata": (("key", 1, _BYTES), ("value", 2, _STRUCT)),
    "Metadata": (("filter_metadata", 1, "*FilterMetadata"),),
    "ProtocolConfiguration": (("request_body_mode", 1, _INT32), ("response_body_mode", 2, _INT32)),
    "ProcessingRequest": (
        ("request_headers", 2, "HttpHeaders"),
        ("response_headers", 3, "HttpHeaders"),
        ("request_body", 4, "HttpBody"),
        ("response_body", 5, "HttpBody"),
        ("request_trailers", 6, "HttpTrailers"),
        ("response_trailers", 7, "HttpTrailers"),
        ("metadata_context", 8, "Metadata"),
        ("observability_mode", 10, _BOOL),
        ("protocol_config", 11, "ProtocolConfiguration"),
    ),
    "HealthCheckRequest": (("service", 1, _BYTES),),
}
_ONE_OF = ("request_headers", "response_headers", "request_body", "response_body", "request_trailers", "response_trailers")
_PACKAGE = "fairlead.picking"


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="fairlead/picking.proto", package=_PACKAGE, syntax="proto3")
    file.dependency.append(struct_pb2.DESCRIPTOR.name)
    for name, fields in _SCHEMA.items():
        message = file.message_type.add(name=name)
        if name == "ProcessingRequest":
            message.oneof_decl.add(name="request")
        for field, number, kind in fields:
            made: Any = message.field.add(name=field, number=number, label=_FIELD.LABEL_OPTIONAL)
            if field in _ONE_OF:
                made.oneof_index = 0
            if isinstance(kind, int):
                made.type = kind
                continue
            if kind.startswith("*"):
                made.label = _FIELD.LABEL_REPEATED
                kind = kind[1:]
            made.type = _FIELD.TYPE_MESSAGE
            made.type_name = kind if kind.startswith(".") else f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _SCHEMA}


_CLASSES = _classes()
_request = _CLASSES["ProcessingRequest"].FromString
_health_request = _CLASSES["HealthCheckRequest"].FromString


# ── what comes ──


def decode(payload: bytes) -> Incoming | None:
    """Return the message in a ProcessingRequest; None if it has no message of a known type. Raises DecodeError."""
    message = _request(payload)
    kind = message.WhichOneof("request")
    if kind is None:
        return None
    side = Side.REQUEST if kind.startswith("request_") else Side.RESPONSE
    if kind.endswith("_body"):
        body = message.request_body if side is Side.REQUEST else message.response_body
        return BodyCame(side, body.body, body.end_of_stream)
    if kind.endswith("_trailers"):
        return TrailersCame(side)
    came = message.request_headers if side is Side.REQUEST else message.response_headers
    headers: HeaderList = [(header.key.lower(), header.raw_value or header.value) for header in came.headers.headers]
    subset: tuple[str, ...] | None = None
    served: str | None = None
    for entry in message.metadata_context.filter_metadata:
        if entry.key == b"envoy.lb.subset_hint" and SUBSET_KEY in entry.value.fields:
            subset = _endpoints(entry.value.fields[SUBSET_KEY])
        elif entry.key == b"envoy.lb" and SERVED_KEY in entry.value.fields:
            served = entry.value.fields[SERVED_KEY].string_value or None
    return HeadersCame(side, headers, came.end_of_stream, subset, served, _other_modes(message))


def _endpoints(value: Any) -> tuple[str, ...]:
    """Return the endpoints in a list of `ip:port`, or in a text with commas between them. A proxy that takes the value
    from a header sends a text.
    """
    texts = [item.string_value for item in value.list_value.values] if value.HasField("list_value") else [value.string_value]
    return tuple(endpoint for text in texts for part in text.split(",") if (endpoint := part.strip()))


def _other_modes(message: Any) -> str:
    if message.observability_mode:
        return "observability_mode is on"
    if message.HasField("protocol_config"):
        config = message.protocol_config
        for field, mode in (("request_body_mode", config.request_body_mode), ("response_body_mode", config.response_body_mode)):
            if mode != _FULL_DUPLEX:
                return f"{field} is {_MODES.get(mode, mode)}"
    return ""


# ── what goes ──


def encode(message: Outgoing) -> bytes:
    """Return a message to the proxy, encoded as a ProcessingResponse."""
    if isinstance(message, PassBody):
        streamed = _bytes(1, message.piece) + (b"\x10\x01" if message.ended else b"")
        common = _bytes(3, _bytes(3, streamed))  # body_mutation.streamed_response
        return _bytes(3 if message.side is Side.REQUEST else 4, _bytes(1, common))
    if isinstance(message, PassHeaders):
        common = _mutation(2, message.changed, message.removed)
        if message.destination is not None:
            common += b"\x28\x01"  # clear_route_cache
        answer = _bytes(1 if message.side is Side.REQUEST else 2, _bytes(1, common))
        if message.destination is not None:
            answer += _bytes(8, _destination(message.destination.encode(), message.scores))
        return answer
    if isinstance(message, AnswerAtOnce):
        immediate = _bytes(1, b"\x08" + _varint(message.status)) + _mutation(2, message.headers)
        return _bytes(7, immediate + _bytes(3, message.body) + _bytes(5, message.details.encode()))
    return _bytes(5 if message.side is Side.REQUEST else 6, b"")


def _mutation(number: int, changed: Any, removed: Any = ()) -> bytes:
    """Return an encoded HeaderMutation. A header that is set replaces an existing header (append_action
    OVERWRITE_IF_EXISTS_OR_ADD).
    """
    fields = [_option(name, value) for name, value in changed]
    fields += [_bytes(2, name) for name in removed]
    return _bytes(number, b"".join(fields)) if fields else b""


def _option(name: bytes, value: bytes) -> bytes:
    """Return an encoded HeaderValueOption, as a field of HeaderMutation."""
    size = len(name) + len(value)
    if size < 120:  # every length is one byte; nearly always
        return b"\n%c\n%c\n%c%s\x1a%c%s\x18\x02" % (size + 8, size + 4, len(name), name, len(value), value)
    return _bytes(1, _bytes(1, _bytes(1, name) + _bytes(3, value)) + b"\x18\x02")


def _destination(endpoints: bytes, scores: Mapping[str, float]) -> bytes:
    """Return the encoded Struct `{"envoy.lb": {"x-gateway-destination-endpoint": …}}`, with the scores of endpoints if
    there are any.
    """
    inner = _entry(ENDPOINT_KEY.encode(), _bytes(3, endpoints))
    if scores:
        numbers = (_entry(name.encode(), b"\x11" + struct.pack("<d", score)) for name, score in scores.items())
        inner += _entry(SCORES_KEY.encode(), _bytes(5, b"".join(numbers)))
    return _entry(ENDPOINT_NAMESPACE.encode(), _bytes(5, inner))


def _entry(key: bytes, value: bytes) -> bytes:
    return _bytes(1, _bytes(1, key) + _bytes(2, value))


def _bytes(number: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 128:
        return b"%c%c%s" % (number << 3 | 2, size, payload)
    return b"%c%s%s" % (number << 3 | 2, _varint(size), payload)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# ── health ──

SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3


def decode_health(payload: bytes) -> str:
    """Return the name of the service in a HealthCheckRequest. Raises DecodeError."""
    service: bytes = _health_request(payload).service
    return service.decode("utf-8", "replace")


def encode_health(status: int) -> bytes:
    """Return an encoded HealthCheckResponse with this status."""
    return b"\x08" + _varint(status)

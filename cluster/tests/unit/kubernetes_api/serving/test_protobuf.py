"""The protobuf kubectl sends, made by hand."""

from __future__ import annotations

import pytest

from processkube.kubernetes_api.objects.errors import UnsupportedMediaType
from processkube.kubernetes_api.serving.protobuf import decode_protobuf


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def envelope(api_version: str, kind: str, message: bytes) -> bytes:
    types = field(1, api_version.encode()) + field(2, kind.encode())
    return b"k8s\x00" + field(1, types) + field(2, message)


def test_a_config_map_is_read_with_its_maps() -> None:
    metadata = field(1, b"name") + field(3, b"ns") + field(8, b"") + field(11, field(1, b"k") + field(2, b"v"))
    body = field(1, metadata) + field(2, field(1, b"a") + field(2, b"x" * 200)) + field(3, field(1, b"b") + field(2, b"\xff")) + field(4, 1)
    assert decode_protobuf(envelope("v1", "ConfigMap", body)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "name", "namespace": "ns", "labels": {"k": "v"}},
        "data": {"a": "x" * 200},
        "binaryData": {"b": "/w=="},
        "immutable": True,
    }


def test_a_kind_without_a_table_is_declined_with_the_way_out() -> None:
    with pytest.raises(UnsupportedMediaType, match=r"kubectl apply -f -"):
        decode_protobuf(envelope("apps/v1", "Deployment", b""))


def test_a_field_that_would_be_lost_is_declined() -> None:
    owner = field(13, field(1, b"ConfigMap"))
    with pytest.raises(UnsupportedMediaType, match="does not read field 13"):
        decode_protobuf(envelope("v1", "ConfigMap", field(1, owner)))
    empty = field(13, field(1, b""))
    assert decode_protobuf(envelope("v1", "ConfigMap", field(1, field(1, b"n") + empty)))["metadata"] == {"name": "n"}


@pytest.mark.parametrize("body", [b"nonsense", b"k8s\x00\x0a\xff", b"k8s\x00\x0a", b"k8s\x00\x0b\x00"])
def test_broken_bytes_are_an_error_and_not_a_hang(body: bytes) -> None:
    with pytest.raises(ValueError, match="protobuf"):
        decode_protobuf(body)

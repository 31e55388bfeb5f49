"""Bodies in YAML, and in JSON that is sent as YAML."""

from __future__ import annotations

import pytest

from processkube.kubernetes_api.serving.yaml_bodies import read_yaml


def test_json_that_is_sent_as_yaml_is_json() -> None:
    assert read_yaml(b'{"a": 1e-05, "b": "\\ud83d\\ude00", "c": "2026-01-01"}') == {"a": 1e-05, "b": "\U0001f600", "c": "2026-01-01"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-05", 1e-05),
        ("1e5", 100000),
        ("1.5e3", 1500),
        ("1e21", 1e21),
        ("1e400", "1e400"),
        (".5", 0.5),
        ("-3.", -3),
        ("+.5", 0.5),
        (".5_0", 0.5),
        (".5_", ".5_"),
        ("...", "..."),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("1:30", "1:30"),
        ("017", 15),
        ("-017", -15),
        ("0o17", 15),
        ("0x1f", 31),
        ("0X1F", 31),
        ("0b101", 5),
        ("0x", "0x"),
        ("0x11111111111111111", "0x11111111111111111"),
        ("1_000", 1000),
        ("_1", "_1"),
        ("-7", -7),
        ("0", 0),
        ("09", 9),
        ("yes", True),
        ("y", True),
        ("N", False),
        ("off", False),
        ("yEs", "yEs"),
        ("~", None),
        ("NULL", None),
        ("=", "="),
        ("-.nan", "-.nan"),
        ("1.2.3", "1.2.3"),
        ("12345678901234567890", 12345678901234567890.0),
    ],
)
def test_plain_scalars_are_read_as_go_yaml_reads_them(text: str, value: object) -> None:
    found = read_yaml(f"a: {text}\n".encode())["a"]
    assert (found, type(found)) == (value, type(value))


def test_keys_are_text() -> None:
    assert read_yaml(b"data: {1: a, 2.5: b, no: c}") == {"data": {"1": "a", "2.5": "b", "false": "c"}}


@pytest.mark.parametrize(
    "body", [b"a: [", b'a: "\\ud83d"', b"a: !!binary aGk=", b"\xff: 1", b"a: .inf", b"a: .NaN", b"~: 1", b"a: &a [*a]", b"a: !!int x"]
)
def test_what_is_no_value_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_yaml(body)

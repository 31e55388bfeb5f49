"""API keys and responses that are held."""

import pytest

from fairlead.tables import PoolKey
from fairlead_router.held_responses import HeldResponses
from fairlead_router.keys import GatewayKeys
from fairlead_router.refusals import BadRequest

POOL = PoolKey(namespace="default", name="chat")
KEYS = GatewayKeys(["first-key-0123456789", "second-key-0123456789"])


@pytest.mark.parametrize(
    "headers",
    [
        [(b"authorization", b"Bearer first-key-0123456789")],
        [(b"authorization", b"bearer  second-key-0123456789 ")],
        [(b"x-api-key", b"second-key-0123456789")],
        [(b"authorization", b"Bearer of-another-system"), (b"x-api-key", b"first-key-0123456789")],
    ],
)
def test_any_of_the_keys_in_either_header_is_admitted(headers: list[tuple[bytes, bytes]]) -> None:
    KEYS.check(headers)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ([], "an API key is needed"),
        ([(b"authorization", b"Basic first-key-0123456789")], "an API key is needed"),
        ([(b"authorization", b"Bearer first-key-012345678")], "not known"),
        ([(b"x-api-key", b"")], "not known"),
        ([(b"x-api-key", b"\xff\xfe")], "not known"),
    ],
)
def test_anything_else_is_a_401_that_does_not_repeat_what_was_shown(headers: list[tuple[bytes, bytes]], said: str) -> None:
    with pytest.raises(BadRequest, match=said) as caught:
        KEYS.check(headers)
    assert caught.value.status == 401
    assert "first-key" not in caught.value.message


def test_without_keys_everybody_is_admitted() -> None:
    GatewayKeys([]).check([])


def test_the_response_asked_for_longest_ago_is_forgotten_first() -> None:
    held = HeldResponses(limit=2)
    held.remember("a", POOL, "i0")
    held.remember("b", POOL, "i1")
    assert held.find("a") == (POOL, "i0")
    held.remember("c", POOL, "i2")
    held.remember(None, POOL, "i3")
    assert held.find("b") is None
    assert held.find("a") == (POOL, "i0")
    assert len(held) == 2

"""What a parsed request says of its answer."""

import orjson
import pytest

from fairlead_router.gateway.routed_requests import answer_follows
from fairlead_router.protocols import paths
from fairlead_router.protocols.requests import parse_request


@pytest.mark.parametrize(("background", "follows"), [(True, True), (1, True), ("true", True), (False, False), (None, False), (0, False)])
def test_an_answer_in_the_background_is_known_however_its_client_asks_for_it(background: object, *, follows: bool) -> None:
    endpoint = paths.find(b"/v1/responses")
    assert endpoint is not None
    parsed = parse_request(orjson.dumps({"model": "m", "input": "hello", "background": background}), endpoint)
    assert answer_follows(parsed, endpoint) is follows

"""Which of the gateway's paths a request at a proxy means."""

import pytest

from fairlead_router.picking.finding import find_endpoint


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/v1/chat/completions", "/v1/chat/completions"),
        (b"/team-a/v1/chat/completions?x=/v1/completions", "/v1/chat/completions"),
        (b"/a/b/v1/responses/resp_1", "/v1/responses/{id}"),
        (b"/team-a/v1/models", "/v1/models"),
        (b"/health?full=1", "/health"),
        (b"/ping", "/ping"),
    ],
)
def test_a_path_is_found_behind_a_prefix_that_a_route_takes_away(target: bytes, path: str) -> None:
    found = find_endpoint(target)
    assert found is not None and found.path == path


@pytest.mark.parametrize("target", [b"/metrics/health", b"/metrics/ping", b"/a/b/version", b"/team-a/readyz?x=1", b"/nothing"])
def test_what_needs_no_key_is_found_without_a_prefix_only(target: bytes) -> None:
    assert find_endpoint(target) is None

"""To which of the gateway's paths a proxy's request belongs."""

import pytest

from fairlead_router.picking.finding import find_endpoint
from fairlead_testing.steps import LINE, work_of


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


@pytest.mark.parametrize(
    "target",
    [
        b"/metrics/v1/models",
        b"/metrics2/v1/chat/completions",
        b"/team-a/metrics/v1/models",
        b"/%6detrics/v1/models",
        b"/team-a%2fmetrics/rerank",
    ],
)
def test_no_prefix_is_one_that_engines_serve_their_metrics_under(target: bytes) -> None:
    assert find_endpoint(target) is None


def test_a_path_of_nothing_but_slashes_holds_up_nobody() -> None:
    assert work_of(lambda: find_endpoint(b"/" * 60_000)) < 20_000 * LINE, "each slash costs several lines"
    assert find_endpoint(b"/" * 60_000) is None

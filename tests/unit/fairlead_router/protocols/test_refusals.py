"""Answers that the router itself gives."""

import orjson
import pytest

from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Refusal
from fairlead_router.protocols.dialects import Dialect, error_event
from fairlead_router.protocols.refusals import BadRequest, refusal_answer, shutting_down, upstream_failed

REQUEST = RoutingRequest(id="r", arrived_at=0.0, prompt_tokens=1, blocks=(), first_bytes_hash=0)


@pytest.mark.parametrize(("seconds", "header"), [(0.01, b"1"), (1.2, b"2"), (30.0, b"30"), (1e9, b"86400")])
def test_a_refusal_tells_its_reason_and_when_to_come_back(seconds: float, header: bytes) -> None:
    refusal = Refusal(request=REQUEST, reason=RejectionReason.PREDICTED_TTFT, status=429, retry_after_seconds=seconds, message="too busy")
    answer = refusal_answer(refusal, b"default/chat")
    headers = dict(answer.headers)
    assert answer.status == 429
    assert headers[b"retry-after"] == header
    assert headers[b"x-llm-d-request-dropped-reason"] == headers[b"x-fairlead-rejection"] == b"rejected-predicted-ttft"
    assert headers[b"x-fairlead-pool"] == b"default/chat"
    assert int(headers[b"content-length"]) == len(answer.body)
    assert orjson.loads(answer.body)["error"] == {
        "message": "too busy",
        "type": "rate_limit_error",
        "param": None,
        "code": "rejected-predicted-ttft",
    }


def test_failed_engines_are_a_502_and_shutting_down_a_503() -> None:
    assert upstream_failed("i0 died", b"p").status == 502
    assert dict(upstream_failed("i0 died", b"p").headers)[b"x-fairlead-rejection"] == b"rejected-upstream-failed"
    assert shutting_down().status == 503
    assert dict(shutting_down().headers)[b"connection"] == b"close"


def test_a_bad_request_names_its_field() -> None:
    answer = BadRequest(400, "missing_field", "model: is missing", "model").answer(close=True)
    assert orjson.loads(answer.body)["error"]["param"] == "model"
    assert (b"connection", b"close") in answer.headers


def test_a_stream_error_closes_an_event_that_was_cut() -> None:
    whole = error_event(Dialect.OPENAI, "lost", "gone", mid_event=False)
    assert whole.startswith(b"data: {")
    assert whole.endswith(b"\n\n")
    assert error_event(Dialect.OPENAI, "lost", "gone", mid_event=True) == b"\n\n" + whole

"""W3C Trace Context, by the specification's own rules and examples."""

import pytest

from fairlead_router.tracing.contexts import LONGEST_STATE, caller, trace_context, traced_head

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{PARENT}-01"


def of(*headers: tuple[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers]


@pytest.mark.parametrize(
    ("given", "is_sampled"),
    [
        (GIVEN, True),
        (f"00-{TRACE}-{PARENT}-00", False),
        (f"00-{TRACE}-{PARENT}-03", True),
        (f"cc-{TRACE}-{PARENT}-01-what-the-future-adds", True),
    ],
)
def test_a_valid_context_is_taken_also_of_a_later_version(given: str, is_sampled: bool) -> None:
    found = caller(of(("traceparent", given), ("tracestate", "a=1"), ("tracestate", "b=2")))
    assert found is not None
    assert (found.trace_id, found.span_id, found.is_sampled, found.state) == (TRACE, PARENT, is_sampled, "a=1,b=2")


@pytest.mark.parametrize(
    "given",
    [
        "",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE}-{PARENT}-1",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{PARENT}-01",
    ],
)
def test_an_invalid_context_is_none_and_its_state_is_dropped(given: str) -> None:
    assert caller(of(("traceparent", given), ("tracestate", "a=1"))) is None
    begun = trace_context(of(("traceparent", given), ("tracestate", "a=1")), "r0-1", "/v1/messages", "m", may_ask=True)
    assert begun is not None
    assert (begun.parent, begun.state, begun.asks, begun.operation) == (None, "", False, "chat")


def test_two_contexts_are_none() -> None:
    assert caller(of(("traceparent", GIVEN), ("traceparent", GIVEN))) is None


def test_a_state_that_is_too_long_is_left_out() -> None:
    found = caller(of(("traceparent", GIVEN), ("tracestate", "a=" + "1" * LONGEST_STATE)))
    assert found is not None
    assert found.state == ""


def test_the_ids_of_a_trace_that_begins_here_follow_from_its_request() -> None:
    first, again, other = (trace_context([], name, "/v1/embeddings", None, may_ask=True) for name in ("r0-1", "r0-1", "r0-2"))
    assert first == again
    assert first is not None
    assert other is not None
    assert first.trace_id != other.trace_id
    assert (first.operation, first.model) == ("embeddings", "")


def test_the_engine_s_head_has_one_context_and_all_else_as_it_was() -> None:
    context = trace_context(of(("traceparent", GIVEN), ("tracestate", "a=1")), "r0-1", "/v1/chat/completions", "m", may_ask=True)
    assert context is not None
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\naccept: */*\r\ntraceparent: "
        + GIVEN.encode()
        + b"\r\ntracestate: a=1\r\nx-a: traceparent: b\r\n"
    )
    request, *lines = traced_head(head, context, "i0").split(b"\r\n")
    assert request == b"POST /v1/chat/completions HTTP/1.1"
    assert lines[:2] == [b"accept: */*", b"x-a: traceparent: b"]
    assert lines[2].startswith(b"traceparent: 00-" + TRACE.encode() + b"-")
    assert lines[2].endswith(b"-01")
    assert PARENT.encode() not in lines[2]
    assert lines[3:] == [b"tracestate: a=1", b""]
    assert traced_head(head, context, "i1") != traced_head(head, context, "i0")

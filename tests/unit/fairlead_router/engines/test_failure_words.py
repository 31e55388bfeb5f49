"""Messages to clients about an engine's failure name the instance and the failure, never the engine's address."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairlead_router
from fairlead_router.engines.upstream_connections import UpstreamFailure, without_addresses
from fairlead_testing.examples import examples

WORDS = {"UpstreamFailure": 1, "failure_of_answer": 2}
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,20}[a-z0-9](\.[a-z][a-z0-9-]{0,10}[a-z0-9]){0,4}", fullmatch=True)
PORTS = st.integers(10, 65535)
ADDRESSES = st.one_of(
    st.ip_addresses(v=4).map(str),
    st.builds("{}:{}".format, st.ip_addresses(v=4), PORTS),
    st.builds("[{}]:{}".format, st.ip_addresses(v=6), PORTS),
    st.ip_addresses(v=6).map(str),
    st.builds("{}:{}".format, NAMES, PORTS),
    st.builds("{}.ns.svc.cluster.local".format, NAMES),
    st.builds("{}.ec2.internal".format, NAMES),
)
SENTENCES = st.sampled_from(
    ["cannot connect to {}", "({})", "http://{}/v1", "peer={}, gone", "'{}'", "{}: refused", "tcp://{}", "Connect call failed ({!r}, 8000)"]
)


def _calls() -> list[tuple[str, ast.Call]]:
    return [
        (f"{path.name}:{node.lineno}", node)
        for path in sorted(Path(fairlead_router.__file__).parent.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WORDS
    ]


def test_no_failure_is_made_with_an_address_or_a_field_in_the_words_for_clients() -> None:
    calls = _calls()
    assert len(calls) > 15
    for place, call in calls:
        assert isinstance(call.func, ast.Name)
        words = ast.unparse(call.args[WORDS[call.func.id]])
        assert "address" not in words, place
        assert "spec." not in words, place
        assert "error" not in words, f"{place}: a system's words belong into detail"


@examples(300)
@given(ADDRESSES, SENTENCES, NAMES)
def test_no_address_reaches_a_client_wherever_it_stands_in_the_words(address: str, sentence: str, instance: str) -> None:
    failure = UpstreamFailure("lost", sentence.format(address), at="10.1.2.3:8000", detail="spec.engine.port at 10.1.2.3")
    shown = failure.shown("one")
    assert shown.startswith("one ")
    assert address not in shown
    assert "10.1.2.3" not in shown
    assert "spec." not in shown
    assert "10.1.2.3:8000" in str(failure), "the log has all of it"


@pytest.mark.parametrize(
    "words",
    [
        "sent nothing for 0.4 s in the middle of its answer",
        "answered 200, but no answer: maximum context length is 4096 tokens (at 12:30:45)",
        "answered 500: class std::vector",
        "answered 503",
        "model llama3:8b is not loaded; version 0.11.0",
    ],
)
def test_other_words_stay_as_they_are(words: str) -> None:
    assert without_addresses(words) == words

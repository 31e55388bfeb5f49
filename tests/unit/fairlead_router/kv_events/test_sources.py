"""Engines' answers to `GET /kv_event_sources` in the formats of vLLM's versions, and which of their values are used."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.plausibility import LONGEST_TOPIC, MOST_RANK_NAME, MOST_SOURCES, Hosts
from fairlead_router.kv_events.sources import EventSource, SourcesUnreadable, ToldSources, read_ranks, read_sources
from fairlead_testing.examples import examples

RANK_0 = {"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5657", "topic": "kv@pod-0@m"}
RANK_1 = {"endpoint": "tcp://0.0.0.0:5558", "replay_endpoint": None, "topic": "kv@pod-0@m"}
READ = (
    EventSource(rank=0, endpoint="tcp://10.0.0.7:5557", replay_endpoint="tcp://10.0.0.7:5657", topic="kv@pod-0@m"),
    EventSource(rank=1, endpoint="tcp://10.0.0.7:5558", replay_endpoint=None, topic="kv@pod-0@m"),
)


def told(answer: Any, address: str = "10.0.0.7:8000", *hosts: str) -> ToldSources:
    return read_sources(answer if isinstance(answer, bytes) else json.dumps(answer).encode(), "vllm", address, Hosts(hosts))


@pytest.mark.parametrize(
    "answer",
    [
        {"1": {**RANK_1, "buffer_steps": 10_000}, "0": {**RANK_0, "publisher": "zmq", "enable_kv_cache_events": True}},
        [{**RANK_0, "data_parallel_rank": 0}, {**RANK_1, "data_parallel_rank": 1}],
        {"sources": [{**RANK_1, "data_parallel_rank": 1}, {**RANK_0, "data_parallel_rank": 0}]},
    ],
)
def test_every_wording_names_the_same_sources(answer: object) -> None:
    assert told(answer) == ToldSources(READ)


@pytest.mark.parametrize("answer", [{}, [], {"sources": []}, {"0": {"endpoint": None}}, {"0": {**RANK_0, "publisher": "null"}}])
def test_an_engine_that_publishes_nothing_has_no_sources(answer: object) -> None:
    assert told(answer) == ToldSources()


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (b"<html>", "does not describe sources"),
        ({"detail": "Not Found"}, "does not describe sources"),
        ({"detail": {}}, "not ranks"),
        ({"9" * 5000: RANK_0}, "not ranks"),
        ({"٣": RANK_0}, "not ranks"),
        (b'[{"endpoint":"tcp://*:1","x":' + b"[" * 5000 + b"]" * 5000 + b"}]", "nested deeper"),
    ],
)
def test_an_answer_that_names_no_sources_cannot_be_read(answer: Any, names: str) -> None:
    with pytest.raises(SourcesUnreadable, match=names):
        told(answer)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"endpoint": "ipc:///tmp/kv"}, "ipc:///tmp/kv"),
        ({"endpoint": "tcp://*:0"}, "tcp://*:0"),
        ({"endpoint": "tcp://*:99999"}, "tcp://*:99999"),
        ({"endpoint": "tcp://*:٣"}, "cannot be connected to"),
        ({"endpoint": "tcp://a b;tcp://c:1"}, "cannot be connected to"),
        ({**RANK_0, "replay_endpoint": "tcp://*:0"}, "tcp://*:0"),
        ({**RANK_0, "topic": "x" * (LONGEST_TOPIC + 1)}, "the topic of rank"),
        ({**RANK_0, "data_parallel_rank": -5}, "a rank is -5"),
        ({**RANK_0, "data_parallel_rank": MOST_RANK_NAME + 1}, "a rank is 65536"),
    ],
)
def test_what_cannot_be_used_is_told_and_the_rest_is_followed(fault: dict[str, Any], words: str) -> None:
    found = told([RANK_0, {**fault, "data_parallel_rank": fault.get("data_parallel_rank", 7)}])
    assert found.sources == READ[:1] and words in found.faults


def test_of_very_many_sources_a_bounded_number_is_followed() -> None:
    found = told([{"endpoint": f"tcp://*:{1000 + number}"} for number in range(9000)])
    assert len(found.sources) == MOST_SOURCES and "it names 9000 sources" in found.faults


@pytest.mark.parametrize(
    ("endpoint", "address", "hosts", "reached"),
    [
        ("tcp://10.0.0.7:5557", "10.0.0.7:8000", (), "tcp://10.0.0.7:5557"),
        ("tcp://localhost:5557", "127.0.0.1:8000", (), None),
        ("tcp://127.0.0.1:5557", "10.0.0.7:8000", (), None),
        ("tcp://169.254.169.254:80", "10.0.0.7:8000", (), None),
        ("tcp://postgres.fairlead.svc:5432", "10.0.0.7:8000", (), None),
        ("tcp://pod-0.engines.svc:5557", "10.0.0.7:8000", ("*.engines.svc",), "tcp://pod-0.engines.svc:5557"),
        ("tcp://pod-0.other.svc:5557", "10.0.0.7:8000", ("*.engines.svc",), None),
        ("tcp://10.9.9.9:5557", "10.0.0.7:8000", ("10.0.0.0/8",), "tcp://10.9.9.9:5557"),
        ("tcp://11.9.9.9:5557", "10.0.0.7:8000", ("10.0.0.0/8", "fd00::/8"), None),
        ("tcp://[fd00::1]:5657", "10.0.0.7:8000", ("10.0.0.0/8", "fd00::/8"), "tcp://[fd00::1]:5657"),
        ("tcp://here:5657", "10.0.0.7:8000", ("HERE",), "tcp://here:5657"),
    ],
)
def test_an_engine_names_no_host_but_its_own_unless_a_setting_has_it(
    endpoint: str, address: str, hosts: tuple[str, ...], reached: str | None
) -> None:
    (bound,), _ = told([{"endpoint": endpoint}], address, *hosts)
    assert (bound.endpoint, bound.connects) == ((endpoint, True) if reached is None else (reached, False))
    (replayed,), faults = told([{"endpoint": "tcp://*:1", "replay_endpoint": endpoint}], address, *hosts)
    assert replayed.replay_endpoint == reached
    assert ("FAIRLEAD_KV_EVENT_HOSTS" in faults) == (reached is None)


@pytest.mark.parametrize("word", ["a b", "tcp://x", "10.0.0.0/99", "*", "-x"])
def test_a_setting_that_names_no_host_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Hosts([word])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
)
ENDPOINTS = st.sampled_from(["tcp://*:1", "tcp://[::]:70000", "tcp://127.0.0.1:22", "tcp://h:1", "ipc://x"]) | JSON
RANKS = st.fixed_dictionaries(
    {}, optional={"endpoint": ENDPOINTS, "replay_endpoint": ENDPOINTS, "topic": JSON, "data_parallel_rank": JSON, "publisher": JSON}
)
ANSWERS: st.SearchStrategy[object] = (
    JSON
    | st.lists(RANKS, max_size=200)
    | st.dictionaries(st.integers().map(str), RANKS, max_size=9)
    | st.builds(dict, sources=st.lists(RANKS))
)


@examples(200)
@given(answer=ANSWERS)
def test_whatever_it_answers_only_its_own_host_is_connected_to_and_a_bounded_number_of_times(answer: object) -> None:
    try:
        found, faults = told(answer)
        ranks = read_ranks(json.dumps(answer).encode(), "vllm")
    except SourcesUnreadable:
        return
    assert len(found) <= MOST_SOURCES and len(faults) < 2000
    assert all(0 <= one.rank <= MOST_RANK_NAME and len(one.topic) <= LONGEST_TOPIC for one in found)
    assert all(0 <= rank <= MOST_RANK_NAME for rank in ranks)
    reached = [one.endpoint for one in found if not one.connects] + [one.replay_endpoint for one in found if one.replay_endpoint]
    assert all(endpoint.startswith("tcp://10.0.0.7:") for endpoint in reached)

"""What engines answer to `GET /kv_event_sources`, in the wordings of vLLM's versions."""

import json
from typing import Any

import pytest

from fairlead_router.kv_events.sources import EventSource, SourcesUnreadable, read_sources

RANK_0 = {"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5657", "topic": "kv@pod-0@m"}
RANK_1 = {"endpoint": "tcp://0.0.0.0:5558", "replay_endpoint": None, "topic": "kv@pod-0@m"}
READ = (
    EventSource(rank=0, endpoint="tcp://10.0.0.7:5557", replay_endpoint="tcp://10.0.0.7:5657", topic="kv@pod-0@m"),
    EventSource(rank=1, endpoint="tcp://10.0.0.7:5558", replay_endpoint=None, topic="kv@pod-0@m"),
)


@pytest.mark.parametrize(
    "answer",
    [
        {"1": {**RANK_1, "buffer_steps": 10_000}, "0": {**RANK_0, "publisher": "zmq", "enable_kv_cache_events": True}},
        [{**RANK_0, "data_parallel_rank": 0}, {**RANK_1, "data_parallel_rank": 1}],
        {"sources": [{**RANK_1, "data_parallel_rank": 1}, {**RANK_0, "data_parallel_rank": 0}]},
    ],
)
def test_every_wording_names_the_same_sources(answer: object) -> None:
    assert read_sources(json.dumps(answer).encode(), "vllm", "10.0.0.7:8000") == READ


@pytest.mark.parametrize("answer", [{}, [], {"sources": []}, {"0": {"endpoint": None}}, {"0": {**RANK_0, "publisher": "null"}}])
def test_an_engine_that_publishes_nothing_has_no_sources(answer: object) -> None:
    assert read_sources(json.dumps(answer).encode(), "vllm", "10.0.0.7:8000") == ()


def test_an_endpoint_with_an_address_of_its_own_is_taken_as_told() -> None:
    answer = [{"endpoint": "tcp://10.9.9.9:5557", "replay_endpoint": "tcp://[fd00::1]:5657"}]
    (source,) = read_sources(json.dumps(answer).encode(), "vllm", "10.0.0.7:8000")
    assert (source.endpoint, source.replay_endpoint, source.topic) == ("tcp://10.9.9.9:5557", "tcp://[fd00::1]:5657", "")


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (b"<html>", "no sources"),
        ({"detail": "Not Found"}, "no sources"),
        ({"detail": {}}, "not ranks"),
        ([{"endpoint": "ipc:///tmp/kv"}], "ipc:///tmp/kv"),
        ([{"endpoint": "tcp://*:0"}], "tcp://*:0"),
        ([{"endpoint": "tcp://*:99999"}], "tcp://*:99999"),
    ],
)
def test_what_cannot_be_used_is_told(answer: Any, names: str) -> None:
    with pytest.raises(SourcesUnreadable, match=names.replace("*", r"\*")):
        read_sources(answer if isinstance(answer, bytes) else json.dumps(answer).encode(), "vllm", "10.0.0.7:8000")

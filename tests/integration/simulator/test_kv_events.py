"""The simulated engine's KV events over real ZMQ, read by clients that know only vLLM's protocol."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import zmq

from fairlead.kv_events.predictions import predict
from fairlead.kv_events.recordings import RecordedBatch, RecordedRequest
from fairlead.kv_events.sources import Source
from fairlead_router.kv_events.wire import decode
from fairlead_testing.running.engine import RunningEngine, StartEngine
from fairlead_testing.waiting import PATIENCE_SECONDS

FLAGS = (
    "--kv-events-endpoint", "tcp://*:0", "--kv-events-replay-endpoint", "tcp://*:0", "--kv-events-topic", "kv@pod-0@m",
    "--kv-cache-tokens", "1600", "--prefill-tokens-per-second", "1000000", "--decode-step-ms", "1",
)  # fmt: skip


@pytest.fixture
def context() -> Iterator["zmq.Context[zmq.Socket[bytes]]"]:
    made = zmq.Context()
    yield made
    made.destroy(linger=0)


def source_of(engine: RunningEngine) -> dict[str, Any]:
    sources: dict[str, dict[str, Any]] = httpx.get(f"{engine.url}/kv_event_sources", timeout=PATIENCE_SECONDS).json()
    assert list(sources) == ["0"]
    return sources["0"]


def replayed(context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str, begin: int) -> list[tuple[int, bytes]]:
    """Return the events that the engine replays from number `begin` on."""
    with context.socket(zmq.DEALER) as asking:
        asking.linger, asking.rcvtimeo = 0, int(PATIENCE_SECONDS * 1000)
        asking.connect(endpoint)
        asking.send_multipart((b"", begin.to_bytes(8, "big")))
        batches: list[tuple[int, bytes]] = []
        while True:
            *_, number, payload = asking.recv_multipart()
            if number == b"\xff" * 8:
                return batches
            batches.append((int.from_bytes(number, "big"), payload))


def complete(engine: RunningEngine, name: int, prompt: str) -> RecordedRequest:
    """Send a prompt and return its record."""
    token_ids = httpx.post(f"{engine.url}/tokenize", json={"model": "m", "prompt": prompt}, timeout=PATIENCE_SECONDS).json()["tokens"]
    sent = time.time()
    body = {"model": "m", "prompt": prompt, "max_tokens": 20}
    answer = httpx.post(f"{engine.url}/v1/completions", json=body, timeout=PATIENCE_SECONDS).json()
    usage = answer["usage"]
    output = httpx.post(
        f"{engine.url}/tokenize", json={"model": "m", "prompt": answer["choices"][0]["text"]}, timeout=PATIENCE_SECONDS
    ).json()["tokens"]
    return RecordedRequest(
        name=name,
        sent=sent,
        done=time.time(),
        prompt_token_ids=token_ids,
        output_token_ids=output,
        cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
    )


@pytest.mark.parametrize("encoding", ["maps", "arrays"])
def test_an_index_of_its_events_says_what_the_engine_counts(
    encoding: str, start_engine: StartEngine, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    """100 blocks of KV memory and prompts that share beginnings: blocks are evicted and stored again."""
    engine = start_engine(*FLAGS, "--kv-events-encoding", encoding)
    source = source_of(engine)
    listening = context.socket(zmq.SUB)
    listening.rcvtimeo = int(PATIENCE_SECONDS * 1000)
    listening.connect(source["endpoint"])
    listening.subscribe(source["topic"])
    prompts = [f"document {number % 7} " * (60 + 25 * (number % 3)) + f"question {number}" for number in range(60)]
    requests = [complete(engine, number, prompt) for number, prompt in enumerate(prompts)]
    batches = replayed(context, source["replay_endpoint"], 0)
    assert [number for number, _ in batches] == list(range(len(batches)))
    assert replayed(context, source["replay_endpoint"], len(batches) - 3) == batches[-3:]

    while True:  # what was published live is the same, from the moment the subscription stood
        topic, number, payload = listening.recv_multipart()
        assert topic == b"kv@pod-0@m"
        assert (int.from_bytes(number, "big"), payload) in batches
        if int.from_bytes(number, "big") == batches[-1][0]:
            break

    played = []
    for number_of, payload in batches:
        batch = decode(payload)
        played.append(RecordedBatch(source=Source(instance="m"), number=number_of, arrived=batch.ts, stamp=batch.ts, events=batch.events))
    found = predict(played, requests, seeds=("0",))
    assert found.reported_cached_tokens > 1000
    assert [(each.name, each.predicted_cached_tokens) for each in found.predictions] == [
        (each.name, each.reported_cached_tokens) for each in found.predictions
    ]
    assert found.hashing is not None
    assert sum(event.kind.value == "BlockRemoved" for batch in played for event in batch.events) > 100
    assert (found.index.unknown_parent, found.index.unknown_removed, found.index.wrong_size) == (0, 0, 0)


def test_an_engine_without_the_flag_publishes_nothing(start_engine: StartEngine) -> None:
    assert httpx.get(f"{start_engine().url}/kv_event_sources", timeout=PATIENCE_SECONDS).json() == {}

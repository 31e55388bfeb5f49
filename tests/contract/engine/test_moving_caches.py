"""A session's move between two engines of one role, compared with a recording of two vLLM 0.32.

They used NixlConnector and `kv_role: kv_both`. The router's requests and the simulated engine's answers, cached tokens
and events are compared.
"""

import json
from pathlib import Path
from typing import Any

import httpx
import orjson
import zmq

from fairlead.kv_events.events import EventKind
from fairlead_router.kv_events.wire import decode
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.relaying.cache_moves import prompt_to_move
from fairlead_router.relaying.calls import Call
from fairlead_router.relaying.dividing import blocks_of
from fairlead_testing.builders.engine_shapes import Shape, shape_of_document
from fairlead_testing.running.engine import RunningEngine, engine_starter
from fairlead_testing.waiting import PATIENCE_SECONDS

RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("vllm-0.32-kv-both-move.json").read_text())
FLAGS = ("--block-size", "32", "--kv-events-endpoint", "tcp://*:0", "--kv-events-replay-endpoint", "tcp://*:0")


def in_order(shape: Shape) -> Shape:
    """Return objects as lists of pairs, so that the order of their fields is compared too."""
    if isinstance(shape, dict):
        return [(field, in_order(inner)) for field, inner in shape.items()]
    return [in_order(inner) for inner in shape] if isinstance(shape, list) else shape


def stored(engine: RunningEngine) -> list[tuple[int, int, bool]]:
    """Return the engine's published blocks so far, with their tokens and whether they continue others."""
    endpoint = httpx.get(f"{engine.url}/kv_event_sources", timeout=PATIENCE_SECONDS).json()["0"]["replay_endpoint"]
    found: list[tuple[int, int, bool]] = []
    with zmq.Context() as context, context.socket(zmq.DEALER) as asking:
        asking.linger, asking.rcvtimeo = 0, int(PATIENCE_SECONDS * 1000)
        asking.connect(endpoint)
        asking.send_multipart((b"", (0).to_bytes(8, "big")))
        while (frames := asking.recv_multipart())[-2] != b"\xff" * 8:
            for event in decode(frames[-1]).events:
                assert event.kind is EventKind.STORED
                found.append((len(event.block_hashes), len(event.token_ids), event.parent_block_hash is not None))
    return found


def test_a_move_is_asked_answered_counted_and_published_as_recorded() -> None:
    prompt = [100 + number % 90 for number in range(800)]
    published: dict[str, list[tuple[int, int, bool]]] = {"a": [], "b": []}
    with engine_starter() as start, httpx.Client(timeout=PATIENCE_SECONDS, headers={"content-type": "application/json"}) as client:
        engines = {"a": start(*FLAGS), "b": start(*FLAGS)}
        blocks: Any = None
        texts: dict[tuple[int, int], set[str]] = {}
        for row in RECORDED:
            if row["kind"] == "event":
                published[row["engine"]] += [(one["blocks"], one["tokens"], one["continues"]) for one in row["events"]]
                continue
            asked = {**row["body"], "model": "m"}
            asked["prompt"] = prompt[: int(asked["prompt"].split()[0])]
            transfer = asked.pop("kv_transfer_params", None)
            body = orjson.dumps(asked)
            if transfer is not None:
                head = b"POST /v1/completions HTTP/1.1\r\ncontent-length: %d\r\n" % len(body)
                call = Call("r", 0.0, head, body, stream=False, dialect=Dialect.OPENAI, deadline=1.0)
                moved = prompt_to_move(call)
                body = (moved.naming if blocks is None else moved.fetching(blocks)).body
                sent = shape_of_document(orjson.loads(body)["kv_transfer_params"])
                assert in_order(sent) == in_order(shape_of_document(transfer))
            answer = client.post(f"{engines[row['engine']].url}/v1/completions", content=body)
            assert answer.status_code == row["status"]
            assert in_order(shape_of_document(answer.json())) == in_order(shape_of_document(row["answer"]))
            details = answer.json()["usage"]["prompt_tokens_details"]
            assert details["cached_tokens"] == row["answer"]["usage"]["prompt_tokens_details"]["cached_tokens"]
            if transfer is not None and blocks is None:
                named = blocks_of(answer.content)
                assert named is not None
                blocks = orjson.loads(named)
                assert blocks["remote_num_tokens"] == 736
            elif asked["max_tokens"] > 1 and transfer is None:
                texts.setdefault((len(asked["prompt"]), asked["max_tokens"]), set()).add(answer.json()["choices"][0]["text"])
        assert all(len(said) == 1 for said in texts.values()), "both engines say the same"
        assert stored(engines["b"]) == published["b"], "the blocks that were moved are ordinary blocks"
        again = (1, 32, True)  # vLLM publishes the last block a second time, as it computes that again; the simulated engine does not
        assert stored(engines["a"]) == [one for one in published["a"] if one != again]

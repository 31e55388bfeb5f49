"""The handshake of a prefill and a decode engine, compared with a recording of two vLLM 0.32 with NixlConnector.

The router's requests and the simulated engine's answers have the same fields in the same order.
"""

import json
from pathlib import Path
from typing import Any

import httpx
import orjson

from fairlead_router.protocols.dialects import Dialect
from fairlead_router.relaying.calls import Call
from fairlead_router.relaying.dividing import blocks_of, decode_leg, prefill_leg
from fairlead_testing.builders.engine_shapes import Shape, shape_of_document
from fairlead_testing.running.engine import engine_starter
from fairlead_testing.waiting import PATIENCE_SECONDS

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("vllm-0.32-pd-handshake.json").read_text())
REQUEST = {"model": "m", "prompt": list(range(300)), "temperature": 0, "ignore_eos": True, "max_tokens": 8}


def in_order(shape: Shape) -> Shape:
    """Return objects as lists of pairs, so that the order of their fields is compared too."""
    if isinstance(shape, dict):
        return [(field, in_order(inner)) for field, inner in shape.items()]
    return [in_order(inner) for inner in shape] if isinstance(shape, list) else shape


def call(body: bytes) -> Call:
    head = b"POST /v1/completions HTTP/1.1\r\ncontent-length: %d\r\n" % len(body)
    return Call("r", 0.0, head, body, stream=False, dialect=Dialect.OPENAI, deadline=1.0)


def test_both_legs_and_their_answers_have_the_recorded_shape() -> None:
    asked = call(orjson.dumps(REQUEST))
    with engine_starter() as start, httpx.Client(timeout=PATIENCE_SECONDS, headers={"content-type": "application/json"}) as client:
        prefill, decode = start(), start()
        first = prefill_leg(asked, dict(REQUEST))
        assert shape_of_document(orjson.loads(first.body)) == RECORDED["prefill_request"]
        answer = client.post(f"{prefill.url}/v1/completions", content=first.body)
        assert in_order(shape_of_document(answer.json())) == in_order(RECORDED["prefill_answer"])
        blocks = blocks_of(answer.content)
        assert blocks is not None
        second = decode_leg(asked, blocks)
        assert in_order(shape_of_document(orjson.loads(second.body))) == in_order(RECORDED["decode_request"])
        assert orjson.loads(second.body)["kv_transfer_params"] == answer.json()["kv_transfer_params"]
        decoded = client.post(f"{decode.url}/v1/completions", content=second.body)
        assert in_order(shape_of_document(decoded.json())) == in_order(RECORDED["decode_answer"])
        alone = client.post(f"{decode.url}/v1/completions", json=REQUEST)
        assert decoded.json()["choices"] == alone.json()["choices"], "the text equals that of one engine alone"

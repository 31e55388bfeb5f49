"""The simulated engine, compared with a recording of vLLM 0.32.

Statuses, media types, fields and their order, and the order of events are equal.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead_testing.builders.engine_shapes import CASES, Shape, shape_of
from fairlead_testing.running.engine import engine_starter
from fairlead_testing.waiting import PATIENCE_SECONDS

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("vllm-0.32.json").read_text())


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with engine_starter() as start:
        engine = start("--kv-cache-tokens", "2048", "--stream-interval-ms", "40")
        with httpx.Client(base_url=engine.url, timeout=PATIENCE_SECONDS) as client:
            yield client


def test_every_case_is_recorded_and_served_by_a_real_engine() -> None:
    assert set(RECORDED) == {name for name, *_ in CASES}
    unserved = [name for name, recorded in RECORDED.items() if recorded["status"] == 404 and recorded["answer"] == {"detail": "text"}]
    assert unserved == ["unknown path"]


@pytest.mark.parametrize(("name", "method", "path", "body"), CASES, ids=[name for name, *_ in CASES])
def test_an_answer_has_the_shape_that_vllm_gave_it(
    client: httpx.Client, name: str, method: str, path: str, body: dict[str, Any] | None
) -> None:
    assert in_order(shape_of(client, "m", method, path, body)) == in_order(RECORDED[name])


def in_order(shape: Shape) -> Shape:
    """Return objects as lists of pairs, so that the order of their fields is compared too."""
    if isinstance(shape, dict):
        return [(field, in_order(inner)) for field, inner in shape.items()]
    return [in_order(inner) for inner in shape] if isinstance(shape, list) else shape

"""Two simulated engines with p2p tiers: what a request that names a source gets from it, and that every failure is a
miss.
"""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from fairlead_testing.examples import examples
from fairlead_testing.running.engine import RunningEngine, engine_starter
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.ports import free_port

BLOCK = 16
PORT = free_port()
TARGET, WHOLE, PART, OTHER_SEED, GONE = "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"
FLAGS = ("--kv-p2p-port", str(PORT), "--time-scale", "50")

Start = Callable[..., RunningEngine]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    with engine_starter() as starting:
        yield lambda host, *flags: starting("--host", host, *FLAGS, *flags)


@pytest.fixture(scope="module")
def engines(start: Start) -> dict[str, RunningEngine]:
    found = {host: start(host) for host in (TARGET, WHOLE, PART)}
    return found | {OTHER_SEED: start(OTHER_SEED, "--seed", "7"), "alone": start("127.0.0.6")}


def source(host: str = WHOLE, **changed: Any) -> dict[str, Any]:
    return {"remote_kv_source": {"kv_request_id": "r", "remote_host": host, "remote_port": PORT} | changed}


def post(engine: RunningEngine, prompt: str, **fields: Any) -> tuple[str, int]:
    """The answer's text, and the cached tokens."""
    document = {"model": "m", "prompt": prompt, "max_tokens": 4, **fields}
    answer = httpx.post(f"{engine.url}/v1/completions", json=document, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200, answer.text
    whole = answer.json()
    assert whole["kv_transfer_params"] is None, "a tier names no blocks in answers"
    return whole["choices"][0]["text"], whole["usage"]["prompt_tokens_details"]["cached_tokens"]


def metric(engine: RunningEngine, name: str, **labels: str) -> float:
    for family in text_string_to_metric_families(httpx.get(f"{engine.url}/metrics", timeout=PATIENCE_SECONDS).text):
        for sample in family.samples:
            if sample.name == f"vllm:{name}" and labels.items() <= sample.labels.items():
                return sample.value
    raise AssertionError(f"no metric {name}")


COUNTER = iter(range(10**9))


@examples(12)
@given(
    blocks=st.integers(1, 60),
    held=st.integers(0, 60),
    own=st.integers(0, 60),
    peer=st.sampled_from([WHOLE, PART, OTHER_SEED, GONE]),
    rest=st.integers(1, BLOCK * 4 - 1),
)
def test_whatever_a_peer_gives_the_answer_is_that_of_one_engine_and_the_counts_are_true(
    engines: dict[str, RunningEngine], blocks: int, held: int, own: int, peer: str, rest: int
) -> None:
    prompt = f"{next(COUNTER):08}" + "w" * (blocks * BLOCK * 4 - 8 + rest)
    held, own = min(held, blocks), min(own, blocks)
    for engine, known in ((peer, held), (TARGET, own)):
        if known and engine in engines:
            post(engines[engine], prompt[: known * BLOCK * 4], max_tokens=1)
    came = held if peer in (WHOLE, PART) else 0
    before = metric(engines[TARGET], "prompt_tokens_cached_by_source_total", source="p2p")
    text, cached = post(engines[TARGET], prompt, kv_transfer_params=source(peer))
    assert cached == max(came, own) * BLOCK
    assert text == post(engines["alone"], prompt)[0]
    counted = metric(engines[TARGET], "prompt_tokens_cached_by_source_total", source="p2p") - before
    assert counted == max(0, came - own) * BLOCK
    assert post(engines[TARGET], prompt)[1] == blocks * BLOCK, "they are ordinary blocks of its cache"


@pytest.mark.parametrize(
    "params",
    [
        source(kv_request_id=None),
        source(kv_request_id=""),
        source(remote_host=None),
        source(remote_port=None),
        source(remote_port=0),
        source(remote_port="a port"),
        source(remote_port=99999),
        {"remote_kv_source": {}},
        {"remote_kv_source": None},
        {"do_remote_decode": True},
        {},
    ],
)
def test_what_names_no_peer_is_computed(engines: dict[str, RunningEngine], params: dict[str, Any]) -> None:
    prompt = f"{next(COUNTER):08}" + "w" * 640
    post(engines[WHOLE], prompt)
    assert post(engines[TARGET], prompt, kv_transfer_params=params, max_tokens=1)[1] == 0


def test_a_value_that_is_no_object_is_refused_as_vllm_refuses_it(engines: dict[str, RunningEngine]) -> None:
    for params, status in (("here", 400), ({"remote_kv_source": "here"}, 500)):
        document = {"model": "m", "prompt": "words", "kv_transfer_params": params}
        assert httpx.post(f"{engines[TARGET].url}/v1/completions", json=document, timeout=PATIENCE_SECONDS).status_code == status


def test_the_source_counts_no_request_and_keeps_its_blocks(engines: dict[str, RunningEngine]) -> None:
    prompt = f"{next(COUNTER):08}" + "w" * 640
    post(engines[WHOLE], prompt)
    before = metric(engines[WHOLE], "prompt_tokens_total")
    post(engines[TARGET], prompt, kv_transfer_params=source())
    assert metric(engines[WHOLE], "prompt_tokens_total") == before
    assert post(engines[WHOLE], prompt)[1] == 160
    assert metric(engines[TARGET], "kv_offload_tiering_read_bytes_total", tier="1:p2p") > 0


def test_a_port_that_is_taken_is_one_clear_error(engines: dict[str, RunningEngine], start: Start) -> None:
    with pytest.raises(AssertionError, match="did not start"):
        start(TARGET)

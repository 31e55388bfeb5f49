"""Two simulated engines transfer a prompt's KV blocks: blocks held, blocks fetched, and blocks that are gone."""

import asyncio
import time
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fairlead_testing.running.engine import RunningEngine, StartEngine
from fairlead_testing.waiting import PATIENCE_SECONDS

PROMPT = "word" * 1600
"""A prompt of 1,600 tokens: 100 blocks."""
KEPT = ("--kv-lease-seconds", "3000")
"""A time longer than any test takes, even where time passes faster."""
ASKED = {"do_remote_decode": True, "do_remote_prefill": False}
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": PROMPT}]}
DIALECTS: dict[str, tuple[dict[str, Any], str]] = {
    "/v1/completions": ({"model": "m", "prompt": PROMPT}, "max_tokens"),
    "/v1/chat/completions": (CHAT, "max_tokens"),
    "/v1/messages": (CHAT, "max_tokens"),
    "/v1/responses": ({"model": "m", "input": PROMPT}, "max_output_tokens"),
}


def metric(engine: RunningEngine, name: str, **labels: str) -> float:
    for family in text_string_to_metric_families(httpx.get(f"{engine.url}/metrics", timeout=PATIENCE_SECONDS).text):
        for sample in family.samples:
            if sample.name == f"vllm:{name}" and labels.items() <= sample.labels.items():
                return sample.value
    raise AssertionError(f"no metric {name}")


def post(engine: RunningEngine, path: str, **fields: Any) -> dict[str, Any]:
    answer = httpx.post(f"{engine.url}{path}", json=fields, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def prefilled(engine: RunningEngine, path: str = "/v1/chat/completions") -> dict[str, Any]:
    body, limit = DIALECTS[path]
    blocks = post(engine, path, **body, **{limit: 1}, kv_transfer_params=ASKED)["kv_transfer_params"]
    return dict(blocks)


def computed(engine: RunningEngine) -> float:
    return metric(engine, "prompt_tokens_by_source_total", source="local_compute")


def wait_until_free(engine: RunningEngine) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while metric(engine, "kv_cache_usage_perc"):
        assert time.monotonic() < deadline, "the blocks were never freed"
        time.sleep(0.01)


@pytest.mark.parametrize("path", DIALECTS)
def test_every_dialect_holds_the_blocks_until_another_engine_has_fetched_them(start_engine: StartEngine, path: str) -> None:
    prefill, decode, alone = (start_engine("--time-scale", "10", *KEPT) for _ in range(3))
    body, limit = DIALECTS[path]
    blocks = prefilled(prefill, path)
    assert metric(prefill, "kv_cache_usage_perc") > 0
    assert metric(prefill, "num_requests_running") == 0
    answer = post(decode, path, **body, **{limit: 8}, kv_transfer_params=blocks)
    usual = post(alone, path, **body, **{limit: 8})
    for document in (answer, usual):
        for told in ("id", "created", "created_at", "usage", "output", "kv_transfer_params"):
            document.pop(told, None)
    assert answer == usual
    wait_until_free(prefill)
    assert metric(decode, "prompt_tokens_by_source_total", source="external_kv_transfer") >= 1584
    assert computed(decode) <= 16
    assert metric(decode, "nixl_xfer_time_seconds_count") == 1


def test_usage_tells_what_the_prefill_had_cached_and_the_decode_transfers_only_what_it_lacks(start_engine: StartEngine) -> None:
    prefill, decode = (start_engine("--time-scale", "10", *KEPT) for _ in range(2))
    post(prefill, "/v1/completions", model="m", prompt=PROMPT[:3200], max_tokens=1)
    post(decode, "/v1/completions", model="m", prompt=PROMPT[:3200], max_tokens=1)
    before = computed(decode)
    answer = post(
        decode, "/v1/completions", model="m", prompt=PROMPT, max_tokens=4, kv_transfer_params=prefilled(prefill, "/v1/completions")
    )
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 800
    assert metric(decode, "prompt_tokens_by_source_total", source="external_kv_transfer") in (784, 800)
    assert computed(decode) - before == 16


def test_a_transfer_takes_its_modelled_time(start_engine: StartEngine) -> None:
    prefill = start_engine()
    decode = start_engine("--kv-bytes-per-token", "1000", "--kv-transfer-bytes-per-second", "4000000", "--kv-transfer-latency-ms", "100")
    blocks = prefilled(prefill)
    post(decode, "/v1/chat/completions", **CHAT, max_tokens=1, kv_transfer_params=blocks)
    assert metric(decode, "nixl_xfer_time_seconds_sum") == pytest.approx(0.5)
    assert metric(decode, "time_to_first_token_seconds_sum") >= 0.5


@pytest.mark.parametrize("loss", ["expired", "unknown", "killed", "fetched"])
def test_what_cannot_be_fetched_is_computed_here_and_counted(start_engine: StartEngine, loss: str) -> None:
    prefill, decode = start_engine("--kv-lease-seconds", "0.05" if loss == "expired" else "3000"), start_engine("--time-scale", "10")
    blocks = prefilled(prefill)
    if loss == "expired":
        wait_until_free(prefill)
        assert metric(prefill, "nixl_num_kv_expired_reqs_total") == 1
    elif loss == "unknown":
        blocks["remote_request_id"] = "cmpl-nobody"
    elif loss == "killed":
        prefill.process.kill()
        prefill.process.wait()
    else:
        post(start_engine("--time-scale", "10"), "/v1/chat/completions", **CHAT, max_tokens=1, kv_transfer_params=blocks)
        wait_until_free(prefill)
    answer = post(decode, "/v1/chat/completions", **CHAT, max_tokens=4, kv_transfer_params=blocks)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert computed(decode) >= 1600
    assert metric(decode, "nixl_num_failed_transfers_total") == 1


def test_an_engine_may_fail_what_it_cannot_fetch_as_vllm_does_by_default(start_engine: StartEngine) -> None:
    decode = start_engine("--kv-load-failure-policy", "fail")
    blocks = {**ASKED, "do_remote_prefill": True, "remote_block_ids": [[1]], "remote_engine_id": "e", "remote_request_id": "r"}
    answer = httpx.post(
        f"{decode.url}/v1/chat/completions",
        json={**CHAT, "kv_transfer_params": {**blocks, "remote_host": "127.0.0.1", "remote_port": 1}},
        timeout=PATIENCE_SECONDS,
    )
    assert answer.status_code == 500
    assert "could not be loaded" in answer.text


async def test_an_engine_that_dies_while_it_fetches_leaves_the_blocks_to_the_lease(start_engine: StartEngine) -> None:
    prefill = start_engine("--kv-lease-seconds", "5")
    decode = start_engine("--kv-transfer-bytes-per-second", "1000000")
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        blocks = prefilled(prefill)
        asked = asyncio.create_task(client.post(f"{decode.url}/v1/chat/completions", json={**CHAT, "kv_transfer_params": blocks}))
        await asyncio.sleep(6)
        assert metric(prefill, "kv_cache_usage_perc") > 0, "an open connection renews the lease"
        decode.process.kill()
        with pytest.raises(httpx.HTTPError):
            await asked
    wait_until_free(prefill)
    assert metric(prefill, "nixl_num_kv_expired_reqs_total") == 1

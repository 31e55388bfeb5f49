import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fairlead_testing.running.engine import RunningEngine, StartEngine
from fairlead_testing.waiting import PATIENCE_SECONDS

CHAT = "/v1/chat/completions"


def chat(text: str = "hello there", **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


def metric(url: str, name: str, **labels: str) -> float:
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=PATIENCE_SECONDS).text):
        for sample in family.samples:
            if sample.name == f"vllm:{name}" and labels.items() <= sample.labels.items():
                return sample.value
    raise AssertionError(f"no metric {name}")


def wait_for(url: str, name: str, value: float, **labels: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while metric(url, name, **labels) != value:
        assert time.monotonic() < deadline, f"{name} never became {value}"


async def events(client: httpx.AsyncClient, url: str, headers: dict[str, str] | None = None, **fields: Any) -> AsyncGenerator[bytes]:
    async with client.stream("POST", f"{url}{CHAT}", json=chat(stream=True, **fields), headers=headers) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                yield line[6:].encode()


@pytest.fixture
def engine(start_engine: StartEngine) -> RunningEngine:
    return start_engine()


def test_a_whole_answer_has_its_words_usage_and_reason(start_engine: StartEngine) -> None:
    engine = start_engine("--time-scale", "10")
    text = "word " * 100
    first = httpx.post(f"{engine.url}{CHAT}", json=chat(text, max_tokens=5), timeout=PATIENCE_SECONDS).json()
    assert first["usage"] == {
        "prompt_tokens": 125,
        "total_tokens": 130,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 0, "created_cache_tokens": 112, "multimodal_tokens": None},
        "completion_tokens_details": None,
    }
    assert first["choices"][0]["finish_reason"] == "length"
    assert len(first["choices"][0]["message"]["content"]) == 20
    second = httpx.post(f"{engine.url}{CHAT}", json=chat(text, max_tokens=5), timeout=PATIENCE_SECONDS).json()
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 112
    assert second["choices"] == first["choices"], "equal prompts get equal answers"
    completion = httpx.post(f"{engine.url}/v1/completions", json={"model": "m", "prompt": text}, timeout=PATIENCE_SECONDS).json()
    assert completion["usage"]["completion_tokens"] == 16
    assert completion["choices"][0]["finish_reason"] == "length"
    unlimited = httpx.post(f"{engine.url}{CHAT}", json=chat(text), timeout=PATIENCE_SECONDS).json()
    assert unlimited["usage"]["completion_tokens"] == 128
    assert unlimited["choices"][0]["finish_reason"] == "stop"


async def test_a_stream_brings_every_token_once_and_ends_with_usage_and_done(engine: RunningEngine) -> None:
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        whole = (await client.post(f"{engine.url}{CHAT}", json=chat(max_tokens=30))).json()
        received = [event async for event in events(client, engine.url, max_tokens=30, stream_options={"include_usage": True})]
    assert received[-1] == b"[DONE]"
    chunks = [orjson.loads(event) for event in received[:-1]]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1])
    assert text == whole["choices"][0]["message"]["content"]
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert chunks[-2]["choices"][0]["delta"]["content"], "the last words and the reason come in one chunk, as from vLLM"
    assert chunks[-1]["usage"]["completion_tokens"] == 30


async def test_tokens_arrive_when_the_engine_made_them(engine: RunningEngine) -> None:
    stamps: list[float] = []
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        started = time.monotonic()
        stream = events(client, engine.url, {"x-sim-timing": "1"}, max_tokens=150, messages=[{"role": "user", "content": "x" * 2500}])
        received = []
        async for event in stream:
            stamps.append(time.monotonic() - started)
            received.append(event)
    timing = orjson.loads(received[-2])["timing"]
    assert timing["first_token"] - timing["admitted"] == pytest.approx(0.1, abs=1e-6), "625 tokens at 6,250 a second"
    assert timing["finished"] - timing["first_token"] == pytest.approx(149 * 0.0201, rel=0.01)
    assert stamps[0] >= 0.1, "no token comes before it was made"
    assert stamps[-1] >= timing["finished"] - timing["arrived"], "the last one neither"
    assert len(received) > 3, "tokens are not held back until the end, nor the first of them until the last"


async def test_a_sped_up_engine_bundles_tokens_into_few_chunks(start_engine: StartEngine) -> None:
    engine = start_engine("--time-scale", "20", "--stream-interval-ms", "50")
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        started = time.monotonic()
        received = [event async for event in events(client, engine.url, max_tokens=500)]
        took = time.monotonic() - started
    assert took >= 0.9 * 500 * 0.02 / 20
    words = [orjson.loads(event)["choices"][0]["delta"].get("content", "") for event in received[:-1]]
    assert len("".join(words)) == 2000
    assert len(words) <= 20


async def test_a_chunked_engine_computes_a_prompt_in_pieces_beside_running_answers(start_engine: StartEngine) -> None:
    engine = start_engine("--mode", "chunked", "--max-batched-tokens", "64")
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        running = events(client, engine.url, max_tokens=5000)
        await anext(running)
        answer = await client.post(f"{engine.url}{CHAT}", json=chat("y" * 2500, max_tokens=1), headers={"x-sim-timing": "1"})
        await running.aclose()
    timing = answer.json()["timing"]
    assert timing["first_token"] - timing["admitted"] == pytest.approx(0.1 + 10 * 0.02005, rel=0.01), "ten pieces, each with a decode step"


async def test_a_client_that_leaves_frees_its_blocks(engine: RunningEngine) -> None:
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        stream = events(client, engine.url, max_tokens=5000)
        await anext(stream)
        assert metric(engine.url, "num_requests_running") == 1
        assert metric(engine.url, "kv_cache_usage_perc") > 0
        await stream.aclose()
    wait_for(engine.url, "request_success_total", 1, finished_reason="abort")
    assert metric(engine.url, "num_requests_running") == 0
    assert metric(engine.url, "kv_cache_usage_perc") == 0


def test_a_full_waiting_list_is_answered_with_503(start_engine: StartEngine) -> None:
    engine = start_engine("--max-running", "1", "--max-waiting", "1")

    async def three() -> list[httpx.Response]:
        async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
            async with client.stream("POST", f"{engine.url}{CHAT}", json=chat(max_tokens=50_000, stream=True)) as long:
                while (await client.get(f"{engine.url}/metrics")).text.find('num_requests_running{engine="0",model_name="m"} 1') < 0:
                    pass
                queued = asyncio.create_task(client.post(f"{engine.url}{CHAT}", json=chat(max_tokens=1)))
                while (await client.get(f"{engine.url}/metrics")).text.find('num_requests_waiting{engine="0",model_name="m"} 1') < 0:
                    pass
                refused = await client.post(f"{engine.url}{CHAT}", json=chat(max_tokens=1))
            return [long, await queued, refused]  # once the long one has been left

    long, queued, refused = asyncio.run(three())
    assert (long.status_code, queued.status_code, refused.status_code) == (200, 200, 503)
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["error"]["message"] == "the engine already has 1 requests waiting; try again later"


def test_bad_requests_are_answered_in_openai_style(start_engine: StartEngine) -> None:
    engine = start_engine("--kv-cache-tokens", "1600")
    cases: list[tuple[str, bytes, int, str]] = [
        (CHAT, b"{", 400, "not valid JSON"),
        (CHAT, orjson.dumps(chat() | {"model": "other"}), 404, "The model `other` does not exist."),
        (CHAT, orjson.dumps(chat("x" * 8000)), 400, "maximum context length is 1600 tokens"),
        (CHAT, orjson.dumps(chat("x" * 5600, max_tokens=400)), 400, "you requested 400 output tokens and your prompt contains 1400"),
        (CHAT, orjson.dumps(chat(n=2, stream=True)), 400, "n=2 is not simulated; streams have one choice"),
        (CHAT, orjson.dumps(chat(tool_choice="required")), 400, "never calls a tool"),
        (CHAT, orjson.dumps(chat(response_format={"type": "json_object"})), 400, "answers are plain words"),
        (CHAT, b" " * 1_200_000, 413, "the body exceeds"),
        ("/v1/embeddings", b"{}", 400, "input: Field required"),
    ]
    for path, body, status, message in cases:
        response = httpx.post(f"{engine.url}{path}", content=body, headers={"content-type": "application/json"}, timeout=PATIENCE_SECONDS)
        assert response.status_code == status
        assert message in response.json()["error"]["message"]
        assert response.json()["error"]["code"] == status
    assert httpx.get(f"{engine.url}{CHAT}", timeout=PATIENCE_SECONDS).status_code == 405
    assert httpx.post(f"{engine.url}/health", timeout=PATIENCE_SECONDS).status_code == 405
    assert httpx.get(f"{engine.url}/nothing", timeout=PATIENCE_SECONDS).status_code == 404


def test_models_version_and_readiness_are_served(start_engine: StartEngine) -> None:
    engine = start_engine("--kv-cache-tokens", "1600")
    card = httpx.get(f"{engine.url}/v1/models", timeout=PATIENCE_SECONDS).json()["data"][0]
    assert (card["id"], card["max_model_len"]) == ("m", 1600)
    assert httpx.get(f"{engine.url}/version", timeout=PATIENCE_SECONDS).json()["version"].startswith("fairlead-simulator ")
    assert httpx.get(f"{engine.url}/health", timeout=PATIENCE_SECONDS).status_code == 200
    late = start_engine("--startup-seconds", "60")
    assert httpx.get(f"{late.url}/health", timeout=PATIENCE_SECONDS).status_code == 503
    refused = httpx.post(f"{late.url}{CHAT}", json=chat(), timeout=PATIENCE_SECONDS)
    assert (refused.status_code, refused.json()["error"]["message"]) == (503, "the engine is starting")


def test_failures_happen_as_asked(engine: RunningEngine) -> None:
    def post(failure: str, **fields: Any) -> httpx.Response:
        return httpx.post(f"{engine.url}{CHAT}", json=chat(**fields), headers={"x-sim-fail": failure}, timeout=PATIENCE_SECONDS)

    with pytest.raises(httpx.TransportError):
        post("refuse")
    assert post("error-500").status_code == 500
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{engine.url}{CHAT}", json=chat(), headers={"x-sim-fail": "hang"}, timeout=0.3)
    with pytest.raises(httpx.RemoteProtocolError):
        post("die-mid-stream", max_tokens=10)
    received = b""
    with (  # noqa: PT012  the stream must break while it is read
        pytest.raises(httpx.RemoteProtocolError),
        httpx.stream(
            "POST",
            f"{engine.url}{CHAT}",
            json=chat(stream=True, max_tokens=20),
            headers={"x-sim-fail": "die-mid-stream"},
            timeout=PATIENCE_SECONDS,
        ) as response,
    ):
        for piece in response.iter_bytes():
            received += piece
    assert b'"content":"' in received
    assert b"[DONE]" not in received
    timings = {}
    for failure in ("slow:1", "slow:4"):
        headers = {"x-sim-fail": failure, "x-sim-timing": "1"}
        timings[failure] = httpx.post(
            f"{engine.url}{CHAT}", json=chat(failure * 500, max_tokens=1), headers=headers, timeout=PATIENCE_SECONDS
        ).json()["timing"]
    took = [timing["first_token"] - timing["admitted"] for timing in timings.values()]
    assert took[1] == pytest.approx(4 * took[0], rel=1e-3)
    assert post("explode").status_code == 400
    wait_for(engine.url, "num_requests_running", 0)
    assert engine.process.poll() is None


async def refuses_connections(url: str) -> bool:
    """Return whether new connections are refused; one already in the listener's queue may still be closed
    unanswered.
    """
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        try:
            await client.get(f"{url}/health")
        except httpx.ConnectError:
            return True
        except httpx.TransportError:
            return False
    return False


async def test_on_sigterm_it_finishes_what_runs_and_refuses_what_is_new(engine: RunningEngine) -> None:
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        stream = events(client, engine.url, max_tokens=40)
        await anext(stream)
        engine.process.terminate()
        while not await refuses_connections(engine.url):
            pass
        rest = [event async for event in stream]
    assert rest[-1] == b"[DONE]"
    assert await asyncio.to_thread(engine.process.wait, PATIENCE_SECONDS) == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--port", "x"], "--port: 'x' is not a valid integer"),
        (["--time-scale", "0"], "--time-scale: '0' cannot be used; write a number above 0"),
        (["--max-running", "0"], "--max-running: 0 is not in the range"),
        (["--nonsense"], "No such option"),
        (["--kv-cache-tokens", "8"], "--kv-cache-tokens 8 is less than one block (--block-size 16)"),
        (["--host", "no.such.host.invalid"], "--host/--port: 'no.such.host.invalid:8000' cannot be used"),
    ],
)
def test_bad_flags_end_with_one_line(flags: list[str], message: str) -> None:
    command = [sys.executable, "-m", "fairlead_simulator.engine_server", "--model", "m", *flags]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode in (1, 2)
    assert message in ended.stderr
    assert ended.stderr.startswith("fairlead-engine: ")
    assert ended.stderr.count("\n") == 1


def test_a_taken_port_ends_with_one_line(engine: RunningEngine) -> None:
    command = [sys.executable, "-m", "fairlead_simulator.engine_server", "--model", "m", "--port", str(engine.port)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert f"'127.0.0.1:{engine.port}' cannot be used" in ended.stderr
    assert "(Address already in use)" in ended.stderr


def test_an_idle_engine_is_small(engine: RunningEngine) -> None:
    assert httpx.get(f"{engine.url}/health", timeout=PATIENCE_SECONDS).status_code == 200
    facts = Path(f"/proc/{engine.process.pid}")
    if not facts.exists():
        pytest.skip("needs /proc")
    resident_kb = next(line.split()[1] for line in (facts / "status").read_text().splitlines() if line.startswith("VmRSS"))
    assert int(resident_kb) < 45_000

    def processor_seconds() -> float:
        ticks = (facts / "stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    before = processor_seconds()
    time.sleep(2)
    assert processor_seconds() - before < 0.2

"""A simulated engine with data-parallel ranks, as vLLM behind one API server.

Each rank computes and caches separately, and a request's header names its rank.
"""

import httpx

from fairlead_testing.running.engine import RunningEngine, StartEngine
from fairlead_testing.waiting import PATIENCE_SECONDS

PROMPT = "It was the best of times, it was the worst of times. " * 20
FLAGS = ("--data-parallel-size", "3", "--prefill-tokens-per-second", "1000000", "--decode-step-ms", "1")


def ask(engine: RunningEngine, rank: str | None, prompt: str = PROMPT) -> httpx.Response:
    headers = {} if rank is None else {"X-data-parallel-rank": rank}
    body = {"model": "m", "prompt": prompt, "max_tokens": 2}
    return httpx.post(f"{engine.url}/v1/completions", json=body, headers=headers, timeout=PATIENCE_SECONDS)


def cached(answer: httpx.Response) -> int:
    return int((answer.json()["usage"]["prompt_tokens_details"] or {}).get("cached_tokens", 0))


def test_each_rank_has_a_cache_of_its_own(start_engine: StartEngine) -> None:
    engine = start_engine(*FLAGS)
    first, again, other = ask(engine, "2"), ask(engine, "2"), ask(engine, "1")
    assert cached(first) == cached(other) == 0 < cached(again)
    page = httpx.get(f"{engine.url}/metrics", timeout=PATIENCE_SECONDS).text
    counts = {line.split('"')[1]: float(line.split()[-1]) for line in page.splitlines() if line.startswith("vllm:prompt_tokens_total")}
    assert counts["0"] == 0 < counts["1"] < counts["2"]


def test_a_rank_out_of_range_is_refused_in_vllms_words_and_what_is_no_number_is_none(start_engine: StartEngine) -> None:
    engine = start_engine(*FLAGS)
    refused = ask(engine, "3")
    assert refused.status_code == 400 and "data_parallel_rank 3 is out of range [0, 3)." in refused.json()["error"]["message"]
    assert ask(engine, "-1").status_code == 400
    assert ask(engine, "one").status_code == ask(engine, None).status_code == 200


def test_an_engine_of_one_rank_refuses_others(start_engine: StartEngine) -> None:
    engine = start_engine(*FLAGS[2:])
    assert (ask(engine, "0").status_code, ask(engine, "1").status_code) == (200, 400)


def test_each_rank_publishes_at_a_port_of_its_own(start_engine: StartEngine) -> None:
    engine = start_engine(*FLAGS, "--kv-events-endpoint", "tcp://*:0", "--kv-events-replay-endpoint", "tcp://*:0")
    sources = httpx.get(f"{engine.url}/kv_event_sources", timeout=PATIENCE_SECONDS).json()
    assert list(sources) == ["0", "1", "2"]
    assert len({one[field] for one in sources.values() for field in ("endpoint", "replay_endpoint")}) == 6

"""`fairlead serve` before two real vLLM engines: it reads their properties, and sessions find their cache again."""

import signal
from pathlib import Path

import httpx

from fairlead_testing.running.sandbox import until
from fairlead_testing.running.serving import POOL, serving
from fairlead_testing.running.vllm_engine import BLOCK_TOKENS, BLOCKS, MODEL, VllmEngine
from fairlead_testing.waiting import PATIENCE_SECONDS


def test_serve_finds_real_engines_and_sends_sessions_back_to_their_cache(engines: dict[str, VllmEngine], tmp_path: Path) -> None:
    flags = [part for engine in engines.values() for part in ("--engine", f"http://{engine.address}")]
    names = {name: f"127.0.0.1-{engine.port}" for name, engine in engines.items()}
    with serving(tmp_path / "state", *flags) as running:
        for engine in engines.values():
            [line] = [line for line in running.said.splitlines() if line.strip().startswith(f"http://{engine.address}  ")]
            assert f"{MODEL} · version " in line
            assert f"KV cache of {BLOCKS * BLOCK_TOKENS:,} tokens" in line
            assert f"KV events at tcp://127.0.0.1:{engine.events_port}" in line
        until(lambda: set(running.states().values()) == {"Serving"}, "both serve")

        def turn(session: str, number: int) -> int:
            """Return the cached tokens of the prompt, as the engine counts them."""
            words = f"{session}: " + "the quick brown fox jumps over the lazy dog " * 12 * (number + 1)
            answer = httpx.post(
                f"{running.url('router-0')}/v1/completions",
                json={"model": MODEL, "prompt": words, "max_tokens": 2, "user": session},
                headers={"x-session-id": session},
                timeout=PATIENCE_SECONDS,
                trust_env=False,
            )
            assert answer.status_code == 200, answer.text
            return int((answer.json()["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0)

        first = [turn(f"s{session}", 0) for session in range(4)]
        again = [turn(f"s{session}", 1) for session in range(4)]
        assert sum(again) > sum(first)
        assert all(cached >= BLOCK_TOKENS for cached in again), "every session came back to the engine that has its prefix"

        def is_followed(name: str) -> bool:
            caches = running.ask(f"{POOL}/instances/{names[name]}")["caches"]
            return any(cache["state"] == "current" for cache in caches)

        until(lambda: all(is_followed(name) for name in engines), "their KV events are followed")
        frozen = engines["i1"]
        frozen.signal(signal.SIGSTOP)
        try:
            until(lambda: running.states()[names["i1"]] == "Lost", "a frozen engine leaves")
        finally:
            frozen.signal(signal.SIGCONT)
        until(lambda: running.states()[names["i1"]] in {"Warming", "Serving"}, "and comes back")

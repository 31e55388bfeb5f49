"""A real vLLM in processes of its own, on this machine's processor, with the tiny model that `make test-vllm` makes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from processkube.testing.ports import free_port

START_SECONDS = 900.0
"""The longest wait for vLLM's start. It takes half a minute on a quiet machine, but many times that if all cores are
busy.
"""

MODEL = "tiny/qwen"
BLOCK_TOKENS = 32
CONTEXT_TOKENS = 4_096
BLOCKS = 300
"""The number of KV blocks: so small that some hundred prompts evict each other."""


@dataclass
class VllmEngine:
    """A vLLM engine. `tools` is the folder with the environment `vllm` and the model `tiny-qwen`."""

    tools: Path
    log: Path
    name: str
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    events_port: int = field(default_factory=free_port)
    replay_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def replay_endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self.replay_port}"

    def start(self) -> None:
        """Start the engine without waiting; `wait_ready` waits until it serves."""
        events = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{self.events_port}",
            "replay_endpoint": f"tcp://*:{self.replay_port}",
            "topic": f"kv@{self.name}@{MODEL}",
            "buffer_steps": 200_000,  # so that all of a session can be asked for again
        }
        command = [
            str(self.tools / "vllm/bin/vllm"), "serve", str(self.tools / "tiny-qwen"), "--served-model-name", MODEL,
            "--host", "127.0.0.1", "--port", str(self.port), "--enforce-eager", "--dtype", "bfloat16", "--max-num-seqs", "16",
            "--max-model-len", str(CONTEXT_TOKENS), "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
            "--block-size", str(BLOCK_TOKENS), "--num-gpu-blocks-override", str(BLOCKS), "--prefix-caching-hash-algo", "sha256_cbor",
            "--enable-prompt-tokens-details", "--kv-events-config", json.dumps(events), *self.flags,
        ]  # fmt: skip
        environment = {
            **os.environ,
            "PATH": f"{self.tools / 'vllm/bin'}:{os.environ['PATH']}",
            "PYTHONHASHSEED": "0",
            "VLLM_TARGET_DEVICE": "cpu",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else every engine binds itself to the same first core
            **self.environment,
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def wait_ready(self) -> None:
        """Wait until the engine answers; fails with the end of its log if it ends before."""
        assert self.process is not None
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if self.process.poll() is not None:
                break
            with suppress(httpx.HTTPError):
                if httpx.get(f"http://{self.address}/health", timeout=2, trust_env=False).status_code == 200:
                    return
            time.sleep(0.5)
        raise AssertionError(f"vLLM did not start:\n{self.log.read_text(errors='replace')[-3000:]}")

    def signal_core(self, number: signal.Signals, rank: int | None = None) -> None:
        """Send a signal to the processes that compute, or to that of one data-parallel rank; the HTTP server gets no
        signal.
        """
        assert self.process is not None
        name = b"EngineCore" if rank is None else b"EngineCore_DP%d" % rank
        found = [path.parent for path in Path("/proc").glob("[0-9]*/cmdline") if name in _read(path)]
        cores = [int(folder.name) for folder in found if _group(int(folder.name)) == self.process.pid]
        assert cores, "vLLM has no process of this name"
        for core in cores:
            os.kill(core, number)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the engine, as if its node were lost or frozen."""
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """Kill all processes of the engine at once; does nothing if there are none."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended meanwhile
        return b""


def _group(process: int) -> int:
    try:
        return os.getpgid(process)
    except ProcessLookupError:
        return 0

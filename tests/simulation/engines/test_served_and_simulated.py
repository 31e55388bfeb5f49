"""One trace through one engine twice: simulated by `fairlead simulate`, and served over HTTP in virtual time.

Both must have equal results. Both use `fairlead_simulator.engine_model`; the differences are the memory (block ids
here, text there), the clock, and the path from a request to the model. Tolerances: a microsecond of engine time for its
own timestamps (a virtual loop adds up its pauses), one timer of the server for a client's times. Hits and lengths are
equal.
"""

import asyncio
from dataclasses import dataclass, replace
from itertools import islice

import httpx
import orjson
import pytest

from fairlead_simulator.engine_model.presets import EnginePreset, preset
from fairlead_simulator.engine_server.answers import AnswerBook
from fairlead_simulator.engine_server.app import EngineApp
from fairlead_simulator.engine_server.engine import ServedEngine
from fairlead_simulator.engine_server.kv_transfers import KvTransfers, TransferSettings
from fairlead_simulator.engine_server.pacing import EnginePacer
from fairlead_simulator.engine_server.served_instance import InstanceSettings, ServedInstance
from fairlead_simulator.engine_server.statistics import EngineStatistics
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, load_workload, plan_jobs
from fairlead_simulator.replay.prompts import PromptWriter
from fairlead_simulator.simulation.jobs import Job, Phase
from fairlead_simulator.simulation.pool_simulation import Simulation
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.traces.rows import BLOCK_TOKENS, TraceRow
from fairlead_simulator.workloads.kinds import KINDS
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport
from fairlead_testing.worlds.virtual_time import run_virtually

BYTES_PER_TOKEN = 4
SPEED = 20.0
REQUESTS = 250

AMPLE = replace(preset("dualmap-910b4-qwen7b"), block_tokens=BLOCK_TOKENS, dram_tokens=None, kv_tokens=BLOCK_TOKENS * 20_000)
"""An engine with blocks of the traces' size, so that both memories know prefixes equally finely."""
TIGHT = replace(AMPLE, kv_tokens=BLOCK_TOKENS * 48)
CHUNKED = replace(preset("vllm-h100-8b"), block_tokens=BLOCK_TOKENS, kv_tokens=BLOCK_TOKENS * 48, max_batched_tokens=2048)


@dataclass(frozen=True, slots=True)
class Served:
    """A client's answer, and the time of its first token in seconds of engine time."""

    first_token: float
    finished: float
    hit_tokens: int
    output_tokens: int
    first_seen: float


def a_workload() -> Workload:
    """Return conversations whose answers fill no block.

    A trace does not name the blocks of answers, so only a server could find one again. Such answers never run out of
    blocks; `test_memories.py` compares both memories where requests are preempted.
    """
    rows = (
        replace(row, output_length=max(1, min(row.output_length, BLOCK_TOKENS - 1 - row.input_length % BLOCK_TOKENS)))
        for row in KINDS["conversation"].rows(None, 2000, 11)
        if row.input_length < 9000
    )
    return load_workload(islice(rows, REQUESTS), requests=None, max_input=None, infer_sessions=False)


WORKLOAD = a_workload()


def planned(rate: float) -> list[Job]:
    return plan_jobs(WORKLOAD, ArrivalPlan(rate=rate, seed=5))


def simulated(engine: EnginePreset, jobs: list[Job]) -> None:
    pool = SimulatedPool(preset=engine, instances=1, policy="round-robin", prefills_in_flight=0, prefill_tokens_per_second=6250.0)
    Simulation(pool, jobs).run()
    assert all(job.phase is Phase.FINISHED for job in jobs)


def an_app(engine: EnginePreset) -> EngineApp:
    served = ServedEngine(engine, bytes_per_token=BYTES_PER_TOKEN, max_waiting=REQUESTS, statistics=EngineStatistics())
    pacer = EnginePacer(served, SPEED, 0.02, clock=asyncio.get_running_loop().time)
    instance = ServedInstance(
        InstanceSettings(
            model="m",
            bytes_per_token=BYTES_PER_TOKEN,
            body_limit_bytes=1 << 24,
            context_tokens=engine.kv_tokens,
            ready_at=0.0,
            id_prefix="",
            created=0,
            version="1",
        ),
        pacer,
        KvTransfers(pacer, TransferSettings(cost=engine.transfer, lease_seconds=30.0, fails=False)),
        AnswerBook(0, BYTES_PER_TOKEN),
    )
    return EngineApp(instance, {}, None)


async def ask(client: httpx.AsyncClient, at: float, row: TraceRow, prompt: bytes) -> Served:
    """Send one streamed chat when the engine's clock is at `at`; return the client's view of it."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(at / SPEED - loop.time())
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": prompt.decode()}],
        "max_tokens": row.output_length,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    first_seen, documents = -1.0, []
    async with client.stream("POST", "http://engine/v1/chat/completions", json=body, headers={"x-sim-timing": "1"}) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                if first_seen < 0:
                    first_seen = loop.time() * SPEED
                documents.append(orjson.loads(line[6:]))
    timing = next(document["timing"] for document in documents if "timing" in document)
    usage = documents[-1]["usage"]
    assert usage["prompt_tokens"] == row.input_length
    return Served(
        first_token=timing["first_token"],
        finished=timing["finished"],
        hit_tokens=usage["prompt_tokens_details"]["cached_tokens"],
        output_tokens=usage["completion_tokens"],
        first_seen=first_seen,
    )


async def serve(engine: EnginePreset, jobs: list[Job]) -> list[Served]:
    writer = PromptWriter(BYTES_PER_TOKEN)
    async with httpx.AsyncClient(transport=StreamingAsgiTransport(an_app(engine)), timeout=None) as client:
        asked = (ask(client, job.arrives_at, row, writer.prompt(row)) for job, row in zip(jobs, WORKLOAD.rows, strict=True))
        return await asyncio.gather(*asked)


@pytest.mark.parametrize(
    ("engine", "rate"),
    [
        pytest.param(AMPLE, 2.0, id="ample memory"),
        pytest.param(AMPLE, 6.0, id="prompts wait and share steps"),
        pytest.param(TIGHT, 2.0, id="blocks are evicted"),
        pytest.param(CHUNKED, 6.0, id="chunked prompts beside decodes"),
    ],
)
def test_a_served_engine_and_a_simulated_one_serve_a_trace_alike(engine: EnginePreset, rate: float) -> None:
    jobs = planned(rate)
    simulated(engine, jobs)
    told = run_virtually(serve(engine, jobs))
    assert [served.hit_tokens for served in told] == [job.hit_tokens for job in jobs]
    assert [served.output_tokens for served in told] == [job.output_tokens for job in jobs]
    assert [served.first_token for served in told] == pytest.approx([job.first_token_at for job in jobs], abs=1e-6)
    assert [served.finished for served in told] == pytest.approx([job.finished_at for job in jobs], abs=1e-6)
    assert [served.first_seen for served in told] == pytest.approx([served.first_token for served in told], abs=0.0015 * SPEED)
    assert sum(job.hit_tokens for job in jobs) > 0

"""The load tool `guidellm`, run as people run it: a short benchmark through the gateway that must end without an error.

Version 0.3.1, the last that needs no torch. It begins with `GET /v1/models` and a completion of one token; later ones
begin with `GET /health`.
"""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import httpx
import pytest

from fairlead_simulator.traces.conversions import read_form
from fairlead_testing.running.client_doors import MODEL, Doors
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import until

ROOT = Path(__file__).parents[3]
REQUESTS = 12


@pytest.fixture(scope="session")
def guidellm() -> Path:
    """Return the path of the tool, installed once (some 430 MB unpacked)."""
    subprocess.run([ROOT / "scripts/ensure-load-tool.sh"], check=True, timeout=600)
    return ROOT / ".venv-tools/guidellm/bin/guidellm"


@pytest.mark.timeout(900)
async def test_a_short_benchmark_through_the_gateway_ends_without_an_error(doors: Doors, guidellm: Path, tmp_path: Path) -> None:
    door = await doors.gateway()
    router = door.router
    assert router is not None
    assert (await router.client.get("/health")).status_code == 200
    prompts = tmp_path / "prompts.jsonl"
    question = "what is a prefix cache? " * 10
    rows = [{"prompt": f"Question {number}: {question}", "output_tokens_count": 16} for number in range(REQUESTS)]
    prompts.write_text("\n".join(map(json.dumps, rows)))
    report = tmp_path / "report.json"
    command: list[str | Path] = [
        guidellm,
        "benchmark",
        "run",
        "--target",
        door.url,
        "--model",
        MODEL,
        "--data",
        prompts,
        "--output-path",
        report,
    ]
    command += ["--rate-type", "concurrent", "--rate", "3", "--max-requests", str(REQUESTS), "--max-seconds", "400"]
    command += ["--disable-progress", "--disable-console-outputs"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "GUIDELLM__MAX_WORKER_PROCESSES": "2"}
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(2 * PATIENCE_SECONDS):
        told, _ = await process.communicate()
    assert process.returncode == 0, told.decode()[-2000:]
    benchmark = json.loads(report.read_text())["benchmarks"][0]
    totals = benchmark["request_totals"]
    assert totals == {"successful": REQUESTS, "errored": 0, "incomplete": 0, "total": REQUESTS}
    assert {request["output_tokens"] for request in benchmark["requests"]["successful"]} == {16}
    converted = list(read_form(report))
    assert [row.output_length for row in converted] == [16] * REQUESTS
    assert all(row.input_length > 10 for row in converted)
    await until(lambda: router.busy() == 0)
    assert all(" 4xx" not in answered and " 5xx" not in answered for answered in map(http_answers, (engine.url for engine in door.engines)))


def http_answers(url: str) -> str:
    """Return the number of an engine's answers, by handler and class of status."""
    return "\n".join(
        line.replace('status="', " ")
        for line in httpx.get(f"{url}/metrics", timeout=PATIENCE_SECONDS).text.splitlines()
        if line.startswith("http_requests_total")
    )

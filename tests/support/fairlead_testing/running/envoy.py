"""A real Envoy in front of engines, configured as docs/gateway-api.md shows. scripts/ensure-envoy.sh installs Envoy."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.ports import free_port

ROOT = Path(__file__).resolve().parents[4]
_ORIGINAL_DST = {
    "type": "ORIGINAL_DST",
    "lb_policy": "CLUSTER_PROVIDED",
    "original_dst_lb_config": {"use_http_header": True, "http_header_name": "x-gateway-destination-endpoint"},
}
_INSTALLED = ROOT / ".venv-tools" / "envoy"


def envoy_binary() -> Path:
    """Return the path of Envoy; skips the test if Envoy is not installed."""
    if not (_INSTALLED / "installed.txt").exists():
        pytest.skip("Envoy is not installed: run scripts/ensure-envoy.sh (Linux on x86-64 only)")
    return _INSTALLED / "envoy" / "_bin" / "envoy"


def documented_configuration() -> dict[str, Any]:
    """Return the Envoy configuration from docs/gateway-api.md."""
    page = (ROOT / "docs" / "gateway-api.md").read_text(encoding="utf-8")
    (found,) = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if block.startswith("static_resources:")]
    configuration: dict[str, Any] = yaml.safe_load(found)
    return configuration


def _endpoint(port: int) -> dict[str, Any]:
    return {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}


@asynccontextmanager
async def running_envoy(folder: Path, picker_port: int, engines: Sequence[int]) -> AsyncIterator[httpx.AsyncClient]:
    """Run Envoy with the documented configuration, and yield a client of it.

    Only the addresses are replaced: by the port of the router's endpoint picker and by the ports of engines. Without
    engines, Envoy sends each request to the single address in its header.
    """
    binary, port = envoy_binary(), free_port()
    configuration = documented_configuration()
    resources = configuration["static_resources"]
    resources["listeners"][0]["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": port}
    if not engines:
        resources["clusters"][0] = {"name": "picked", **_ORIGINAL_DST}
    for cluster in resources["clusters"][0 if engines else 1 :]:
        endpoints = [_endpoint(one) for one in (engines if cluster["name"] == "picked" else [picker_port])]
        cluster["load_assignment"]["endpoints"] = [{"lb_endpoints": endpoints}]
    file = folder / "envoy.yaml"
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    with (folder / "envoy.log").open("wb") as log:
        arguments = ("-c", str(file), "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning")
        process = await asyncio.create_subprocess_exec(str(binary), *arguments, stdout=log, stderr=log)
    try:
        await _listening(port, process, folder / "envoy.log")
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS, trust_env=False) as client:
            yield client
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _listening(port: int, process: asyncio.subprocess.Process, log: Path) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            assert process.returncode is None, log.read_text(encoding="utf-8")
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return

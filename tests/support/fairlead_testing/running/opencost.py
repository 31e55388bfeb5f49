"""A stand-in for OpenCost on a port of this machine; its answers have the format of OpenCost's `allocation_json.go`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from processkube.testing.ports import free_port

HOUR = timedelta(hours=1)


def allocation(start: datetime, namespace: str, pod: str, cost: float | None, **labels: str) -> dict[str, Any]:
    """Return a pod's allocation in the hour from `start` on, with the fields that Fairlead reads and some that it does
    not.
    """
    properties = {"cluster": "cluster-one", "node": "node-1", "namespace": namespace, "pod": pod, "labels": labels}
    window = {"start": start.strftime("%Y-%m-%dT%H:%M:%SZ"), "end": (start + HOUR).strftime("%Y-%m-%dT%H:%M:%SZ")}
    costs = {"cpuCost": 0.1, "gpuCost": cost, "gpuHours": 1, "ramCost": 0.01, "pvs": None, "totalCost": cost, "totalEfficiency": None}
    return {"name": f"{namespace}/{pod}", "properties": properties, "window": window, **window, "minutes": 60, **costs}


@dataclass(kw_only=True)
class OpenCostStandIn:
    """OpenCost at `url`. `costs` has the costs of pods by hour, namespace and name; `asked` has the received
    queries.
    """

    url: str
    costs: dict[tuple[datetime, str, str], float] = field(default_factory=dict)
    status: int = 200
    asked: list[dict[str, str]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(dict(request.query))
        start, end = (datetime.strptime(at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) for at in request.query["window"].split(","))
        sets = [self._hour(start + number * HOUR) for number in range(-(-int((end - start).total_seconds()) // 3600))]
        return web.json_response({"code": 200, "status": "success", "data": sets}, status=self.status)

    def _hour(self, at: datetime) -> dict[str, Any]:
        pods = {
            f"{namespace}/{pod}": allocation(at, namespace, pod, cost) for (hour, namespace, pod), cost in self.costs.items() if hour == at
        }
        return {**pods, "__idle__": {**allocation(at, "", "", 99.0), "properties": {"cluster": "cluster-one"}}}


@asynccontextmanager
async def opencost() -> AsyncIterator[OpenCostStandIn]:
    """Run the stand-in while the context is open."""
    port = free_port()
    made = OpenCostStandIn(url=f"http://127.0.0.1:{port}")
    app = web.Application()
    app.router.add_get("/allocation/compute", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)  # 0 would wait for ever
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield made
    finally:
        await runner.cleanup()

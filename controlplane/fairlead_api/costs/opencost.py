"""Reads the cost of instances' pods in each hour from OpenCost.

Source: OpenCost's `core/pkg/opencost/allocation_json.go` and `pkg/costmodel` (`ComputeAllocationHandler`).
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import httpx
import msgspec

from fairlead.costs.money import MICRO
from fairlead.instance_marks import GROUP_LABEL
from fairlead_api.infra.errors import Unavailable
from fairlead_client.http_clients import BoundedClient, NotReadable, UnboundedAnswer, decoded
from fairlead_process.tasks import beside_the_loop

LARGEST_ANSWER = 64 * 1024 * 1024
PATIENCE_SECONDS = 60.0
HOUR = timedelta(hours=1)
MOST_MICROS = 10_000_000 * MICRO
"""Highest plausible cost of a pod in an hour, in micro-units of the currency."""

PodCosts = Mapping[datetime, Mapping[tuple[str, str], int]]
"""Costs of instances by hour, in micro-units; within an hour, by the namespace and name of the instance."""


class _Window(msgspec.Struct):
    start: datetime


class _Properties(msgspec.Struct):
    namespace: str = ""
    pod: str = ""
    labels: dict[str, str] | None = None


class _Allocation(msgspec.Struct, rename="camel"):
    window: _Window
    properties: _Properties | None = None
    total_cost: float | None = None


class _Answer(msgspec.Struct):
    data: list[dict[str, _Allocation] | None]


class OpenCost:
    """The OpenCost server at `url`. `transport` replaces the network in tests."""

    def __init__(self, url: str, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._url = url
        self._transport = transport

    async def costs(self, start: datetime, end: datetime) -> PodCosts:
        """Return the cost of instances in each hour of [start, end); `start` is a whole hour. Raises Unavailable.

        Hours that were not requested are left out of OpenCost's response.
        """
        window = ",".join(at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for at in (start, end))
        query = {"window": window, "step": "1h", "aggregate": "namespace,pod", "includeAggregatedMetadata": "true"}
        content = await self._ask(query)
        try:
            found = await beside_the_loop(len(content), lambda: costs_of(decoded(content, _Answer).data))
        except NotReadable as error:
            raise Unavailable(f"OpenCost's answer is not a list of allocations: {error}") from error
        return {hour: costs for hour, costs in found.items() if start <= hour < end and (hour - start) % HOUR == timedelta()}

    async def _ask(self, query: Mapping[str, str]) -> bytes:
        try:
            async with BoundedClient(LARGEST_ANSWER, timeout=PATIENCE_SECONDS, transport=self._transport) as http:
                answer = await http.get(f"{self._url}/allocation/compute", params=query)
        except UnboundedAnswer as error:
            raise Unavailable(f"OpenCost {error}") from error
        except httpx.HTTPError as error:
            raise Unavailable("OpenCost does not answer; see FAIRLEAD_OPENCOST_URL") from error
        if answer.status_code != 200:
            raise Unavailable(f"OpenCost answers {answer.status_code} at /allocation/compute; see FAIRLEAD_OPENCOST_URL")
        return answer.content


def costs_of(sets: Sequence[Mapping[str, _Allocation] | None]) -> PodCosts:
    """Return the costs of instances: the sum over all pods of each instance. Impossible amounts are left out."""
    found: dict[datetime, dict[tuple[str, str], int]] = defaultdict(lambda: defaultdict(int))
    for one in (allocation for of_hour in sets for allocation in (of_hour or {}).values()):
        micros = round(one.total_cost * MICRO) if one.total_cost is not None and math.isfinite(one.total_cost) else -1
        if one.properties is not None and one.properties.pod and 0 <= micros <= MOST_MICROS:
            found[one.window.start.astimezone(UTC)][_instance_of(one.properties)] += micros
    return found


def _instance_of(properties: _Properties) -> tuple[str, str]:
    """Return the namespace and name of the instance that a pod belongs to. An instance of several nodes has the name of
    the first pod of its LeaderWorkerSet.
    """
    labels = properties.labels or {}
    group = labels.get(_SET) if _GROUP in labels else None
    return properties.namespace, f"{group}-0" if group else properties.pod


def _as_label(key: str) -> str:
    """Return a label's key in the form of Prometheus, from which OpenCost reads labels."""
    return "".join(sign if sign.isalnum() else "_" for sign in key)


_GROUP, _SET = _as_label(GROUP_LABEL), _as_label("leaderworkerset.sigs.k8s.io/name")

"""Reads a pod's log and events from the Kubernetes API."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import quote

from fairlead.errors import InvalidInput
from fairlead.instance_marks import POOL_LABEL, engine_container_of
from fairlead.tables import PoolKey
from fairlead_api.infra.errors import NotFound
from fairlead_client.resources.pods import PodEvent, PodEvents, PodLog

MOST_LINES = 2000
SEARCHED_LINES = 20_000
"""Number of lines at the end of a log that are searched."""
LIMIT_BYTES = 8 * 1024 * 1024


class Cluster(Protocol):
    """The calls to the Kubernetes API that reading pods needs. Methods raise ClusterUnavailable, Denied,
    InvalidInput.
    """

    async def ask(self, method: str, path: str, *, query: Any = ()) -> Mapping[str, Any] | None: ...

    async def ask_text(self, path: str, query: Any) -> str | None: ...


class Pods:
    """Reads the logs and events of pools' pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def log(self, pool: PoolKey, instance: str, lines: int, search: str, container: str | None, *, previous: bool) -> PodLog:
        """Return the last lines of the log of an instance's pod. Raises NotFound, InvalidInput, ClusterUnavailable,
        Denied.
        """
        if not 1 <= lines <= MOST_LINES:
            raise InvalidInput("lines", lines, f"write 1 to {MOST_LINES}")
        pod = await self._pod(pool, instance)
        names = [str(one["name"]) for one in pod["spec"]["containers"]]
        chosen = container or engine_container_of(names, pod["metadata"].get("annotations"))
        if chosen not in names:
            raise InvalidInput("container", container, f"write one of {', '.join(names)}")
        query = [("container", chosen), ("tailLines", str(SEARCHED_LINES if search else lines)), ("limitBytes", str(LIMIT_BYTES))]
        path = f"{_path(pool, instance)}/log"
        try:
            text = await self._cluster.ask_text(path, [*query, *([("previous", "true")] if previous else [])])
        except InvalidInput as error:  # the container has written nothing yet, or none ran before
            raise InvalidInput("previous" if previous else "log", None, f"there is no log: {error.remedy}") from error
        if text is None:
            raise NotFound("pod", instance)
        found = text.splitlines()
        return PodLog(
            instance=instance,
            container=chosen,
            containers=names,
            previous=previous,
            restarts=_restarts(pod, chosen),
            read=len(found),
            lines=matching(found, search)[-lines:],
        )

    async def events(self, pool: PoolKey, instance: str) -> PodEvents:
        """Return the events about an instance's pod, even if the pod is gone. Raises ClusterUnavailable, Denied."""
        path = f"/api/v1/namespaces/{quote(pool.namespace, safe='')}/events"
        chosen = f"involvedObject.kind=Pod,involvedObject.name={instance}"
        answer = await self._cluster.ask("GET", path, query=[("fieldSelector", chosen)])
        found = [event_of(item) for item in (answer or {}).get("items") or ()]
        oldest = datetime.min.replace(tzinfo=UTC)
        return PodEvents(instance=instance, events=sorted(found, key=lambda one: one.at or oldest, reverse=True))

    async def _pod(self, pool: PoolKey, instance: str) -> Mapping[str, Any]:
        """Return the instance's pod if it belongs to the pool. Raises NotFound."""
        found = None if instance in {"", ".", ".."} else await self._cluster.ask("GET", _path(pool, instance))
        if found is None or (found["metadata"].get("labels") or {}).get(POOL_LABEL) != pool.name:
            raise NotFound("pod", instance)
        return found


def _path(pool: PoolKey, instance: str) -> str:
    return f"/api/v1/namespaces/{quote(pool.namespace, safe='')}/pods/{quote(instance, safe='')}"


def matching(lines: list[str], search: str) -> list[str]:
    """Return the lines that contain the text `search`, ignoring case; all lines if the text is empty."""
    wanted = search.casefold()
    return [line for line in lines if wanted in line.casefold()] if wanted else lines


def _restarts(pod: Mapping[str, Any], container: str) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((int(one.get("restartCount") or 0) for one in statuses if one.get("name") == container), 0)


def event_of(item: Mapping[str, Any]) -> PodEvent:
    """Convert a Kubernetes event to a PodEvent. Its time and count may be in the event itself or, in the API
    events.k8s.io, in the event's `series`.
    """
    series = item.get("series") or {}
    at = series.get("lastObservedTime") or item.get("lastTimestamp") or item.get("eventTime") or item["metadata"].get("creationTimestamp")
    source = item.get("reportingComponent") or (item.get("source") or {}).get("component") or ""
    return PodEvent(
        at=None if not at else datetime.fromisoformat(str(at).replace("Z", "+00:00")),
        kind=str(item.get("type") or "Normal"),
        reason=str(item.get("reason") or ""),
        message=str(item.get("message") or ""),
        count=int(series.get("count") or item.get("count") or 1),
        source=str(source),
    )

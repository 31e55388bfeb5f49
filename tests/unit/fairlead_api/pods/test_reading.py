"""Logs and events of pods: which pod, which container, which lines; and nothing of another pool's pods."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from fairlead.errors import InvalidInput
from fairlead.instance_marks import POOL_LABEL
from fairlead.tables import PoolKey
from fairlead_api.infra.errors import NotFound
from fairlead_api.pods.reading import SEARCHED_LINES, Pods, event_of
from fairlead_client.resources.pods import PodLog

CHAT = PoolKey(namespace="default", name="chat")


class Cluster:
    """A cluster with one pod and its log; it keeps the requests."""

    def __init__(
        self, pool: str = "chat", containers: Sequence[str] = ("engine", "side-car"), log: str | None = "one\nTwo\nthree\n"
    ) -> None:
        status = {"containerStatuses": [{"name": "engine", "restartCount": 2}]}
        labels, spec = {POOL_LABEL: pool}, {"containers": [{"name": name} for name in containers]}
        self.pod: Mapping[str, Any] = {"metadata": {"labels": labels}, "spec": spec, "status": status}
        self.log = log
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.events: list[Mapping[str, Any]] = []

    async def ask(self, method: str, path: str, *, query: Any = ()) -> Mapping[str, Any] | None:
        self.asked.append((path, dict(query)))
        return {"items": self.events} if path.endswith("/events") else self.pod if path.endswith("/pods/chat-a") else None

    async def ask_text(self, path: str, query: Any) -> str | None:
        self.asked.append((path, dict(query)))
        if self.log is None:
            raise InvalidInput("spec", None, "previous terminated container not found")
        return self.log


async def log(cluster: Cluster, instance: str = "chat-a", **asked: Any) -> PodLog:
    given = {"lines": 200, "search": "", "container": None, "previous": False, **asked}
    return await Pods(cluster).log(CHAT, instance, given["lines"], given["search"], given["container"], previous=given["previous"])


async def test_the_log_is_that_of_the_engine_with_its_restarts() -> None:
    cluster = Cluster()
    found = await log(cluster, lines=50)
    assert (found.container, found.restarts, found.lines) == ("engine", 2, ["one", "Two", "three"])
    path, query = cluster.asked[-1]
    assert path == "/api/v1/namespaces/default/pods/chat-a/log"
    assert (query["container"], query["tailLines"]) == ("engine", "50")
    assert "previous" not in query


async def test_without_a_container_named_engine_the_log_is_that_of_the_pods_default_container() -> None:
    cluster = Cluster(containers=("istio-proxy", "vllm"))
    cluster.pod["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": "vllm"}
    assert (await log(cluster)).container == "vllm"
    cluster.pod["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": "gone"}
    assert (await log(cluster)).container == "istio-proxy"


async def test_a_search_looks_through_more_lines_and_ignores_the_case() -> None:
    cluster = Cluster()
    found = await log(cluster, search="TW", lines=1)
    assert (found.read, found.lines) == (3, ["Two"])
    assert cluster.asked[-1][1]["tailLines"] == str(SEARCHED_LINES)


async def test_the_previous_container_is_asked_for_and_said_to_have_none() -> None:
    cluster = Cluster()
    await log(cluster, previous=True)
    assert cluster.asked[-1][1]["previous"] == "true"
    with pytest.raises(InvalidInput, match="previous: there is no log"):
        await log(Cluster(log=None), previous=True)


@pytest.mark.parametrize("asked", [{"container": "none"}, {"lines": 0}, {"lines": 2001}])
async def test_what_cannot_be_asked_is_refused_by_its_name(asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(asked))):
        await log(Cluster(), **asked)


@pytest.mark.parametrize("instance", ["chat-b", "..", ""])
async def test_a_pod_that_is_not_there_has_no_log(instance: str) -> None:
    with pytest.raises(NotFound):
        await log(Cluster(), instance)


async def test_a_pod_of_another_pool_is_not_read() -> None:
    cluster = Cluster(pool="secret")
    with pytest.raises(NotFound):
        await log(cluster)
    assert not cluster.asked[-1][0].endswith("/log")


async def test_events_are_those_of_the_pod_newest_first_in_both_forms() -> None:
    cluster = Cluster()
    cluster.events = [
        {
            "metadata": {},
            "type": "Normal",
            "reason": "Started",
            "lastTimestamp": "2026-11-23T10:00:00Z",
            "count": 3,
            "source": {"component": "kubelet"},
        },
        {
            "metadata": {},
            "reason": "BackOff",
            "series": {"count": 7, "lastObservedTime": "2026-11-23T10:05:00.5Z"},
            "reportingComponent": "kubelet",
        },
        {"metadata": {}, "reason": "Odd", "eventTime": None},
    ]
    found = (await Pods(cluster).events(CHAT, "chat-a")).events
    assert [(one.reason, one.count, one.source) for one in found] == [("BackOff", 7, "kubelet"), ("Started", 3, "kubelet"), ("Odd", 1, "")]
    assert cluster.asked[-1] == (
        "/api/v1/namespaces/default/events",
        {"fieldSelector": "involvedObject.kind=Pod,involvedObject.name=chat-a"},
    )
    assert event_of({"metadata": {"creationTimestamp": "2026-11-23T10:00:00Z"}}).at is not None

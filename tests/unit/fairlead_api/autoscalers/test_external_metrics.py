"""The port for external metrics over real TLS: whom it authenticates, what the cluster authorizes, and its
documents.
"""

import asyncio
import json
import math
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import httpx
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead_api.autoscaler_settings import AutoscalerSettings
from fairlead_api.autoscalers import metrics_port
from fairlead_api.autoscalers.external_metrics import holds, parsed, quantity
from fairlead_api.autoscalers.figures import OLDEST_SECONDS, LatestFigures
from fairlead_api.autoscalers.metrics_port import serving_metrics
from fairlead_api.infra.autoscaler_ports import bound
from fairlead_api.infra.errors import ClusterUnavailable
from fairlead_api.infra.kubernetes import Kubernetes
from fairlead_api.pools.scaling_figures import ScalingFigures
from fairlead_process.doors import Door
from fairlead_testing.examples import examples
from fairlead_testing.running.authorities import Authority
from fairlead_testing.running.recorded_metrics import without_times
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.kubernetes_api.objects.errors import BadRequest
from processkube.kubernetes_api.objects.selectors import parse_label_selector
from processkube.kubernetes_api.serving.certificates import ensure_certificates

BASE = "/apis/external.metrics.k8s.io/v1beta1"
CHAT = f"{BASE}/namespaces/prod/fairlead_wanted_instances"
HPA = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"


@dataclass(slots=True)
class Cluster:
    """A Kubernetes API for reviews: of tokens by `users`, of rights by `rights` (user or group, verb, namespace or
    path).
    """

    config: dict[str, str] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)
    rights: set[tuple[str, str, str]] = field(default_factory=set)
    asked: list[Mapping[str, Any]] = field(default_factory=list)
    is_away: bool = False

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Sequence[Any] = (), content: str = "") -> Any:
        if self.is_away:
            raise ClusterUnavailable("the Kubernetes API does not answer")
        if body is None:
            return {"data": self.config}
        spec = body["spec"]
        self.asked.append(spec)
        if body["kind"] == "TokenReview":
            name = self.users.get(spec["token"])
            return {"status": {"authenticated": name is not None, "user": {"username": name, "groups": ["system:authenticated"]}}}
        about = spec.get("resourceAttributes") or spec["nonResourceAttributes"]
        place = about.get("namespace", about.get("path", ""))
        return {"status": {"allowed": any((who, about["verb"], place) in self.rights for who in (spec["user"], *spec["groups"]))}}

    async def review(self, path: str, version: str, kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        return dict((await self.ask("POST", path, {"apiVersion": version, "kind": kind, "spec": spec}))["status"])


@dataclass(slots=True)
class Port:
    """The served port and its cluster; `now` is the clock of the figures."""

    folder: Path
    cluster: Cluster
    authority: Authority
    number: int = 0
    now: float = 0.0
    figures: LatestFigures = field(init=False)

    def __post_init__(self) -> None:
        self.figures = LatestFigures(lambda: self.now)

    async def get(self, path: str, client: Path | None = None, **headers: str) -> httpx.Response:
        async with self.http(client) as http:
            return await http.get(path, headers=headers)

    def http(self, client: Path | None = None) -> httpx.AsyncClient:
        """Return a client like the Kubernetes API, which uses HTTP/2 where it is offered."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if client is not None:
            context.load_cert_chain(client)
        url = f"https://127.0.0.1:{self.number}"
        return httpx.AsyncClient(verify=context, base_url=url, timeout=PATIENCE_SECONDS, http2=True)

    async def as_recorded(self, recorded: Mapping[str, Any]) -> httpx.Response:
        """Send a recorded request, with a certificate in the name of the recorded client."""
        headers = [(name, value) for name, value in recorded["headers"] if name != "host"]
        query = f"?{recorded['query']}" if recorded["query"] else ""
        async with self.http(self.authority.signed(recorded["client"])) as http:
            return await http.request(recorded["method"], recorded["path"] + query, headers=headers)

    def show(self, wanted: dict[tuple[str, str], int], headroom: dict[str, float] | None = None) -> None:
        """Serve these figures, by pool and role, from now on."""
        at = datetime(2026, 11, 30, 12, 0, 1, 500, tzinfo=UTC)
        self.figures.take(ScalingFigures(wanted=wanted, headroom=headroom or {}), at)

    async def as_proxy(self, path: str, user: str = HPA, **more: str) -> httpx.Response:
        return await self.get(path, self.authority.signed("front-proxy-client"), **{"X-Remote-User": user, **more})


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[Port]:
    authority = Authority(tmp_path / "proxy", "front-proxy-ca")
    cluster = Cluster(
        config={
            "requestheader-client-ca-file": authority.pem(),
            "requestheader-allowed-names": '["front-proxy-client"]',
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        },
        rights={(HPA, "list", "prod"), (HPA, "get", BASE)},
    )
    made = ensure_certificates(tmp_path, "127.0.0.1")
    port = Port(tmp_path, cluster, authority)
    wanted = {("prod/chat", "both"): 7, ("prod/split", "prefill"): 2, ("prod/split", "decode"): 5, ("dev/other", "both"): 9}
    port.show(wanted, {"prod/chat": -0.0521})
    ports = bound(AutoscalerSettings(metrics_port=0, cert_file=made.certificate, key_file=made.key), "127.0.0.1", {})
    listener, certificate = ports.metrics, ports.metrics_certificate
    assert listener is not None
    assert certificate is not None
    port.number = listener.getsockname()[1]
    async with serving_metrics(port.figures, cast(Kubernetes, cluster), listener, Door(8), certificate):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while certificate.context().verify_mode is not ssl.CERT_OPTIONAL:
                await asyncio.sleep(0)
        yield port


async def test_an_autoscaler_gets_the_wanted_number_of_its_pool(port: Port) -> None:
    answer = await port.as_proxy(f"{CHAT}?labelSelector=pool%3Dchat")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == {
        "kind": "ExternalMetricValueList",
        "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {},
        "items": [
            {
                "metricName": "fairlead_wanted_instances",
                "metricLabels": {"pool": "chat", "role": "both"},
                "timestamp": "2026-11-30T12:00:01Z",
                "value": "7",
            }
        ],
    }


async def test_the_headroom_is_a_quantity_with_a_window(port: Port) -> None:
    answer = await port.as_proxy(f"{BASE}/namespaces/prod/fairlead_slo_headroom")
    (item,) = answer.json()["items"]
    assert (item["value"], item["window"], item["metricLabels"]) == ("-52m", 300, {"pool": "chat"})


async def test_the_rights_are_asked_for_with_the_metric_as_resource_and_the_verb_list(port: Port) -> None:
    await port.as_proxy(CHAT, **{"X-Remote-Group": "system:authenticated", "X-Remote-Extra-Scopes%2Fa": "x"})
    (spec,) = port.cluster.asked
    assert spec["groups"] == ["system:authenticated"]
    assert spec["extra"] == {"scopes/a": ["x"]}
    assert spec["resourceAttributes"] == {
        "group": "external.metrics.k8s.io",
        "version": "v1beta1",
        "resource": "fairlead_wanted_instances",
        "namespace": "prod",
        "verb": "list",
    }


async def test_another_namespaces_figures_are_forbidden_in_the_words_of_kubernetes(port: Port) -> None:
    answer = await port.as_proxy(CHAT.replace("prod", "dev"))
    assert (answer.status_code, answer.json()["reason"]) == (403, "Forbidden")
    assert answer.json()["message"].endswith(
        f'User "{HPA}" cannot list resource "fairlead_wanted_instances" in API group "external.metrics.k8s.io" in the namespace "dev"'
    )


RECORDED: Sequence[Mapping[str, Any]] = json.loads((Path(__file__).parent / "kubernetes-1.36.json").read_text(encoding="utf-8"))
"""The recorded requests of kube-apiserver and of the autoscaler's controller of Kubernetes 1.36.2.

`make test-kubernetes` records them.
"""
DISCOVERABLE = (BASE, "/apis", "/openapi/v2", "/openapi/v3")


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda one: f"{one['status']} {one['path']}")
async def test_kubernetes_own_requests_are_answered_as_they_were(port: Port, recorded: Mapping[str, Any]) -> None:
    """If the old form of discovery is refused, the API server calls this API stale, and the deletion of namespaces
    hangs. Without a description it repeats its request continually.
    """
    namespace = (recorded["path"].removeprefix(f"{BASE}/namespaces/")).split("/")[0]
    port.cluster.rights = {("system:authenticated", "get", one) for one in DISCOVERABLE}  # the ClusterRole system:discovery
    port.cluster.rights.add((HPA, "list", namespace))
    port.show({(f"{namespace}/{pool}", role): value for pool, role, value in series(recorded["answer"])})
    answer = await port.as_recorded(recorded)
    assert answer.status_code == recorded["status"]
    assert without_times(answer.json()) == without_times(recorded["answer"])
    assert "as=" not in answer.headers["content-type"], "then it asks for the old form of discovery"


def series(document: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """Return pool, role and wanted number of each item of an answer."""
    return [(one["metricLabels"]["pool"], one["metricLabels"]["role"], int(one["value"])) for one in document.get("items", ())]


def test_the_recording_has_all_that_kubernetes_asks_for() -> None:
    asked = {(one["path"].partition("/namespaces/")[0], header_of(one, "x-remote-user")) for one in RECORDED}
    assert asked == {
        (BASE, "system:kube-aggregator"),
        ("/apis", "system:kube-aggregator"),
        ("/openapi/v2", "system:aggregator"),
        ("/openapi/v3", "system:aggregator"),
        (BASE, HPA),
    }


def header_of(recorded: Mapping[str, Any], name: str) -> str | None:
    return next((value for header, value in recorded["headers"] if header == name), None)


async def test_who_the_cluster_does_not_know_is_not_made_known(port: Port) -> None:
    port.cluster.rights = {("system:authenticated", "get", BASE)}
    unknown = {"X-Remote-Group": "system:unauthenticated"}
    assert (await port.as_proxy(BASE, "system:anonymous", **unknown)).status_code == 403
    assert (await port.as_proxy(BASE, "somebody", **unknown)).status_code == 403


@pytest.mark.parametrize("shown", ["nothing", "another name", "another authority"])
async def test_the_headers_of_whoever_is_not_the_front_proxy_count_for_nothing(port: Port, shown: str, tmp_path: Path) -> None:
    masters = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    if shown == "another authority":
        with pytest.raises(httpx.TransportError):
            await port.get(CHAT, Authority(tmp_path / "wrong", "front-proxy-ca").signed("front-proxy-client"), **masters)
        return
    client = None if shown == "nothing" else port.authority.signed("somebody")
    answer = await port.get(CHAT, client, **masters)
    assert (answer.status_code, answer.json()["reason"]) == (401, "Unauthorized")


async def test_the_groups_of_masters_may_all_and_the_cluster_is_not_asked(port: Port) -> None:
    answer = await port.as_proxy(CHAT, "admin", **{"X-Remote-Group": "system:masters"})
    assert answer.status_code == 200
    assert port.cluster.asked == []


async def test_a_token_is_reviewed_once_in_ten_seconds(port: Port) -> None:
    port.cluster.users["good"] = HPA
    for _ in range(2):
        assert (await port.get(CHAT, Authorization="Bearer good")).status_code == 200
    assert [sorted(spec)[0] for spec in port.cluster.asked] == ["token", "extra"]
    assert (await port.get(CHAT, Authorization="Bearer bad")).status_code == 401


async def test_another_authority_of_the_front_proxy_counts_and_the_former_no_more(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = port.authority, Authority(port.folder / "after", "front-proxy-ca-2")
    client = before.signed("front-proxy-client")
    port.cluster.config["requestheader-client-ca-file"] = after.pem()
    port.authority = after
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                answer = await port.as_proxy(CHAT)
                break
            except httpx.TransportError:
                await asyncio.sleep(0.02)
    assert answer.status_code == 200
    with pytest.raises(httpx.TransportError):
        await port.get(CHAT, client, **{"X-Remote-User": HPA})


async def test_unknown_figures_and_an_unknown_right_leave_the_number_as_it_is(port: Port) -> None:
    port.now += OLDEST_SECONDS + 1
    answer = await port.as_proxy(CHAT)
    assert (answer.status_code, answer.json()["reason"], answer.headers["retry-after"]) == (503, "ServiceUnavailable", "5")
    port.now, port.cluster.is_away = 0.0, True
    assert (await port.as_proxy(CHAT, "somebody-else")).status_code == 503


async def test_discovery_names_the_metrics(port: Port) -> None:
    answer = await port.as_proxy(BASE)
    assert [one["name"] for one in answer.json()["resources"]] == ["fairlead_wanted_instances", "fairlead_slo_headroom"]
    assert (await port.get("/readyz")).status_code == 200


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        (f"{BASE}/namespaces/prod/load", 404, "there is no metric 'load'"),
        (f"{CHAT}?labelSelector=pool%3D%3D%3Dchat", 400, "labelSelector"),
        (f"{BASE}/nodes", 404, "could not find"),
    ],
)
async def test_what_cannot_be_answered_is_a_status(port: Port, path: str, status: int, words: str) -> None:
    answer = await port.as_proxy(path, "admin", **{"X-Remote-Group": "system:masters"})
    assert answer.status_code == status == answer.json()["code"]
    assert words in json.dumps(answer.json()["message"])


def replicas_after(replicas: int, items: Sequence[Mapping[str, str]], target: str) -> int:
    """Return the replicas by GetExternalPerPodMetricReplicas of Kubernetes' replica_calculator.go, with a tolerance of
    10 %.
    """
    usage, per_pod = sum(thousandths(item["value"]) for item in items), thousandths(target)
    ratio = usage / (per_pod * replicas)
    return replicas if 0.9 <= ratio <= 1.1 else math.ceil(usage / per_pod)


def thousandths(quantity: str) -> int:
    return int(quantity[:-1]) if quantity.endswith("m") else 1000 * int(quantity)


@pytest.mark.parametrize(("replicas", "after"), [(1, 7), (12, 7), (7, 7), (6, 7)])
async def test_the_example_autoscaler_follows_the_wanted_number(port: Port, replicas: int, after: int) -> None:
    path = Path(__file__).parents[4] / "examples/autoscalers/horizontal-pod-autoscaler.yaml"
    example = yaml.safe_load(path.read_text(encoding="utf-8"))
    (metric,) = (one["external"] for one in example["spec"]["metrics"])
    selector = ",".join(f"{name}={value}" for name, value in sorted(metric["metric"]["selector"]["matchLabels"].items()))
    answer = await port.as_proxy(f"{BASE}/namespaces/prod/{metric['metric']['name']}?{urlencode({'labelSelector': selector})}")
    assert replicas_after(replicas, answer.json()["items"], metric["target"]["averageValue"]) == after


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_port, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(metrics_port, "RETRY_SECONDS", 0.02)


@pytest.mark.parametrize(("value", "written"), [(0, "0"), (3, "3"), (-0.05, "-50m"), (0.0204, "20m"), (1.25, "1250m"), (-2, "-2")])
def test_numbers_are_written_as_kubernetes_does(value: float, written: str) -> None:
    assert quantity(value) == written


_NAMES = st.sampled_from(["pool", "role", "x"])
_VALUES = st.sampled_from(["chat", "both", "a-b.c_d", ""])
_TERMS = st.one_of(
    st.builds("{}{}{}".format, _NAMES, st.sampled_from(["=", "==", "!=", " = ", " != "]), _VALUES),
    st.builds("{} {} ({})".format, _NAMES, st.sampled_from(["in", "notin"]), st.lists(_VALUES, min_size=1, max_size=3).map(",".join)),
    st.builds("{}{}".format, st.sampled_from(["", "!"]), _NAMES),
)


@examples(300)
@given(text=st.lists(_TERMS, max_size=3).map(",".join), labels=st.dictionaries(_NAMES, _VALUES, max_size=3))
def test_a_selector_means_here_what_it_means_to_the_kubernetes_api(text: str, labels: dict[str, str]) -> None:
    assert holds(parsed(text), labels) == parse_label_selector(text).matches(labels)


@examples(300)
@given(text=st.text("pol=!,() inx", max_size=12))
def test_a_text_that_is_no_selector_is_refused_and_nothing_else_is_raised(text: str) -> None:
    try:
        found: Any = parsed(text)
    except InvalidInput:
        return
    try:
        theirs = parse_label_selector(text)
    except BadRequest:
        raise AssertionError(f"{text!r} is no selector to the Kubernetes API, and {found} here") from None
    assert all(holds(found, labels) == theirs.matches(labels) for labels in ({}, {"pool": "chat"}, {"p": "o"}))


@pytest.mark.parametrize(
    "text", ["x in (a" + ",  " * 5000, "x in (" + " " * 20_000, "x" + " " * 20_000 + "?", " " * 20_000 + "?", "!" + " " * 20_000 + "?"]
)
def test_a_selector_made_to_be_slow_is_refused_as_soon_as_it_is_read(text: str) -> None:
    with pytest.raises(InvalidInput, match="labelSelector"):
        parsed(text)

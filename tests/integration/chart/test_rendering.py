"""The chart's objects, rendered by Helm, are valid and fit each other."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from fairlead.instance_marks import POOL_LABEL
from fairlead_operator.pod_marks import ADOPTED_ROLE_LABEL, ROLE_LABEL
from fairlead_operator.pod_templates import PORT_NAME
from fairlead_testing.running.chart import Render, place_of
from fairlead_testing.running.helm import Document, Helm, HelmRefused, Release
from fairlead_testing.worlds.chart_values import BUNDLED, EVERYTHING, EXTERNAL, merged
from processkube.testing.clients import KubernetesClient

NAMESPACED = merged(
    EVERYTHING,
    {"operator": {"watchNamespaces": ["rendering", "default"]}, "autoscalers": {"externalMetrics": {"enabled": False}}},
)
VARIANTS = {"bundled": BUNDLED, "external": EXTERNAL, "everything": EVERYTHING, "namespaced": NAMESPACED}


@pytest.fixture(scope="module", params=VARIANTS)
def release(request: pytest.FixtureRequest, render: Render) -> Release:
    return render(VARIANTS[request.param])


def test_helm_finds_nothing_to_complain_about(kubeconfig: Path) -> None:
    assert [message for message in Helm(kubeconfig, "default").lint() if message["Severity"] > 1] == []


def test_every_object_is_valid_to_the_last_field(release: Release, client: KubernetesClient) -> None:
    for document in release.every():
        client.call("POST", f"{place_of(client, document)}?dryRun=All&fieldValidation=Strict", document)


def pod_templates(release: Release) -> Iterator[tuple[Document, Document]]:
    """Yield each workload with its pod template."""
    for document in release.every():
        if document["kind"] in {"Deployment", "StatefulSet", "Job"}:
            yield document, document["spec"]["template"]


def selected(selector: Document, release: Release) -> list[str]:
    """Return the names of workloads whose pods have these labels."""
    return [
        workload["metadata"]["name"]
        for workload, template in pod_templates(release)
        if selector.items() <= template["metadata"]["labels"].items()
    ]


def test_what_selects_pods_finds_those_of_one_process(release: Release) -> None:
    for document in release.every():
        spec = document.get("spec", {})
        match document["kind"]:
            case "Service":
                selector = spec["selector"]
            case "PodDisruptionBudget" | "Deployment" | "StatefulSet":
                selector = spec["selector"]["matchLabels"]
            case "NetworkPolicy":
                selector = spec["podSelector"]["matchLabels"]
                for rule in spec.get("ingress", ()):
                    for peer in rule.get("from", ()):
                        if "podSelector" in peer:
                            assert len(selected(peer["podSelector"]["matchLabels"], release)) == 1
            case _:
                continue
        assert len(selected(selector, release)) == 1, document["metadata"]["name"]


def test_ports_are_those_of_the_containers(release: Release) -> None:
    ports = {
        template["metadata"]["labels"]["app.kubernetes.io/component"]: {one["name"] for one in container.get("ports", ())}
        for _, template in pod_templates(release)
        for container in template["spec"]["containers"]
    }
    for document in release.every():
        spec = document.get("spec", {})
        if document["kind"] == "Service":
            there = ports[spec["selector"]["app.kubernetes.io/component"]]
            assert {port["targetPort"] for port in spec["ports"]} <= there
        if document["kind"] == "NetworkPolicy":
            there = ports[spec["podSelector"]["matchLabels"]["app.kubernetes.io/component"]]
            assert {port["port"] for rule in spec.get("ingress", ()) for port in rule["ports"]} <= there
    for _, template in pod_templates(release):
        there = ports[template["metadata"]["labels"]["app.kubernetes.io/component"]]
        for container in template["spec"]["containers"]:
            probes = [probe for name, probe in container.items() if name.endswith("Probe") and "httpGet" in probe]
            assert {probe["httpGet"]["port"] for probe in probes} <= there


def test_backends_and_scraped_services_exist(release: Release) -> None:
    services = {one["metadata"]["name"]: one for one in release.every() if one["kind"] == "Service"}
    for document in release.every():
        match document["kind"]:
            case "Ingress":
                for rule in document["spec"]["rules"]:
                    for path in rule["http"]["paths"]:
                        backend = path["backend"]["service"]
                        assert backend["port"]["name"] in {one["name"] for one in services[backend["name"]]["spec"]["ports"]}
            case "HTTPRoute":
                for rule in document["spec"]["rules"]:
                    for backend in rule["backendRefs"]:
                        assert backend["port"] in {one["port"] for one in services[backend["name"]]["spec"]["ports"]}
            case "ServiceMonitor":
                wanted = document["spec"]["selector"]["matchLabels"].items()
                found = [one for one in services.values() if wanted <= one["metadata"]["labels"].items()]
                assert len(found) == 1
                named = {one["name"] for one in found[0]["spec"]["ports"]}
                assert {one["port"] for one in document["spec"]["endpoints"]} <= named
            case "PodMonitor" if document["metadata"]["name"].endswith("-operator"):
                (scraped,) = document["spec"]["podMetricsEndpoints"]
                [name] = selected(document["spec"]["selector"]["matchLabels"], release)
                [template] = [template for workload, template in pod_templates(release) if workload["metadata"]["name"] == name]
                assert scraped["port"] in {one["name"] for one in template["spec"]["containers"][0]["ports"]}
            case "PodMonitor":
                wanted = {one["key"]: one["operator"] for one in document["spec"]["selector"]["matchExpressions"]}
                assert wanted == {POOL_LABEL: "Exists"}, "what instances have, made or adopted"
                (endpoint,) = document["spec"]["podMetricsEndpoints"]
                assert endpoint["port"] == PORT_NAME, "the name that the operator gives to an engine's port"
                labels = {
                    "__meta_kubernetes_pod_label_" + re.sub("[^a-z]", "_", one) for one in (POOL_LABEL, ROLE_LABEL, ADOPTED_ROLE_LABEL)
                }
                assert {one for rule in endpoint["relabelings"] for one in rule["sourceLabels"]} == labels
            case "StatefulSet":
                assert services[document["spec"]["serviceName"]]["spec"]["clusterIP"] == "None"


def test_no_pod_may_more_than_it_needs(release: Release) -> None:
    for workload, template in pod_templates(release):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is (workload["metadata"]["name"].endswith(("-operator", "-api")))
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        claims = {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", ())}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]
            for mount in container["volumeMounts"]:
                writable = mount["name"] in claims or "emptyDir" in volumes[mount["name"]]
                assert writable is not mount.get("readOnly", False)


def test_objects_of_the_release_are_in_its_namespace_and_those_of_the_cluster_have_its_name(release: Release) -> None:
    for document in release.every():
        name = document["metadata"]["name"]
        if document["kind"] == "CustomResourceDefinition":
            assert document["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        elif document["kind"].startswith("Cluster"):
            assert name.startswith("test-fairlead-")
        elif document["kind"] == "APIService":
            assert name == "v1beta1.external.metrics.k8s.io"
        elif document.get("roleRef", {}).get("name") == "extension-apiserver-authentication-reader":
            assert document["metadata"]["namespace"] == "kube-system"
        else:
            assert document["metadata"]["namespace"] in {"rendering", "default"}
            assert name.startswith("test-fairlead-")


def test_limited_to_namespaces_it_has_no_right_in_the_cluster(render: Render) -> None:
    kinds = {document["kind"] for document in render(NAMESPACED).every()}
    assert kinds & {"ClusterRole", "ClusterRoleBinding"} == set()
    assert {"Role", "RoleBinding"} <= kinds


def test_the_notes_name_a_key_with_a_dot_as_kubectl_reads_it(render: Render) -> None:
    notes = render(merged(BUNDLED, {"gatewayKeys": {"existingSecret": "ours", "key": "keys.txt"}})).notes
    assert r"get secret ours -o jsonpath='{.data.keys\.txt}' | base64 -d" in notes


@pytest.mark.parametrize("namespaces", [[], ["rendering"]])
def test_the_right_to_get_nodes_is_given_only_where_leaving_nodes_are_looked_for(namespaces: list[str], render: Render) -> None:
    operator: Document = {"watchNamespaces": namespaces}
    wanted = render(merged(EXTERNAL, {"operator": {**operator, "leavingNodes": "terminations"}})).manifests
    made = {one["kind"]: one for one in wanted if one["metadata"]["name"].endswith("-operator-nodes")}
    assert made["ClusterRole"]["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    assert made["ClusterRoleBinding"]["roleRef"]["name"] == made["ClusterRole"]["metadata"]["name"]
    operators = [one for one in wanted if one["kind"] == "Deployment" and one["metadata"]["name"].endswith("-operator")]
    (container,) = operators[0]["spec"]["template"]["spec"]["containers"]
    assert {"name": "FAIRLEAD_LEAVING_NODES", "value": "terminations"} in container["env"]
    unwanted = render(merged(EXTERNAL, {"operator": operator})).manifests
    assert not any("nodes" in (rule.get("resources") or ()) for one in unwanted for rule in one.get("rules") or ())


def test_every_process_listens_on_ipv6_if_it_is_so_wished(render: Render) -> None:
    release = render(merged(BUNDLED, {"listenAddress": "::"}))
    assert "0.0.0.0" not in json.dumps(release.every())
    assert json.dumps(release.every()).count('"::"') == 4, "API, router, its admin port, the operator's health"


def test_a_chart_that_has_this_one_as_a_dependency_may_switch_it_on(render: Render) -> None:
    assert render(merged(BUNDLED, {"enabled": True})).every()
    with pytest.raises(HelmRefused, match="enabled"):
        render(merged(BUNDLED, {"enabled": False}))


def test_the_password_of_the_bundled_database_may_be_ones_own(render: Render) -> None:
    release = render(merged(BUNDLED, {"database": {"bundled": {"existingSecret": "ours"}}}))
    assert [one for one in release.every() if one["kind"] == "Secret" and one["metadata"]["name"].endswith("-postgres")] == []
    shown = json.dumps(release.every())
    assert shown.count('"name": "POSTGRES_PASSWORD"') == shown.count('"secretKeyRef": {"name": "ours", "key": "password"}') > 1


def test_the_migrations_job_has_annotations_of_its_own_and_an_end(render: Render) -> None:
    meshed = {"api": {"podAnnotations": {"sidecar.istio.io/inject": "true", "a": "b"}}}
    own = {
        "database": {"migrationPod": {"annotations": {"sidecar.istio.io/inject": "false"}, "labels": {"x": "y"}}, "migrationSeconds": 120}
    }
    [job] = [one for one in render(merged(EXTERNAL, meshed, own)).every() if one["kind"] == "Job"]
    pod = job["spec"]["template"]["metadata"]
    assert pod["annotations"] == {"sidecar.istio.io/inject": "false", "a": "b"}
    assert pod["labels"]["x"] == "y"
    assert job["spec"]["activeDeadlineSeconds"] == 120


def test_the_certificate_for_external_metrics_is_the_charts_own_and_kept_by_an_upgrade(render: Render) -> None:
    values = merged(BUNDLED, {"autoscalers": {"externalMetrics": {"enabled": True}}})
    made = {one["kind"]: one for one in render(values).every() if "autoscalers" in one["metadata"]["name"] or one["kind"] == "APIService"}
    data = {name: base64.b64decode(text) for name, text in made["Secret"]["data"].items()}
    assert made["APIService"]["spec"]["caBundle"] == made["Secret"]["data"]["ca.crt"]
    certificate, authority = (x509.load_pem_x509_certificate(data[name]) for name in ("tls.crt", "ca.crt"))
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
    service = made["APIService"]["spec"]["service"]
    assert f"{service['name']}.{service['namespace']}.svc" in names, "the name by which the Kubernetes API asks"
    assert [one["port"] for one in made["Service"]["spec"]["ports"]] == [service["port"]]


WRONG: dict[str, tuple[Document, str]] = {
    "a certificate for external metrics that nobody can judge": (
        merged(BUNDLED, {"autoscalers": {"externalMetrics": {"enabled": True}, "tls": {"existingSecret": "cert"}}}), "autoscalers.tls.caBundle"
    ),
    "no database": ({}, "name a Secret that holds the URL of a Postgres"),
    "two databases": (merged(BUNDLED, EXTERNAL), "choose one of"),
    "an identity provider without its address": (merged(BUNDLED, {"api": {"login": "oidc"}}), "api.login: oidc needs"),
    "a client's secret among the settings": (merged(BUNDLED, {"api": {"settings": {"FAIRLEAD_OIDC_CLIENT_SECRET": "x"}}}), "FAIRLEAD_OIDC_CLIENT_SECRET"),
    "an unknown value": (BUNDLED | {"replicas": 3}, "replicas"),
    "an unknown setting": (merged(BUNDLED, {"router": {"settings": {"FAIRLEAD_MAX_RETRYS": 3}}}), "FAIRLEAD_MAX_RETRYS"),
    "a setting that the chart makes": (merged(BUNDLED, {"router": {"settings": {"FAIRLEAD_API_URL": "http://x"}}}), "FAIRLEAD_API_URL"),
    "a setting out of bounds": (merged(BUNDLED, {"api": {"settings": {"FAIRLEAD_KEEP_EVENTS_DAYS": 0}}}), "FAIRLEAD_KEEP_EVENTS_DAYS"),
    "a setting among the other variables": (merged(BUNDLED, {"api": {"environment": {"FAIRLEAD_KEEP_EVENTS_DAYS": "9"}}}), "FAIRLEAD_KEEP_EVENTS_DAYS"),
    "a variable that the chart makes": (merged(BUNDLED, {"api": {"environment": {"ADMIN_TOKEN": "x"}}}), "ADMIN_TOKEN"),
    "no name of a variable": (merged(BUNDLED, {"api": {"environment": {"ssl-cert": "x"}}}), "ssl-cert"),
    "a name that no Service can have": (merged(BUNDLED, {"fullnameOverride": "9fair"}), "fullnameOverride"),
    "a label that selects pods": (merged(BUNDLED, {"commonLabels": {"app.kubernetes.io/name": "x"}}), "app.kubernetes.io/name"),
    "a pods' label that selects them": (merged(BUNDLED, {"api": {"podLabels": {"app.kubernetes.io/component": "x"}}}), "app.kubernetes.io/component"),
    "a label with a space": (merged(BUNDLED, {"commonLabels": {"team": "a b"}}), "commonLabels/team"),
    "a route to the API without a gateway": (merged(BUNDLED, {"api": {"publicUrl": "https://x", "httpRoute": {"enabled": True}}}), "api.httpRoute.parentRefs"),
    "a route to the routers without a gateway": (merged(BUNDLED, {"router": {"httpRoute": {"enabled": True}}}), "router.httpRoute.parentRefs"),
    "a registry with a scheme": (merged(BUNDLED, {"imageRegistry": "https://registry.example.com"}), "imageRegistry"),
    "no name of an image": (merged(BUNDLED, {"operator": {"engineImage": "foo: bar"}}), "operator/engineImage"),
    "a tag that no image can have": (merged(BUNDLED, {"router": {"image": {"tag": ".x"}}}), "router/image/tag"),
    "an address with capitals": (merged(BUNDLED, {"api": {"publicUrl": "https://Ops.example.com"}}), "api/publicUrl"),
    "an Ingress of an IP address": (merged(BUNDLED, {"api": {"publicUrl": "https://10.0.0.1", "ingress": {"enabled": True}}}), "10.0.0.1 is an address"),
    "an Ingress of the routers of an IP address": (merged(BUNDLED, {"router": {"ingress": {"enabled": True, "host": "10.0.0.1"}}}), "router/ingress/host"),
    "a port that the routers use": (merged(BUNDLED, {"router": {"settings": {"FAIRLEAD_PICKER_HEALTH_PORT": 9101}, "processes": 2}}), "the routers use 9101"),
    "an Ingress without an address": (merged(BUNDLED, {"api": {"ingress": {"enabled": True}}}), "api.publicUrl"),
    "an Ingress of the routers without a host": (merged(BUNDLED, {"router": {"ingress": {"enabled": True}}}), "router.ingress.host"),
}  # fmt: skip


@pytest.mark.parametrize(("values", "said"), WRONG.values(), ids=WRONG.keys())
def test_wrong_values_are_refused_with_what_is_wrong(values: dict[str, Any], said: str, render: Render) -> None:
    with pytest.raises(HelmRefused, match=said):
        render(values)

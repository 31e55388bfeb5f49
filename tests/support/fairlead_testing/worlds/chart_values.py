"""Values of the chart, and definitions of objects of others that it can make."""

from typing import Any


def _definition(group: str, kind: str, plural: str, scope: str = "Namespaced") -> dict[str, Any]:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": free}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


FOREIGN_DEFINITIONS = (
    _definition("monitoring.coreos.com", "ServiceMonitor", "servicemonitors"),
    _definition("monitoring.coreos.com", "PodMonitor", "podmonitors"),
    _definition("monitoring.coreos.com", "PrometheusRule", "prometheusrules"),
    _definition("gateway.networking.k8s.io", "HTTPRoute", "httproutes"),
    _definition("apiregistration.k8s.io", "APIService", "apiservices", "Cluster"),
)
"""Only so that their objects are taken: their schemas are not here."""

BUNDLED: dict[str, Any] = {"database": {"bundled": {"enabled": True}}}
"""A trial: the least that the chart asks for."""

EXTERNAL: dict[str, Any] = {"database": {"existingSecret": {"name": "pg-app"}}}

OIDC: dict[str, Any] = {
    "api": {
        "login": "oidc",
        "oidcClientSecret": {"name": "oidc-client"},
        "settings": {
            "FAIRLEAD_OIDC_ISSUER": "https://id.example.com",
            "FAIRLEAD_OIDC_CLIENT_ID": "fairlead",
            "FAIRLEAD_OIDC_GROUPS": "admin:platform,operator@team-a:ml-team",
        },
    }
}
"""People sign in at an identity provider."""

_DOORS = {
    "ingress": {"enabled": True, "className": "nginx", "annotations": {"a": "b"}, "tlsSecret": "cert"},
    "httpRoute": {"enabled": True, "annotations": {"a": "b"}, "parentRefs": [{"name": "gateway", "namespace": "infra"}]},
}
_PEER = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "infra"}}}]

EVERYTHING: dict[str, Any] = {
    **EXTERNAL,
    "api": {"publicUrl": "https://ops.example.com/fairlead", **_DOORS},
    "router": {
        "ingress": {**_DOORS["ingress"], "host": "llm.example.com"},
        "httpRoute": {**_DOORS["httpRoute"], "hostnames": ["llm.example.com"]},
        "spool": {"persistent": True},
        "kvEvents": {"enabled": True},
        "picker": {"enabled": True, "tlsSecret": "picker-cert"},
    },
    "networkPolicy": {
        "enabled": True,
        "monitoring": _PEER,
        "apiClients": _PEER,
        "routerClients": _PEER,
        "pickerClients": _PEER,
        "kvEventsEngines": _PEER,
        "scalerClients": _PEER,
    },
    "autoscalers": {
        "scaler": {"enabled": True},
        "externalMetrics": {"enabled": True},
        "tls": {"existingSecret": "autoscalers-cert", "caBundle": "-----BEGIN CERTIFICATE-----"},
    },
    "monitoring": {
        "serviceMonitors": {"enabled": True},
        "podMonitor": {"enabled": True},
        "rules": {"enabled": True},
        "dashboard": {"enabled": True},
    },
}
"""Whatever can be switched on, with a Postgres of one's own."""


def merged(*layers: dict[str, Any]) -> dict[str, Any]:
    """The values of all layers, as Helm merges them: later ones win, maps are merged."""
    result: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            before = result.get(name)
            result[name] = merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return result

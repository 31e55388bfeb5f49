"""Values of the chart, and the CRDs of other projects for which the chart can create objects."""

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
"""CRDs without the real schemas: they only make the API accept objects of these kinds."""

BUNDLED: dict[str, Any] = {"database": {"bundled": {"enabled": True}}}
"""The values of a trial installation, which are the least that the chart demands."""

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
"""Values with which people sign in at an identity provider."""

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
"""Values that enable every feature of the chart, with an external Postgres."""


def merged(*layers: dict[str, Any]) -> dict[str, Any]:
    """Return the values of all layers, merged as Helm does: later layers win, and maps are merged key by key."""
    result: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            before = result.get(name)
            result[name] = merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return result

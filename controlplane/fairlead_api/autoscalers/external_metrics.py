"""Makes the documents of `external.metrics.k8s.io/v1beta1`, which a HorizontalPodAutoscaler reads."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.selectors import ExpressionSpec
from fairlead_api.autoscalers.figures import WINDOWS, Sample

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
GROUP_VERSION = f"{GROUP}/{VERSION}"

_VERSION = {"groupVersion": GROUP_VERSION, "version": VERSION}
_GROUP = {"name": GROUP, "versions": [_VERSION], "preferredVersion": _VERSION}

DISCOVERY: Mapping[str, Mapping[str, Any]] = {
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_GROUP]},
    f"/apis/{GROUP}": {"kind": "APIGroup", "apiVersion": "v1", **_GROUP},
    f"/apis/{GROUP_VERSION}": {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": GROUP_VERSION,
        "resources": [
            {"name": metric, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
            for metric in WINDOWS
        ],
    },
}
"""Documents that list the available metrics, by URL path."""

_LIST = "io.k8s.metrics.pkg.apis.external_metrics.v1beta1.ExternalMetricValueList"


def _operation(metric: str) -> Mapping[str, Any]:
    text = {"type": "string", "required": True}
    return {
        "get": {
            "operationId": f"list_{metric}",
            "description": f"the series of {metric} in a namespace, by pool",
            "produces": ["application/json"],
            "parameters": [
                {"name": "namespace", "in": "path", **text},
                {"name": "labelSelector", "in": "query", "type": "string", "description": "such as pool=chat,role=both"},
            ],
            "responses": {"200": {"description": "OK", "schema": {"$ref": f"#/definitions/{_LIST}"}}},
        }
    }


_ITEM_FIELDS: Mapping[str, Any] = {
    "metricName": {"type": "string"},
    "metricLabels": {"type": "object", "additionalProperties": {"type": "string"}},
    "timestamp": {"type": "string", "format": "date-time"},
    "window": {"type": "integer", "format": "int64", "description": "seconds that the value is of"},
    "value": {"type": "string", "description": "a quantity, such as 7 or -50m"},
}

OPENAPI: Mapping[str, Any] = {
    "swagger": "2.0",
    "info": {"title": "Fairlead's external metrics", "version": VERSION},
    "paths": {f"/apis/{GROUP_VERSION}/namespaces/{{namespace}}/{metric}": _operation(metric) for metric in WINDOWS},
    "definitions": {
        _LIST: {
            "description": "the series of an external metric",
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"type": "object"},
                "items": {"type": "array", "items": {"type": "object", "properties": _ITEM_FIELDS}},
            },
            "x-kubernetes-group-version-kind": [{"group": GROUP, "version": VERSION, "kind": "ExternalMetricValueList"}],
        }
    },
}
"""The API's description in OpenAPI 2, from which the API server derives version 3. Without it, kube-aggregator 1.36
logs an error and requests the description again and again.
"""

DOCUMENTS: Mapping[str, Mapping[str, Any]] = {**DISCOVERY, "/openapi/v2": OPENAPI}
"""Documents without figures, by URL path."""


def metric_at(path: str) -> tuple[str, str] | None:
    """Return the namespace and metric that a URL path names; None if it is not the path of a metric."""
    match path.removeprefix(f"/apis/{GROUP_VERSION}/").split("/"):
        case ["namespaces", namespace, metric] if namespace and metric and path.startswith(f"/apis/{GROUP_VERSION}/"):
            return namespace, metric
    return None


def value_list(samples: Sequence[Sample], metric: str, selector: str, at: datetime) -> Mapping[str, Any]:
    """Return the list of the metric's series that match the selector. Raises InvalidInput for a malformed selector."""
    requirements = parsed(selector)
    chosen = [one for one in samples if one.metric == metric and holds(requirements, one.labels)]
    return {
        "kind": "ExternalMetricValueList",
        "apiVersion": GROUP_VERSION,
        "metadata": {},
        "items": [_item(one, at) for one in chosen],
    }


def _item(sample: Sample, at: datetime) -> Mapping[str, Any]:
    window = WINDOWS[sample.metric]
    return {
        "metricName": sample.metric,
        "metricLabels": sample.labels,
        "timestamp": at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **({} if window is None else {"window": window}),
        "value": quantity(sample.value),
    }


def quantity(value: float) -> str:
    """Format a number as a Kubernetes quantity, rounded to thousandths: 3, -50m."""
    thousandths = round(value * 1000)
    return f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000)


_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    503: "ServiceUnavailable",
}


def status(code: int, message: str, **details: Any) -> Mapping[str, Any]:
    """Return a refusal in the form of a Kubernetes Status."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS[code],
        **({"details": details} if details else {}),
        "code": code,
    }


_NAME = r"[A-Za-z0-9][-A-Za-z0-9_./]*"
_VALUE = re.compile(r"[-A-Za-z0-9_.]*")
_EQUAL = re.compile(rf"({_NAME})\s*(==|=|!=)\s*({_VALUE.pattern})")
_SET = re.compile(rf"({_NAME})\s+(in|notin)\s+\(([^()]*)\)")
_EXISTS = re.compile(rf"(!?)\s*({_NAME})")
"""Patterns for the kinds of requirements in a label selector, without surrounding blanks. In each pattern, two adjacent
repetitions never match the same character. Otherwise, matching a short text could take hours.
"""


def parsed(text: str) -> Sequence[ExpressionSpec]:
    """Return the requirements of a label selector, all of which must hold; no requirements for an empty selector.
    Raises InvalidInput.
    """
    found, rest = [], text.strip()
    while rest:
        requirement, end = _first(rest, text)
        found.append(requirement)
        after = rest[end:].lstrip()
        rest = after[1:].lstrip()
        if after and not (after.startswith(",") and rest):
            raise _unreadable(text)
    return found


def holds(requirements: Sequence[ExpressionSpec], labels: Mapping[str, str]) -> bool:
    """Return whether these labels meet all requirements."""
    return all(one.holds(labels) for one in requirements)


def _first(rest: str, text: str) -> tuple[ExpressionSpec, int]:
    """Return the first requirement in `rest`, and the position in `rest` at which it ends. `text` is the whole
    selector, for messages.
    """
    if matched := _SET.match(rest):
        key, operator, written = matched.groups()
        values = tuple(value.strip() for value in written.split(","))
        if all(map(_VALUE.fullmatch, values)):
            return ExpressionSpec(key=key, operator="In" if operator == "in" else "NotIn", values=values), matched.end()
    elif matched := _EQUAL.match(rest):
        key, operator, value = matched.groups()
        return ExpressionSpec(key=key, operator="NotIn" if operator == "!=" else "In", values=(value,)), matched.end()
    elif matched := _EXISTS.match(rest):
        absent, key = matched.groups()
        return ExpressionSpec(key=key, operator="DoesNotExist" if absent else "Exists", values=()), matched.end()
    raise _unreadable(text)


def _unreadable(text: str) -> InvalidInput:
    return InvalidInput("labelSelector", text[:200], "write requirements such as pool=chat,role in (prefill,decode)")

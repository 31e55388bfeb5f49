"""The label selectors of built-in kinds are checked before they are stored, because controllers read them."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from processkube.kubernetes_api.collecting.disruption import measure
from processkube.kubernetes_api.kinds.kinds import ResourceKind
from processkube.kubernetes_api.kinds.registry import Registry
from processkube.kubernetes_api.objects.errors import Invalid
from processkube.kubernetes_api.storing.store import Store
from processkube.kubernetes_api.writing.resources import Resources, WriteOptions

OPTIONS = WriteOptions(field_manager="test")
CONTAINERS = {"containers": [{"name": "c", "image": "i:1"}]}
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": CONTAINERS}
JOB = {"template": {"spec": {**CONTAINERS, "restartPolicy": "Never"}}}
BUDGETS = ("policy", "poddisruptionbudgets")


@pytest.fixture
def resources() -> Resources:
    made = Resources(Store(Path(":memory:")), Registry(), lambda: datetime(2026, 1, 1, tzinfo=UTC), random.Random(1))
    made.create(kind(made, "", "namespaces"), "", {"metadata": {"name": "d"}}, OPTIONS)
    return made


def kind(resources: Resources, group: str, plural: str) -> ResourceKind:
    found = resources.registry.find(group, "v1", plural)
    assert found is not None
    return found


def faults(resources: Resources, group: str, plural: str, spec: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the field and message of each fault for which an object of this spec is refused."""
    with pytest.raises(Invalid) as refusal:
        resources.create(kind(resources, group, plural), "d", {"metadata": {"name": "a"}, "spec": spec}, OPTIONS)
    assert refusal.value.details is not None
    return [(cause["field"], cause["message"]) for cause in refusal.value.details["causes"]]


@pytest.mark.parametrize(
    ("term", "field", "why"),
    [
        ({"key": "app", "operator": "in", "values": ["a"]}, "operator", 'Invalid value: "in": not a valid selector operator'),
        ({"key": "app", "operator": "In"}, "values", "Required value: must be specified when `operator` is 'In' or 'NotIn'"),
        (
            {"key": "app", "operator": "Exists", "values": ["a"]},
            "values",
            "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        ({"key": "not a key", "operator": "Exists"}, "key", 'Invalid value: "not a key": name part must consist of'),
        ({"key": "app", "operator": "NotIn", "values": ["a", "not ok"]}, "values[1]", 'Invalid value: "not ok": a valid label must be'),
    ],
)
def test_each_term_of_a_selector_is_checked(resources: Resources, term: dict[str, Any], field: str, why: str) -> None:
    ((where, message),) = faults(resources, *BUDGETS, {"minAvailable": 1, "selector": {"matchExpressions": [term]}})
    assert where == f"spec.selector.matchExpressions[0].{field}"
    assert message.startswith(why)


def test_the_labels_of_a_selector_are_checked(resources: Resources) -> None:
    ((where, _),) = faults(resources, *BUDGETS, {"minAvailable": 1, "selector": {"matchLabels": {"app": "not ok"}}})
    assert where == "spec.selector.matchLabels"


@pytest.mark.parametrize(
    ("group", "plural", "path", "spec"),
    [
        (*BUDGETS, "spec.selector", {"minAvailable": 1}),
        ("apps", "deployments", "spec.selector", {"template": TEMPLATE}),
        ("apps", "replicasets", "spec.selector", {"template": TEMPLATE}),
        ("apps", "statefulsets", "spec.selector", {"template": TEMPLATE, "serviceName": "a"}),
        ("batch", "jobs", "spec.selector", JOB),
        ("networking.k8s.io", "networkpolicies", "spec.podSelector", {}),
        ("networking.k8s.io", "networkpolicies", "spec.ingress[0].from[0].podSelector", {"podSelector": {}}),
        ("networking.k8s.io", "networkpolicies", "spec.egress[0].to[0].namespaceSelector", {"podSelector": {}}),
    ],
)
def test_a_mistyped_operator_is_refused_wherever_labels_are_selected(
    resources: Resources, group: str, plural: str, path: str, spec: dict[str, Any]
) -> None:
    wrong: Any = {"matchExpressions": [{"key": "app", "operator": "in", "values": ["a"]}]}
    for step in reversed(path.split(".")[1:]):
        wrong = {step.removesuffix("[0]"): [wrong] if step.endswith("[0]") else wrong}
    assert [where for where, _ in faults(resources, group, plural, {**spec, **wrong})] == [f"{path}.matchExpressions[0].operator"]


def test_a_job_selects_by_what_the_server_made_and_by_nothing_else(resources: Resources) -> None:
    found = faults(resources, "batch", "jobs", {**JOB, "selector": {"matchLabels": {"app": "a"}}})
    assert [(where, message.rpartition(": ")[2]) for where, message in found] == [("spec.selector", "`selector` not auto-generated")]
    asked = {"metadata": {"name": "a"}, "spec": {**JOB, "selector": {"matchLabels": {"job-name": "a"}}}}
    made = resources.create(kind(resources, "batch", "jobs"), "d", asked, OPTIONS).object
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"]["matchLabels"] == {"job-name": "a", "batch.kubernetes.io/controller-uid": uid}


def test_a_budget_without_a_selector_is_for_no_pod(resources: Resources) -> None:
    resources.create(kind(resources, "", "pods"), "d", {"metadata": {"name": "a"}, "spec": CONTAINERS}, OPTIONS)
    spec = {"minAvailable": 1}
    assert measure(resources, {"metadata": {"namespace": "d"}, "spec": spec}).expected == 0
    assert measure(resources, {"metadata": {"namespace": "d"}, "spec": {**spec, "selector": {}}}).expected == 1

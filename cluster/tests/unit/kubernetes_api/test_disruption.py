"""Statuses of budgets follow each change of a pod or a budget, though only affected budgets are recounted."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from processkube.kubernetes_api.collecting.deleting import DeleteOptions, delete
from processkube.kubernetes_api.collecting.disruption import BUDGETS, DisruptionController, measure
from processkube.kubernetes_api.kinds.kinds import ResourceKind
from processkube.kubernetes_api.kinds.registry import Registry
from processkube.kubernetes_api.storing.store import Store
from processkube.kubernetes_api.writing.patches import merge_patch
from processkube.kubernetes_api.writing.resources import Resources, WriteOptions

OPTIONS = WriteOptions(field_manager="test")
NAMESPACES = ("one", "two")
NAMES = ("a", "b", "c")
LABELS: dict[str, dict[str, str]] = {"red": {"app": "red"}, "blue": {"app": "blue"}, "both": {"app": "red", "tier": "x"}, "none": {}}
SELECTORS: dict[str, dict[str, Any]] = {
    "red": {"matchLabels": {"app": "red"}},
    "red of x": {"matchLabels": {"tier": "x", "app": "red"}},
    "any colour": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["red", "blue"]}]},
    "all": {},
}


class Cluster:
    """A store with pods and budgets, and the controller under test."""

    def __init__(self) -> None:
        self.resources = Resources(Store(Path(":memory:")), Registry(), lambda: datetime(2026, 1, 1, tzinfo=UTC), random.Random(1))
        for name in NAMESPACES:
            self.resources.create(self.kind("", "namespaces"), "", {"metadata": {"name": name}}, OPTIONS)
        self.controller = DisruptionController(self.resources)

    def kind(self, group: str, plural: str) -> ResourceKind:
        found = self.resources.registry.find(group, "v1", plural)
        assert found is not None
        return found

    def write(self, kind: ResourceKind, namespace: str, name: str, body: dict[str, Any]) -> None:
        """Create the object, or change what the body names."""
        if self.resources.store.get(kind.storage, namespace, name) is None:
            self.resources.create(kind, namespace, {"metadata": {"name": name, **body.pop("metadata", {})}, **body}, OPTIONS)
        else:
            self.resources.update(kind, namespace, name, lambda old: merge_patch(old, body), OPTIONS)

    def pod(self, namespace: str, name: str, labels: str, *, ready: bool) -> None:
        kind = self.kind("", "pods")
        absent = {"app": None, "tier": None} if self.resources.store.get("pods", namespace, name) else {}
        body: dict[str, Any] = {"metadata": {"labels": {**absent, **LABELS[labels]}}}
        self.write(kind, namespace, name, body if absent else {**body, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
        status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}}
        self.resources.update(kind, namespace, name, lambda old: merge_patch(old, status), OPTIONS, subresource="status")

    def budget(self, namespace: str, name: str, selector: str, least: int) -> None:
        kind = self.kind("policy", "poddisruptionbudgets")
        if self.resources.store.get(BUDGETS, namespace, name) is not None:
            self.write(kind, namespace, name, {"spec": {"minAvailable": least}})
        else:
            self.write(kind, namespace, name, {"spec": {"minAvailable": least, "selector": SELECTORS[selector]}})

    def remove(self, namespace: str, name: str, *, budget: bool) -> None:
        kind = self.kind("policy", "poddisruptionbudgets") if budget else self.kind("", "pods")
        if self.resources.store.get(kind.storage, namespace, name) is not None:
            delete(self.resources, kind, namespace, name, DeleteOptions(grace_seconds=0))

    def untrue(self) -> list[str]:
        """Return the budgets whose status differs from a new count."""
        return [
            stored.name
            for stored in self.resources.store.list(BUDGETS)
            if stored.object.get("status")
            != measure(self.resources, stored.object).as_status(stored.object["metadata"].get("generation", 0))
        ]


places = st.tuples(st.sampled_from(NAMESPACES), st.sampled_from(NAMES))
steps = st.one_of(
    st.tuples(st.just("pod"), places, st.sampled_from(sorted(LABELS)), st.booleans()),
    st.tuples(st.just("budget"), places, st.sampled_from(sorted(SELECTORS)), st.integers(0, 3)),
    st.tuples(st.just("remove"), places, st.booleans(), st.none()),
)


@given(st.lists(steps, max_size=25))
def test_every_status_tells_the_pods_there_are(history: list[tuple[str, tuple[str, str], Any, Any]]) -> None:
    cluster = Cluster()
    for step, place, first, second in history:
        match step:
            case "pod":
                cluster.pod(*place, first, ready=second)
            case "budget":
                cluster.budget(*place, first, second)
            case "remove":
                cluster.remove(*place, budget=first)
        cluster.controller.refresh()
        assert cluster.untrue() == []


def test_a_controller_that_starts_counts_for_the_budgets_it_finds() -> None:
    cluster = Cluster()
    cluster.budget("one", "a", "red", 1)
    cluster.pod("one", "a", "red", ready=True)
    DisruptionController(cluster.resources).refresh()
    assert cluster.untrue() == []

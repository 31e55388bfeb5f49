"""PodDisruptionBudgets: computes how many pods may be disrupted, decides whether one more pod may be evicted, and
writes the budgets' status.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass

from processkube.kubernetes_api.objects.errors import ApiError, TooManyRequests
from processkube.kubernetes_api.objects.objects import Object, at_path, copy_of
from processkube.kubernetes_api.objects.selectors import LabelSelector, selector_of_object
from processkube.kubernetes_api.storing.representations import scale_of
from processkube.kubernetes_api.storing.selector_index import SelectorIndex
from processkube.kubernetes_api.storing.store import EventType, Key, Stored, StoredChange
from processkube.kubernetes_api.writing.pods import FINISHED, is_ready
from processkube.kubernetes_api.writing.resources import Resources

BUDGETS = "poddisruptionbudgets.policy"
_SETTLE_SECONDS = 0.05


class TooManyBudgets(ApiError):
    code, reason = 500, ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The numbers of pods of one PodDisruptionBudget at present."""

    expected: int
    healthy: int
    desired: int

    @property
    def allowed(self) -> int:
        return max(0, self.healthy - self.desired) if self.expected else 0

    def as_status(self, generation: int) -> Object:
        enough = self.allowed > 0
        return {
            "observedGeneration": generation,
            "disruptionsAllowed": self.allowed,
            "currentHealthy": self.healthy,
            "desiredHealthy": self.desired,
            "expectedPods": self.expected,
            "conditions": [
                {
                    "type": "DisruptionAllowed",
                    "status": "True" if enough else "False",
                    "reason": "SufficientPods" if enough else "InsufficientPods",
                    "message": "",
                    "observedGeneration": generation,
                }
            ],
        }


def measure(resources: Resources, budget: Object) -> Budget:
    """Return the numbers of pods for a budget.

    The expected number is the number of pods that the pods' controllers want, even if some pods are missing. If
    `minAvailable` is a number, the expected number is the number of existing pods instead.
    """
    spec = budget.get("spec", {})
    selector = selector_of_object(spec.get("selector"))
    namespace = budget["metadata"]["namespace"]
    pods = [
        stored.object
        for stored in resources.store.list("pods", namespace, selector.label())
        if selector.matches(stored.object["metadata"].get("labels")) and at_path(stored.object, "status", "phase") not in FINISHED
    ]
    healthy = sum(is_ready(pod) and not pod["metadata"].get("deletionTimestamp") for pod in pods)
    if isinstance(least := spec.get("minAvailable"), int):
        return Budget(expected=len(pods), healthy=healthy, desired=least)
    expected = _expected(resources, pods)
    if least is not None:
        return Budget(expected=expected, healthy=healthy, desired=_share(least, expected))
    most = spec.get("maxUnavailable", 0)
    unavailable = most if isinstance(most, int) else _share(most, expected)
    return Budget(expected=expected, healthy=healthy, desired=max(0, expected - unavailable))


def _share(percent: str, of: int) -> int:
    return math.ceil(int(percent.rstrip("%")) * of / 100)


def _expected(resources: Resources, pods: Iterable[Object]) -> int:
    """Return the number of pods that the controllers of these pods want.

    A pod without a controller counts as one. If a controller has no scale, its existing pods are counted.
    """
    total = 0
    by_controller: dict[str, int] = {}
    for pod in pods:
        owner = next((one for one in pod["metadata"].get("ownerReferences", ()) if one.get("controller")), None)
        if owner is None:
            total += 1
        else:
            by_controller[owner["uid"]] = by_controller.get(owner["uid"], 0) + 1
    for uid, count in by_controller.items():
        stored = resources.store.by_uid(uid)
        kind = resources.registry.by_storage(stored.resource) if stored else None
        if stored is not None and kind is not None and kind.scale is not None:
            total += int(scale_of(kind.scale, stored.object)["spec"]["replicas"])
        else:
            total += count
    return total


def refuse_violation(resources: Resources, pod: Stored) -> None:
    """Raise TooManyRequests if the eviction of this pod would violate its budget."""
    if at_path(pod.object, "status", "phase") in {*FINISHED, "Pending"} or pod.object["metadata"].get("deletionTimestamp"):
        return
    labels = pod.object["metadata"].get("labels")
    budgets = [stored for stored in resources.store.list(BUDGETS, pod.namespace) if _selector(stored).matches(labels)]
    if len(budgets) > 1:
        raise TooManyBudgets("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
    for stored in budgets:
        budget = measure(resources, stored.object)
        policy = at_path(stored.object, "spec", "unhealthyPodEvictionPolicy", default="IfHealthyBudget")
        if not is_ready(pod.object) and (policy == "AlwaysAllow" or budget.healthy >= budget.desired > 0):
            continue
        if budget.allowed < 1:
            message = f"The disruption budget {stored.name} needs {budget.desired} healthy pods and has {budget.healthy} currently"
            if budget.healthy > budget.desired:
                message = f"The disruption budget {stored.name} does not allow evicting pods currently"
            raise TooManyRequests(
                "Cannot evict pod as it would violate the pod's disruption budget.",
                details={"causes": [{"reason": "DisruptionBudget", "message": message}]},
            )


class DisruptionController:
    """Keeps the status of all budgets up to date. `run` must run as a task; it ends only when cancelled.

    When a pod changes, two kinds of budgets are updated, as in Kubernetes' own controller: the budgets that select the
    pod after the change, and the budgets that selected it before.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._store = resources.store
        self._selectors = SelectorIndex()
        self._concerned: set[Key] = set()
        for stored in self._store.list(BUDGETS):
            self._note_budget(stored.key, _selector(stored))
        self._wake = asyncio.Event()
        self._wake.set()
        self._unsubscribe = self._store.subscribe(self._note)

    async def run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                await asyncio.sleep(_SETTLE_SECONDS)  # a burst of pod changes becomes one update
                self._wake.clear()
                self.refresh()
        finally:
            self._unsubscribe()

    def refresh(self) -> None:
        """Write the status of all budgets for which something has changed since the previous call."""
        concerned, self._concerned = sorted(self._concerned), set()
        for namespace, name in concerned:
            if (stored := self._store.get(BUDGETS, namespace, name)) is not None:
                self._refresh(stored)

    def _note(self, change: StoredChange) -> None:
        if change.now.resource == BUDGETS:
            self._note_budget(change.now.key, None if change.type is EventType.DELETED else _selector(change.now))
        elif change.now.resource == "pods":
            for stored in (change.before, change.now):
                self._concerned.update(self._selectors.matching(stored.namespace, dict(stored.labels())) if stored is not None else ())
        if self._concerned:
            self._wake.set()

    def _note_budget(self, key: Key, selector: LabelSelector | None) -> None:
        """Record a budget's selector; None if the budget was deleted."""
        self._selectors.note(key, selector)
        self._concerned.add(key)

    def _refresh(self, stored: Stored) -> None:
        item: Object = copy_of(stored.object)
        status = measure(self._resources, item).as_status(item["metadata"].get("generation", 0))
        if item.get("status") != status:
            item["status"] = status
            self._store.put(stored.resource, stored.namespace, stored.name, item)


def _selector(budget: Stored) -> LabelSelector:
    return selector_of_object(at_path(budget.object, "spec", "selector"))

"""The controller of an object, and the objects that a controller adopts or releases by its selector."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from processkube.kubernetes_api.objects.objects import Object, copy_of
from processkube.kubernetes_api.objects.selectors import LabelSelector
from processkube.kubernetes_api.workloads.plans import Change
from processkube.kubernetes_api.workloads.pod_states import is_deleted


def controller_of(item: Object) -> Object | None:
    """Return the owner reference to the object's controller; None if it has no controller."""
    return next((one for one in item["metadata"].get("ownerReferences", ()) if one.get("controller")), None)


def is_controlled_by(item: Object, owner: Object) -> bool:
    reference = controller_of(item)
    return reference is not None and bool(reference["uid"] == owner["metadata"]["uid"])


def reference_to(owner: Object) -> Object:
    """Return the owner reference that names `owner` as an object's controller."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The objects that belong to a controller after the claim, and the writes that the claim needs: they adopt or
    release objects.
    """

    items: tuple[Object, ...]
    writes: tuple[Change, ...] = ()


def claim(owner: Object, selector: LabelSelector, candidates: Iterable[Object]) -> Claimed:
    """Return the objects that `owner` controls. Objects that its selector matches and that have no controller are
    adopted.

    An object that the owner controls, but that its selector no longer matches, is released. An owner that is being
    deleted neither adopts nor releases objects.
    """
    kept: list[Object] = []
    writes: list[Change] = []
    for item in candidates:
        fits = selector.matches(item["metadata"].get("labels"))
        if is_controlled_by(item, owner):
            if fits:
                kept.append(item)
            elif not (is_deleted(owner) or is_deleted(item)):
                writes.append(Change(item=_released(item, owner)))
        elif fits and controller_of(item) is None and not is_deleted(owner) and not is_deleted(item):
            adopted: Object = copy_of(item)
            adopted["metadata"].setdefault("ownerReferences", []).append(reference_to(owner))
            kept.append(adopted)
            writes.append(Change(item=adopted))
    return Claimed(items=tuple(kept), writes=tuple(writes))


def _released(item: Object, owner: Object) -> Object:
    released: Object = copy_of(item)
    references = released["metadata"].pop("ownerReferences")
    if others := [one for one in references if one["uid"] != owner["metadata"]["uid"]]:
        released["metadata"]["ownerReferences"] = others
    return released

"""Reads InferenceObjectives: priority classes that teams declare for a pool in separate objects. Pure.

InferenceObjectives come from GAIE and moved to llm-d's API group in its version 1.6; both groups are read. Requests
name these classes in the same way as the classes of `spec.priorityClasses`, and routers treat both alike.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.gateway_specs import GATEWAY_GROUP
from fairlead.pools import GROUP, KIND
from fairlead.tables import CLASS_NAME, DEFAULT_CLASS, MAX_PRIORITY_CLASSES, PriorityClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """The classes that a pool's objectives declare, and a line for each objective without effect, with the reason."""

    classes: tuple[PriorityClass, ...] = ()
    unused: tuple[str, ...] = ()


NO_OBJECTIVES = Objectives()


def is_of(document: Mapping[str, Any], pool: str) -> bool:
    """Return whether an objective belongs to this pool: it names the GAIE InferencePool of the same name, or the pool
    itself.
    """
    told = (document.get("spec") or {}).get("poolRef") or {}
    group, kind = told.get("group", GATEWAY_GROUP), told.get("kind", KIND)
    return bool(kind == KIND and group in {GATEWAY_GROUP, GROUP} and told.get("name") == pool)


def read_objectives(documents: Iterable[Mapping[str, Any]], pool: str, declared: Iterable[PriorityClass]) -> Objectives:
    """Return the priority classes that InferenceObjectives declare for a pool. If several classes have the same name,
    only one is used; the pool's own classes come first. Two objectives with the same name and priority are not reported
    as a conflict, because both API groups may contain the same objective while a cluster migrates.
    """
    own = {one.name for one in declared}
    found: dict[str, PriorityClass] = {}
    unused = []
    for document in sorted((one for one in documents if is_of(one, pool)), key=lambda one: str(one["metadata"]["name"])):
        name = str(document["metadata"]["name"])
        fresh = PriorityClass(name=name, priority=int(document["spec"].get("priority") or 0))
        if name in own:
            unused.append(f"{name}: spec.priorityClasses declares a class of this name, which takes precedence; rename one")
        elif name == DEFAULT_CLASS:
            unused.append(f"{name}: this is the class of requests without a class; rename the objective")
        elif re.fullmatch(CLASS_NAME, name) is None:
            unused.append(f"{name}: has a dot or more than 63 characters; rename the objective")
        elif name in found and found[name] != fresh:
            unused.append(f"{name}: another objective of this name has priority {found[name].priority}; remove one")
        elif name not in found and len(own) + len(found) >= MAX_PRIORITY_CLASSES:
            unused.append(f"{name}: a pool has at most {MAX_PRIORITY_CLASSES} classes; remove one")
        else:
            found.setdefault(name, fresh)
    return Objectives(classes=tuple(found.values()), unused=tuple(unused))

"""Revisions of a pool: the part of its spec that a rollout brings to the instances, and how to roll back to a revision.

The operator keeps the last revisions as ControllerRevision objects; their `data` is the result of `revision_data`.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_TEMPLATES = ("template", "nodes", "workerTemplate")
"""The fields of a role from which its pods are created."""


def revision_data(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a spec that a revision keeps, as in the spec's document: the engine and the roles' templates,
    `{"engine": {…}, "roles": […]}`.
    """
    roles = [{name: role[name] for name in ("name", *_TEMPLATES) if name in role} for role in spec.get("roles") or ()]
    return {"engine": dict(spec.get("engine") or {}), "roles": roles}


def revision_hash(data: Mapping[str, Any]) -> str:
    """Return a hash of ten characters that identifies the data."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:10]


def revision_name(pool: str, data: Mapping[str, Any]) -> str:
    """Return the name of the pool's ControllerRevision with this data."""
    return f"{pool}-{revision_hash(data)}"


def rolled_back(spec: Mapping[str, Any], data: Mapping[str, Any], only: str | None = None) -> dict[str, Any]:
    """Return the spec with the engine and the templates of a revision. All other fields stay, such as numbers and
    bounds.

    `only` names a role. If it is given, only that role's template is rolled back, and the pool's engine stays.
    """
    templates = {role["name"]: {name: role[name] for name in _TEMPLATES if name in role} for role in data.get("roles") or ()}
    roles = []
    for role in spec.get("roles") or ():
        if only is not None and role["name"] != only:
            roles.append(dict(role))
            continue
        kept = {name: value for name, value in role.items() if name not in _TEMPLATES}
        roles.append({**kept, **templates.get(role["name"], {})})
    if only is not None:
        return {**spec, **({"roles": roles} if roles else {})}
    changed = {name: value for name, value in spec.items() if name not in {"engine", "roles"}}
    return {**changed, **({"engine": dict(data["engine"])} if data.get("engine") else {}), **({"roles": roles} if roles else {})}

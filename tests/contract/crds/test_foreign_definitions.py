"""LeaderWorkerSets that Fairlead writes and Kueue objects that it reads fit the fields of both projects' definitions.

`lws-and-kueue.json` lists these fields, taken from both projects' CRDs and constants (August 2026): names, types,
values, bounds and defaults. The pods' templates are Kubernetes' own, and are tested in `test_engine_examples`.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.pools import parse_spec
from fairlead_operator import manifests
from fairlead_operator.cluster import Resource
from fairlead_operator.observing import groups, pods, workloads
from fairlead_operator.pool_identity import PoolIdentity
from processkube.kubernetes_api.definitions.leader_worker_sets import leader_worker_set_definition

ROOT = Path(__file__).parents[3]
REAL = json.loads((Path(__file__).parent / "lws-and-kueue.json").read_text(encoding="utf-8"))
FIELDS: Mapping[str, Mapping[str, Any]] = REAL["leaderworkersets"]["fields"]
TEMPLATES = (".spec.leaderWorkerTemplate.leaderTemplate", ".spec.leaderWorkerTemplate.workerTemplate")
OPEN = (".status.conditions", ".spec.leaderWorkerTemplate.volumeClaimTemplates")
"""Lists whose items the file does not describe."""
KINDS = {"object": dict, "string": str, "integer": int, "array": list}


def fields(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each field of a schema with its path, except fields of pod templates."""
    for name, one in schema.get("properties", {}).items():
        yield f"{path}.{name}", one
        if f"{path}.{name}" not in TEMPLATES:
            yield from fields(one, f"{path}.{name}")


def values(made: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Yield each value of an object with its path, except values of pod templates."""
    for name, value in made.items():
        yield f"{path}.{name}", value
        if isinstance(value, dict) and f"{path}.{name}" not in TEMPLATES:
            yield from values(value, f"{path}.{name}")


def a_group() -> dict[str, Any]:
    """Return the LeaderWorkerSet of the example's first instance."""
    [pool] = yaml.safe_load_all((ROOT / "examples/engines/two-nodes.yaml").read_text(encoding="utf-8"))
    spec, identity = parse_spec(pool["spec"]), PoolIdentity(namespace="default", name="two-nodes", uid="u")
    role = spec.roles[0].name
    leader = manifests.pod(identity, spec, role=role, ordinal=1, image="i", reason="PoolCreated", now="2026-11-29T00:00:00Z")
    return manifests.group(identity, spec, leader, role, nodes=2)


def test_every_value_of_a_group_is_one_that_its_definition_takes() -> None:
    made = a_group()
    named = REAL["leaderworkersets"]
    assert (made["apiVersion"], made["kind"]) == (f"{named['group']}/{named['version']}", named["names"]["kind"])
    for path, value in values(made["spec"], ".spec"):
        field = FIELDS[path]
        assert isinstance(value, KINDS[field["type"]]), path
        assert value in field.get("enum", [value]), path
    for path in (path for path, field in FIELDS.items() if path.startswith(".spec") and "required" in field):
        found = dict([(".spec", made["spec"]), *values(made["spec"], ".spec")]).get(path)
        assert found is None or set(FIELDS[path]["required"]) <= set(found), path


def test_the_sandboxs_definition_has_no_field_of_its_own() -> None:
    ours = leader_worker_set_definition()["spec"]
    [version] = ours["versions"]
    real = REAL["leaderworkersets"]
    assert (ours["group"], version["name"], version["subresources"]["scale"]) == (real["group"], real["version"], real["scale"])
    assert ours["names"].items() >= real["names"].items()
    for path, one in fields(version["schema"]["openAPIV3Schema"]):
        if path.startswith(OPEN) and path not in OPEN:
            continue
        field = FIELDS[path]
        assert one.get("type") == field.get("type"), path
        assert set(one.get("enum", ())) == set(field.get("enum", ())), path
        assert "default" not in field or one.get("default") == field["default"], path


@pytest.mark.parametrize("kind", [Resource.QUEUED_WORKLOADS, Resource.FORMER_QUEUED_WORKLOADS])
def test_kueues_workloads_are_asked_for_where_they_are(kind: Resource) -> None:
    real = REAL["workloads"]
    assert kind.value in {(f"/apis/{real['group']}/{version}", real["plural"]) for version in real["versions"]}
    assert {"type", "status", "message"} <= set(real["conditions"])


def test_the_labels_of_others_are_spelt_as_they_spell_them() -> None:
    read = {pods.KUEUE_LABEL, pods.KUEUE_JOB_LABEL, groups._SET_NAME, workloads.GROUP_NAME, *workloads._ORDINALS, *workloads._TEMPLATES}
    [queued] = yaml.safe_load_all((ROOT / "examples/engines/kueue.yaml").read_text(encoding="utf-8"))
    written = queued["spec"]["roles"][0]["template"]["metadata"]["labels"]
    theirs = {one for one in (*read, *written) if one.partition("/")[0] in {"kueue.x-k8s.io", "leaderworkerset.sigs.k8s.io"}}
    assert theirs == set(REAL["labels"])

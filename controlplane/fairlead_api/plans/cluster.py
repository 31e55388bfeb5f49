"""The calls to the Kubernetes API that plans need: read an object, patch its spec, and list revisions."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fairlead import pool_roles
from fairlead.instance_marks import POOL_LABEL
from fairlead.pools import GROUP, KIND, PLURAL, VERSION
from fairlead.tables import PoolKey
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.kubernetes import Kubernetes
from fairlead_api.infra.object_marks import CHANGED_BY, FIELD_MANAGER
from fairlead_api.plans.objects import ClusterObject, Target, TargetKind
from fairlead_api.plans.rollouts import StoredRevision, instant
from fairlead_process.kubernetes_api import MERGE_PATCH

_PATHS = {
    TargetKind.POOL: f"/apis/{GROUP}/{VERSION}/namespaces/{{}}/{PLURAL}/{{}}",
    TargetKind.ROLE: f"/apis/{GROUP}/{VERSION}/namespaces/{{}}/{pool_roles.PLURAL}/{{}}",
    TargetKind.INSTANCE: "/api/v1/namespaces/{}/pods/{}",
}
_NO_NAMES = frozenset({"", ".", ".."})
"""Names that are refused, because in a URL path they would select another object."""
_JSON = "application/json"


class KubernetesCluster(Kubernetes):
    """Implements `plans.objects.ClusterGateway`."""

    async def read(self, target: Target) -> ClusterObject:
        return _object(await self._call(target, "GET"))

    async def patch(
        self, target: Target, change: Mapping[str, Any], resource_version: str, marks: Mapping[str, str | None], *, dry_run: bool
    ) -> ClusterObject:
        body: dict[str, Any] = {"metadata": {"resourceVersion": resource_version, "annotations": dict(marks)}}
        match target.kind:
            case TargetKind.POOL | TargetKind.ROLE:
                body["spec"] = dict(change)
            case TargetKind.INSTANCE:
                body["metadata"]["annotations"] |= change
        query = [("fieldManager", FIELD_MANAGER), ("fieldValidation", "Strict"), *([("dryRun", "All")] if dry_run else [])]
        return _object(await self._call(target, "PATCH", body, query))

    async def delete(self, target: Target, uid: str, resource_version: str, *, dry_run: bool) -> None:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid, "resourceVersion": resource_version}}
        dry = {"dryRun": ["All"]} if dry_run else {}
        await self._call(target, "DELETE", {**body, **dry}, content=_JSON)

    async def create(self, target: Target, manifest: Mapping[str, Any], marks: Mapping[str, str | None], *, dry_run: bool) -> ClusterObject:
        told = {name: value for name, value in marks.items() if value is not None}
        metadata = {
            "name": target.name,
            "namespace": target.namespace,
            "labels": dict(manifest["labels"]),
            "annotations": {**manifest["annotations"], **told},
        }
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata, "spec": dict(manifest["spec"])}
        query = [("fieldManager", FIELD_MANAGER), ("fieldValidation", "Strict"), *([("dryRun", "All")] if dry_run else [])]
        path = _PATHS[target.kind].format(quote(target.namespace, safe=""), "").rstrip("/")
        made = await self.ask("POST", path, body, query, content=_JSON)
        if made is None:
            raise NotFound("namespace", target.namespace)
        return _object(made)

    async def revisions(self, pool: PoolKey) -> Sequence[StoredRevision]:
        path = f"/apis/apps/v1/namespaces/{quote(pool.namespace, safe='')}/controllerrevisions"
        answer = await self.ask("GET", path, query=[("labelSelector", f"{POOL_LABEL}={pool.name}")])
        return [_revision(found) for found in (answer or {}).get("items") or ()]

    async def _call(
        self,
        target: Target,
        method: str,
        body: Mapping[str, Any] | None = None,
        query: Sequence[tuple[str, str]] = (),
        content: str = MERGE_PATCH,
    ) -> Mapping[str, Any]:
        if not {target.namespace, target.name}.isdisjoint(_NO_NAMES):
            raise NotFound(target.kind.value, f"{target.namespace}/{target.name}")
        path = _PATHS[target.kind].format(quote(target.namespace, safe=""), quote(target.name, safe=""))
        found = await self.ask(method, path, body, query, content)
        if found is None:
            raise NotFound(target.kind.value, f"{target.namespace}/{target.name}")
        return found


def _object(found: Mapping[str, Any]) -> ClusterObject:
    about = found["metadata"]
    writers = [
        entry
        for entry in about.get("managedFields") or ()
        if entry.get("subresource", "") in {"", "scale"} and "f:spec" in (entry.get("fieldsV1") or {})
    ]
    last = max(writers, key=lambda entry: str(entry.get("time") or ""), default=None)
    annotations = about.get("annotations") or {}
    by = None if last is None else annotations.get(CHANGED_BY) if last.get("manager") == FIELD_MANAGER else last.get("manager")
    return ClusterObject(
        uid=about["uid"],
        resource_version=about.get("resourceVersion", ""),  # what a dry run would create has none
        generation=int(about.get("generation", 1)),
        spec=found.get("spec") or {},
        labels=about.get("labels") or {},
        annotations=annotations,
        managers=tuple(entry.get("manager", "") for entry in writers),
        status=found.get("status") or {},
        is_deleting=bool(about.get("deletionTimestamp")),
        changed_by=by,
        changed_at=None if last is None else instant(last.get("time")),
    )


def _revision(found: Mapping[str, Any]) -> StoredRevision:
    about = found["metadata"]
    return StoredRevision(
        name=about["name"],
        number=int(found.get("revision") or 0),
        created_at=instant(about.get("creationTimestamp")),
        data=found.get("data") or {},
    )

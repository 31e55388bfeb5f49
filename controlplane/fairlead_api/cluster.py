"""The Kubernetes API, as far as plans need it: reading a pool and patching its replicas, in threads because the client blocks."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config

from fairlead.errors import InvalidInput
from fairlead.pools import GROUP, PLURAL, VERSION
from fairlead.tables import PoolKey
from fairlead_api.services.errors import ClusterUnavailable, Conflict, Denied, NotFound
from fairlead_api.services.plans.marks import FIELD_MANAGER
from fairlead_api.services.plans.plans import ClusterPool

_TIMEOUT = (3, 10)
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


class KubernetesCluster:
    """Implements `services.plans.ClusterGateway`. The kubeconfig is read at the first call, and again after it failed."""

    def __init__(self, kubeconfig: str | None) -> None:
        self._kubeconfig = kubeconfig
        self._api: Any = None

    async def read(self, pool: PoolKey) -> ClusterPool:
        def call() -> Any:
            return self._objects().get_namespaced_custom_object(
                GROUP, VERSION, pool.namespace, PLURAL, pool.name, _request_timeout=_TIMEOUT
            )

        return _pool(await self._run(pool, call, None))

    async def scale(
        self, pool: PoolKey, replicas: int, resource_version: str, annotations: Mapping[str, str | None], *, dry_run: bool
    ) -> ClusterPool:
        body = {"metadata": {"resourceVersion": resource_version, "annotations": dict(annotations)}, "spec": {"replicas": replicas}}
        options = {"dry_run": "All"} if dry_run else {}

        def call() -> Any:
            return self._objects().patch_namespaced_custom_object(
                GROUP,
                VERSION,
                pool.namespace,
                PLURAL,
                pool.name,
                body,
                field_manager=FIELD_MANAGER,
                field_validation="Strict",
                _content_type="application/merge-patch+json",
                _request_timeout=_TIMEOUT,
                **options,
            )

        return _pool(await self._run(pool, call, replicas))

    def _objects(self) -> Any:
        if self._api is None:
            if self._kubeconfig is not None:
                connection = config.new_client_from_config(config_file=self._kubeconfig)
            elif _SERVICE_ACCOUNT.exists():
                settings = client.Configuration()
                config.load_incluster_config(client_configuration=settings)
                connection = client.ApiClient(settings)
            else:
                raise ClusterUnavailable("no Kubernetes API is configured; set KUBECONFIG for the control API", 60)
            connection.configuration.retries = False
            self._api = client.CustomObjectsApi(connection)
        return self._api

    async def _run(self, pool: PoolKey, call: Any, replicas: int | None) -> Any:
        try:
            return await asyncio.to_thread(call)
        except client.ApiException as error:
            raise _refusal(pool, replicas, error) from error
        except (urllib3.exceptions.HTTPError, OSError, config.ConfigException) as error:
            self._api = None
            raise ClusterUnavailable(f"the Kubernetes API does not answer: {str(error).splitlines()[0]}") from error


def _refusal(pool: PoolKey, replicas: int | None, error: Any) -> Exception:
    try:
        message = str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        message = str(error.reason)
    match error.status:
        case 404:
            return NotFound("InferencePool", str(pool))
        case 409:
            return Conflict("object-changed", message)
        case 400 | 422:
            return InvalidInput("replicas", replicas, message)
        case 401 | 403:
            return Denied(f"the Kubernetes API refuses the control API: {message}")
    return ClusterUnavailable(f"the Kubernetes API answered {error.status}: {message}")


def _pool(found: Mapping[str, Any]) -> ClusterPool:
    about = found["metadata"]
    managers = tuple(
        entry.get("manager", "")
        for entry in about.get("managedFields") or ()
        if entry.get("subresource", "") in {"", "scale"} and "f:spec" in (entry.get("fieldsV1") or {})
    )
    return ClusterPool(
        uid=about["uid"],
        resource_version=about["resourceVersion"],
        generation=int(about.get("generation", 1)),
        spec=found.get("spec") or {},
        labels=about.get("labels") or {},
        annotations=about.get("annotations") or {},
        managers=managers,
    )

"""A client of the Kubernetes API that uses the kubeconfig of the settings. Refusals of the Kubernetes API become
Fairlead's errors.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from fairlead.errors import InvalidInput
from fairlead_api.infra.errors import ClusterUnavailable, Conflict, Denied
from fairlead_process import kubernetes_api
from fairlead_process.kubernetes_api import MERGE_PATCH, ClusterNotConfigured, ClusterRefused, KubernetesApi

Answer = TypeVar("Answer")
CONFIGURE_SECONDS = 60
"""Seconds that callers should wait if the Kubernetes API is not configured: a person has to configure it first."""


class Kubernetes:
    """A connection to the Kubernetes API. The kubeconfig is read at the first call, and again at the first call after a
    failure.
    """

    def __init__(self, kubeconfig: str | None) -> None:
        self._kubeconfig = kubeconfig
        self._connecting = asyncio.Lock()
        self._api: KubernetesApi | None = None

    async def close(self) -> None:
        """Close all connections."""
        api, self._api = self._api, None
        if api is not None:
            await api.close()

    async def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Sequence[tuple[str, str]] = (),
        content: str = MERGE_PATCH,
    ) -> Mapping[str, Any] | None:
        """Send a request and return the JSON object of the response; None if the Kubernetes object does not exist.
        Raises ClusterUnavailable, Denied, Conflict, InvalidInput.
        """
        return await self._asking(lambda api: api.call(method, path, query=query, body=body, content=content, absent=404))

    async def review(self, path: str, version: str, kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the status of a TokenReview or SubjectAccessReview; empty if the API knows no such kind. Raises the
        errors of `ask`.
        """
        found = await self.ask("POST", path, {"apiVersion": version, "kind": kind, "spec": dict(spec)}, content="application/json")
        return (found or {}).get("status") or {}

    async def ask_text(self, path: str, query: Sequence[tuple[str, str]]) -> str | None:
        """Return the text at a path, such as a pod's log; None if there is no such object. Raises the errors
        of `ask`.
        """
        return await self._asking(lambda api: api.text(path, query, absent=404))

    async def _asking(self, ask: Callable[[KubernetesApi], Awaitable[Answer]]) -> Answer:
        try:
            async with self._connecting:
                if self._api is None:
                    self._api = await KubernetesApi.connect(self._kubeconfig)
                api = self._api
            return await ask(api)
        except ClusterNotConfigured as error:
            raise ClusterUnavailable(str(error), CONFIGURE_SECONDS) from error
        except kubernetes_api.ClusterUnavailable as error:
            if error.status == 401:
                raise Denied(f"the Kubernetes API refuses the control API: {error}") from error
            if error.status is None and self._api is api:
                await self.close()  # the next call reads the kubeconfig, which may name another server; calls in flight go on
            raise ClusterUnavailable(f"the Kubernetes API does not answer: {error}") from error
        except ClusterRefused as error:
            raise _refusal(error) from error


def _refusal(error: ClusterRefused) -> Exception:
    match error.status:
        case 409:
            return Conflict("object-changed", error.text)
        case 400 | 422:
            return InvalidInput(error.field or "spec", None, error.text)
        case 403:
            return Denied(f"the Kubernetes API refuses the control API: {error.text}")
    return ClusterUnavailable(f"the Kubernetes API answered {error.status}: {error.text}")

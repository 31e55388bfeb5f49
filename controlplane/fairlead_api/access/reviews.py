"""Asks the Kubernetes API who a token belongs to, and what its user may do with pools."""

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from fairlead.pools import GROUP, PLURAL
from fairlead_api.access.cluster_rights import ClusterUser
from fairlead_api.infra.kubernetes import Kubernetes

_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class KubernetesReviews:
    """Implements `access.cluster_rights.ClusterReviews`. `audience`: whom tokens must be for; None: the API
    server itself.
    """

    def __init__(self, cluster: Kubernetes, audience: str | None) -> None:
        self._cluster = cluster
        self._audience = audience

    async def user_of(self, token: str) -> ClusterUser | None:
        audiences = {} if self._audience is None else {"audiences": [self._audience]}
        status = await self._review(_TOKENS, "authentication.k8s.io/v1", "TokenReview", {"token": token, **audiences})
        if status.get("authenticated") is not True:
            return None
        if self._audience is not None and self._audience not in (status.get("audiences") or ()):
            return None  # an API server that knows no audiences says nothing about them
        user = status.get("user") or {}
        return ClusterUser(name=str(user.get("username")), groups=tuple(user.get("groups") or ()), expires_at=expiry(token))

    async def allows(self, user: ClusterUser, verb: str, subresource: str, namespace: str) -> bool:
        asked = {"group": GROUP, "resource": PLURAL, "verb": verb, "subresource": subresource, "namespace": namespace}
        spec = {
            "user": user.name,
            "groups": list(user.groups),
            "resourceAttributes": {name: value for name, value in asked.items() if value},
        }
        status = await self._review(_ACCESS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        return status.get("allowed") is True

    async def _review(self, path: str, version: str, kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        body = {"apiVersion": version, "kind": kind, "spec": dict(spec)}
        found = await self._cluster.ask("POST", path, body, content="application/json")
        return (found or {}).get("status") or {}


def expiry(token: str) -> datetime | None:
    """When a token that the API server took for good expires, if it is a JWT that says so."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return datetime.fromtimestamp(claims["exp"], UTC)
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError, OverflowError, OSError):
        return None

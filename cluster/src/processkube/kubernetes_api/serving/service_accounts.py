"""Tokens of service accounts. The subresource `token` (TokenRequest) issues them; they are signed, expire, and are
bound to the account.

A token is a JSON Web Token as in a cluster. Unlike there, it is signed with a secret that only this server has, because
no other program verifies it.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from processkube.kubernetes_api.objects.errors import Invalid, invalid_value
from processkube.kubernetes_api.objects.objects import Clock, Object, at_path, decode, encode, timestamp
from processkube.kubernetes_api.serving.accounts import Account
from processkube.kubernetes_api.storing.store import Store, Stored
from processkube.private_files import write_private

SERVICE_ACCOUNTS = "serviceaccounts"
API_AUDIENCE = "https://kubernetes.default.svc"
"""The audience that stands for this server. A token that names no audience has this audience, and so do the tokens of
the server's own accounts.
"""

Authenticated = tuple[Account, tuple[str, ...]]
"""An account, and the requested audiences for which its token is valid."""

_USUAL_SECONDS = 3600
_LEAST_SECONDS = 600


class ServiceAccountTokens:
    """Issues and verifies the tokens of service accounts."""

    def __init__(self, key_file: Path, store: Store, clock: Clock) -> None:
        if not key_file.exists():
            write_private(key_file, secrets.token_bytes(32))
        self._key = key_file.read_bytes()
        self._store = store
        self._clock = clock

    def answer(self, stored: Stored, request: Object) -> Object:
        """Return the TokenRequest with a token in its status. Raises Invalid if the requested lifetime is too short."""
        audiences = at_path(request, "spec", "audiences", default=None) or [API_AUDIENCE]
        seconds = at_path(request, "spec", "expirationSeconds", default=None) or _USUAL_SECONDS
        if seconds < _LEAST_SECONDS:
            cause = invalid_value("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
            raise Invalid(kind="TokenRequest", group="authentication.k8s.io", name="", causes=[cause])
        ends = self._clock() + timedelta(seconds=seconds)
        spec = {"boundObjectRef": None, **(request.get("spec") or {}), "audiences": audiences, "expirationSeconds": seconds}
        head: Object = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"}
        metadata = {"name": stored.name, "namespace": stored.namespace, "creationTimestamp": timestamp(self._clock())}
        status = {"token": self._issue(stored, ends, audiences), "expirationTimestamp": timestamp(ends)}
        return {**head, "metadata": metadata, "spec": spec, "status": status}

    def authenticate(self, token: str, audiences: Collection[str]) -> Authenticated | None:
        """Return the account of a token, and the members of `audiences` for which the token is valid; None if there are
        none. Return None also if the token is invalid or expired, or if its ServiceAccount was deleted. A new
        ServiceAccount with the same name does not make the token valid again.
        """
        head, _, signature = token.rpartition(".")
        if not head or not token.isascii() or not hmac.compare_digest(signature, self._signature(head)):
            return None
        claims = decode(_bytes(head.rpartition(".")[2]))
        found = self._store.get(SERVICE_ACCOUNTS, claims["namespace"], claims["name"])
        if found is None or found.uid != claims["uid"] or claims["exp"] <= self._clock().timestamp():
            return None
        common = tuple(audience for audience in claims.get("aud", [API_AUDIENCE]) if audience in audiences)
        return (service_account(found.namespace, found.name, found.uid), common) if common else None

    def _issue(self, stored: Stored, ends: datetime, audiences: Sequence[str]) -> str:
        header = _text(encode({"alg": "HS256", "typ": "JWT"}))
        subject = f"system:serviceaccount:{stored.namespace}:{stored.name}"
        claims: Object = {"sub": subject, "aud": audiences, "exp": int(ends.timestamp())}
        payload = _text(encode({**claims, "namespace": stored.namespace, "name": stored.name, "uid": stored.uid}))
        return f"{header}.{payload}.{self._signature(f'{header}.{payload}')}"

    def _signature(self, signed: str) -> str:
        return _text(hmac.digest(self._key, signed.encode(), "sha256"))


def service_account(namespace: str, name: str, uid: str = "") -> Account:
    """Return the account for the requests of a service account. It may do only what roles grant."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    username = f"system:serviceaccount:{namespace}:{name}"
    return Account(name=uid, username=username, groups=groups, token="", obeys_rbac=True)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

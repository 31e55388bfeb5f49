"""Callers, which are authenticated requests; and the credentials that are set in the environment.

Secrets are compared and stored only as SHA-256.
"""

import hashlib
from dataclasses import dataclass

from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.spans import Sight
from fairlead_client.resources.access import AccessRole, Identity
from fairlead_client.resources.audit import AuditAction, AuditResult


def digest(secret: str) -> bytes:
    """Return the hash that is stored instead of a secret."""
    return hashlib.sha256(secret.encode()).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The sender of an authenticated request.

    `key` is the hash of the credential, and identifies the credential. `request_id` identifies the request in logs and
    in the audit log.
    """

    identity: Identity
    key: bytes
    request_id: str
    address: str = "unknown"

    @property
    def sight(self) -> Sight:
        """The namespaces whose pools the caller may see; None = all namespaces."""
        return self.identity.where(AccessRole.VIEWER)

    def sees(self, pool: str) -> bool:
        """Return whether the caller may see rows of a pool, given as namespace/name."""
        return self.identity.reaches(AccessRole.VIEWER, pool.partition("/")[0])

    def draft(self, action: AuditAction, target: str, *, result: AuditResult = AuditResult.OK, reason: str | None = None) -> AuditDraft:
        """Return the draft of an audit entry whose actor is this caller. Further fields can be added with `replace`."""
        who = self.identity
        return AuditDraft(
            actor=who.subject,
            role=who.role,
            source=who.source,
            action=action,
            object=target,
            result=result,
            reason=reason,
            request_id=self.request_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """A credential that is set in the environment."""

    role: AccessRole
    name: str
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A login attempt: its client address, and the id of its request."""

    address: str
    request_id: str

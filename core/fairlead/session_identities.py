"""The identity of a session: the name that its client sends, and the tenant to which the client belongs. Pure.

A tenant is identified by the id of a gateway key that a person made. Two tenants may send the same name, which then
stands for two sessions: `chat-1@1f2e3d4c5b6a7988` and `chat-1@8897a6b5c4d3e2f1`. Clients without a key, and clients
with a key of the router's own settings, have no tenant; the identity of their sessions is the name itself
(docs/decisions/0080-a-session-is-its-keys.md).
"""

import re

_TENANT = re.compile(r"@([0-9a-f]{16})\Z")
"""Matches the tenant at the end of an identity. The API makes the ids of keys in this form."""


def session_identity(name: str, tenant: str) -> str:
    """Return the identity of the tenant's session with this name. If the name already ends with the tenant, as an
    identity does, it is returned unchanged.
    """
    if not tenant or name.endswith("@" + tenant):
        return name
    return f"{name}@{tenant}"


def tenant_of(identity: str) -> str:
    """Return the tenant of the session; "" if it has no tenant."""
    found = _TENANT.search(identity) if "@" in identity else None
    return "" if found is None else found[1]


def name_of(identity: str) -> str:
    """Return the name that the session's client sends."""
    return _TENANT.sub("", identity)

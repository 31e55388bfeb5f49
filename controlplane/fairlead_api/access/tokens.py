"""API tokens: made, listed and revoked by who is admin of all that they open."""

from collections.abc import Callable
from datetime import datetime, timedelta

from fairlead.errors import InvalidInput
from fairlead_api.access.access import Access
from fairlead_api.access.credentials import ID_DIGITS, AccessStore
from fairlead_api.infra.callers import Caller, digest
from fairlead_client.resources.access import PEOPLE, RISING, AccessRole, TokenItem, TokenRequest
from fairlead_client.resources.pages import Page


class Tokens:
    """`new_secret` makes random text of 256 bits."""

    def __init__(self, store: AccessStore, access: Access, new_secret: Callable[[], str]) -> None:
        self._store = store
        self._access = access
        self._new_secret = new_secret

    async def page(self, cursor: str | None, limit: int, caller: Caller) -> Page[TokenItem]:
        """The tokens that the caller may revoke: those whose rights lie where it is admin."""
        return await self._store.tokens(cursor, limit, caller.identity.where(AccessRole.ADMIN))

    async def create(self, request: TokenRequest, caller: Caller, now: datetime) -> TokenItem:
        """Makes an API token; no other answer contains its secret.

        Raises InvalidInput; Denied where the caller is no admin of all that it opens.
        """
        if request.role is AccessRole.NONE and not request.namespaces:
            raise InvalidInput("role", request.role, f"write one of {', '.join(PEOPLE)}, or name namespaces")
        if request.namespaces and request.role not in RISING:
            raise InvalidInput("namespaces", ", ".join(request.namespaces), f"leave it out: {request.role} is a process of all namespaces")
        await self._access.require_admin_of(caller, request.role, request.namespaces, "tokens", now)
        if not 1 <= request.days <= 365:
            raise InvalidInput("days", request.days, "write 1 to 365")
        if not request.name.strip() or len(request.name) > 200:
            raise InvalidInput("name", request.name, "write a name of at most 200 characters")
        secret = f"flt_{self._new_secret()}"
        item = TokenItem(
            id=digest(secret).hex()[:ID_DIGITS],
            name=request.name,
            role=request.role,
            created_at=now,
            created_by=caller.identity.subject,
            expires_at=now + timedelta(days=request.days),
            last_used_at=None,
            revoked_at=None,
            namespaces=request.namespaces,
            secret=secret,
        )
        await self._store.add_token(item, digest(secret), caller, now)
        return item

    async def revoke(self, token_id: str, caller: Caller, now: datetime) -> None:
        try:
            await self._store.revoke_token(token_id, caller.identity.where(AccessRole.ADMIN), caller, now)
        finally:
            self._access.forget_seen()

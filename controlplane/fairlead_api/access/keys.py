"""Credentials of programs: API tokens, and gateway keys, which routers check. People make, list and revoke these
credentials.
"""

import re
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any

from fairlead.costs.money import CURRENCY_PATTERN, micros_of
from fairlead.errors import InvalidInput
from fairlead.tables import CLASS_NAME, PoolKey
from fairlead_api.access.access import Access
from fairlead_api.access.credentials import ID_DIGITS, AccessStore
from fairlead_api.infra.callers import Caller, digest
from fairlead_client.resources.access import PEOPLE, RISING, AccessRole, TokenItem, TokenRequest
from fairlead_client.resources.gateway_keys import GatewayKey, GatewayKeyChange, GatewayKeyRequest, GatewayKeyRotation
from fairlead_client.resources.pages import Page


class Tokens:
    """Use cases of API tokens. `new_secret` makes random text of 256 bits."""

    def __init__(self, store: AccessStore, access: Access, new_secret: Callable[[], str]) -> None:
        self._store = store
        self._access = access
        self._new_secret = new_secret

    async def page(self, cursor: str | None, limit: int, caller: Caller) -> Page[TokenItem]:
        """Return a page of the tokens that the caller may revoke: tokens that give rights only in namespaces where the
        caller is admin.
        """
        return await self._store.tokens(cursor, limit, caller.identity.where(AccessRole.ADMIN))

    async def create(self, request: TokenRequest, caller: Caller, now: datetime) -> TokenItem:
        """Make an API token. Only this response contains its secret.

        Raises InvalidInput; Denied unless the caller is an admin of everything that the token gives access to.
        """
        if request.role is AccessRole.NONE and not request.namespaces:
            raise InvalidInput("role", request.role, f"write one of {', '.join(PEOPLE)}, or give a role in single namespaces")
        if request.namespaces and request.role not in RISING:
            raise InvalidInput(
                "namespaces",
                ", ".join(request.namespaces),
                f"leave it out: role {request.role} is for processes, which always have all namespaces",
            )
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


MOST_KEYS = 10_000
"""Maximum number of gateway keys that are not revoked. It is bounded because each change sends all keys to every
router.
"""
MOST_DAYS = 3650
MOST_SCOPES = 100
MOST_PER_MINUTE = 10**12
LONGEST_NAME = 200
SHOWN_CHARACTERS = 8
"""Number of characters of a secret that are shown, including `flk_`: enough to recognize the secret, with 232 bits
still hidden.
"""

STEPS = ((60, timedelta(hours=6)), (3600, timedelta(days=14)), (86_400, timedelta.max))
"""Step lengths of usage charts in seconds, each with the maximum range for which it is used."""


def step_of(start: datetime, end: datetime) -> int:
    """Return the step length of a usage chart: a minute, an hour or a day, depending on the range. Pure."""
    return next(step for step, longest in STEPS if end - start <= longest)


def new_key(request: GatewayKeyRequest, secret: str, caller: Caller, now: datetime) -> GatewayKey:
    """Return the gateway key that a person requests. `secret` becomes its secret, and is not stored. Raises
    InvalidInput. Pure.
    """
    _check(request)
    return GatewayKey(
        id=digest(secret).hex()[:16],
        name=request.name.strip(),
        prefix=secret[:SHOWN_CHARACTERS],
        pools=tuple(sorted(set(request.pools))),
        models=tuple(sorted(set(request.models))),
        requests_per_minute=request.requests_per_minute,
        tokens_per_minute=request.tokens_per_minute,
        priority_class=request.priority_class,
        explain=request.explain,
        budget_day=request.budget_day,
        budget_month=request.budget_month,
        budget_currency=request.budget_currency,
        budget_soft_percent=request.budget_soft_percent,
        created_at=now,
        created_by=caller.identity.subject,
        expires_at=None if request.days is None else now + timedelta(days=request.days),
        revoked_at=None,
        secret=secret,
    )


def changed_key(key: GatewayKey, change: GatewayKeyChange, now: datetime) -> GatewayKey:
    """Return the key after a change of some of its fields. If the change removes the last budget, it also removes the
    currency and the soft limit. Raises InvalidInput. Pure.
    """
    given = {name: value for name in _FIELDS if (value := getattr(change, name)) is not None}
    days = given.pop("days", None)
    asked = GatewayKeyRequest(
        **{**{name: getattr(key, name) for name in _FIELDS if name != "days"}, **_without_ends(given)}, days=days or None
    )
    if _budgets(key) and not _budgets(asked):
        asked = replace(asked, budget_currency=None, budget_soft_percent=None)
    _check(asked)
    kept = {name: getattr(asked, name) for name in _FIELDS if name != "days"}
    kept |= {"name": asked.name.strip(), "pools": tuple(sorted(set(asked.pools))), "models": tuple(sorted(set(asked.models)))}
    ends = key.expires_at if days is None else None if days == 0 else now + timedelta(days=days)
    return replace(key, **kept, expires_at=ends)


_FIELDS = tuple(item.name for item in fields(GatewayKeyChange))


def _without_ends(given: dict[str, Any]) -> dict[str, Any]:
    """Return the changed fields with None in place of 0 and of empty text. For a limit, None means no limit; for the
    priority class, None means the default class.
    """
    return {name: None if value in {0, ""} and name != "explain" and name != "name" else value for name, value in given.items()}


MOST_HOURS = 720


def check_rotation(rotation: GatewayKeyRotation) -> None:
    """Raises InvalidInput unless the hours for which the former secret stays valid are from 0 to MOST_HOURS."""
    if not 0 <= rotation.hours <= MOST_HOURS:
        raise InvalidInput("hours", rotation.hours, f"write 0 to {MOST_HOURS}")


def _budgets(key: GatewayKey | GatewayKeyRequest) -> list[str]:
    """Return the names of the key's budgets."""
    return [name for name in ("budget_day", "budget_month") if getattr(key, name) is not None]


def _check_budgets(request: GatewayKeyRequest) -> None:
    """Raises InvalidInput for budgets with a value that is not permitted."""
    given = _budgets(request)
    for name in given:
        if micros_of(name, getattr(request, name)) == 0:
            raise InvalidInput(name, getattr(request, name), "write an amount above 0, or leave it out for no budget")
    currency, percent = request.budget_currency, request.budget_soft_percent
    if currency is not None and not re.fullmatch(CURRENCY_PATTERN, currency):
        raise InvalidInput("budget_currency", currency, "write a currency as ISO 4217 does, such as EUR")
    if given and currency is None:
        raise InvalidInput("budget_currency", None, "write the currency of the budget, such as EUR")
    if percent is not None and not 1 <= percent <= 100:
        raise InvalidInput("budget_soft_percent", percent, "write 1 to 100, or leave it out for the default, 80")
    for name, value in (("budget_currency", currency), ("budget_soft_percent", percent)):
        if value is not None and not given:
            raise InvalidInput(name, value, "write budget_day or budget_month too: there is no budget to which it applies")


def _check(request: GatewayKeyRequest) -> None:
    """Raises InvalidInput for the first field of a gateway key whose value is not permitted."""
    if not request.name.strip() or len(request.name) > LONGEST_NAME or not request.name.isprintable():
        raise InvalidInput("name", request.name, f"write a name of at most {LONGEST_NAME} printable characters")
    if request.days is not None and not 1 <= request.days <= MOST_DAYS:
        raise InvalidInput("days", request.days, f"write 1 to {MOST_DAYS}, or leave it out for a key that does not expire")
    for field, limit in (("requests_per_minute", request.requests_per_minute), ("tokens_per_minute", request.tokens_per_minute)):
        if limit is not None and not 1 <= limit <= MOST_PER_MINUTE:
            raise InvalidInput(field, limit, f"write 1 to {MOST_PER_MINUTE}, or leave it out for no limit")
    _check_budgets(request)
    if request.priority_class is not None and not re.fullmatch(CLASS_NAME, request.priority_class):
        remedy = "write the name of a priority class, such as interactive, or leave it out for the default one"
        raise InvalidInput("priority_class", request.priority_class, remedy)
    for field, words in (("pools", request.pools), ("models", request.models)):
        if len(words) > MOST_SCOPES:
            raise InvalidInput(field, f"{len(words)} names", f"name at most {MOST_SCOPES} {field}, or none to allow all")
        for word in words:
            if not word or len(word) > LONGEST_NAME or not word.isprintable():
                raise InvalidInput(field, word, f"write names of 1 to {LONGEST_NAME} printable characters")
    for word in request.pools:
        try:
            PoolKey.parse(word)
        except ValueError:
            raise InvalidInput("pools", word, "write namespace/name") from None

"""How often a credential is looked up: once for simultaneous requests of a page, and again after it has ended."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead_api.access.access import Access
from fairlead_api.access.credentials import Held
from fairlead_api.access.keys import Tokens
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.errors import NotAuthenticated, StoreUnavailable
from fairlead_client.resources.access import AccessRole, Identity

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
ANNA = Identity(subject="anna", role=AccessRole.ADMIN, source="token:1", expires_at=NOW + timedelta(hours=8))
CALLER = Caller(identity=ANNA, key=b"key", request_id="r1")


class OneToken:
    """A store with one token, which counts its reads."""

    def __init__(self) -> None:
        self.identity: Identity | None = ANNA
        self.reads = 0
        self.is_away = False

    async def identify(self, key: bytes, kind: str, now: datetime) -> Held | None:
        self.reads += 1
        found = self.identity
        await asyncio.sleep(0.01)
        if self.is_away:
            raise StoreUnavailable("away")
        return Held(identity=found) if found else None

    async def revoke_token(self, token_id: str, namespaces: Any, caller: Caller, now: datetime) -> None:
        self.identity = None


def access(tokens: OneToken) -> Access:
    return Access(tokens, ())  # type: ignore[arg-type] # only what is used here


async def test_requests_of_one_moment_look_their_credential_up_once() -> None:
    tokens = OneToken()
    rights = access(tokens)
    found = await asyncio.gather(*(rights.identify("flt_1", NOW) for _ in range(8)))
    assert {identity.subject for identity, _ in found} == {"anna"}
    await rights.identify("flt_2", NOW)
    await rights.identify("flt_1", NOW + timedelta(seconds=2))
    assert tokens.reads == 3, "another credential, and a later second, are looked up"


async def test_a_revoked_token_is_refused_at_once_also_while_it_is_looked_up() -> None:
    tokens = OneToken()
    rights = access(tokens)
    before = asyncio.ensure_future(rights.identify("flt_1", NOW))
    while not tokens.reads:
        await asyncio.sleep(0)
    await Tokens(tokens, rights, lambda: "secret").revoke("1", CALLER, NOW)  # type: ignore[arg-type] # the same
    with pytest.raises(NotAuthenticated):
        await rights.identify("flt_1", NOW)
    await before


async def test_an_end_that_another_process_tells_of_counts_at_once() -> None:
    tokens = OneToken()
    rights = access(tokens)
    await rights.identify("flt_1", NOW)
    tokens.identity = None
    rights.forget_seen()
    with pytest.raises(NotAuthenticated):
        await rights.identify("flt_1", NOW)
    tokens.identity = ANNA
    assert (await rights.identify("flt_1", NOW))[0].subject == "anna", "a refusal is not remembered"


async def test_who_was_seen_lately_is_let_in_while_the_database_is_away_but_for_nobody_else() -> None:
    tokens = OneToken()
    rights = access(tokens)
    await rights.identify("flt_1", NOW)
    tokens.is_away = True
    later = NOW + timedelta(seconds=2)
    assert (await rights.identify("flt_1", later))[0].subject == "anna"
    with pytest.raises(StoreUnavailable):
        await rights.identify("flt_2", later)

"""Exports and facets of the audit log over HTTP."""

import json
from collections.abc import AsyncIterator

import psycopg
import pytest

from fairlead_cli.audit import _is_signed
from fairlead_client.audit_exports import verified
from fairlead_client.resources.gateway_keys import GatewayKeyRequest
from fairlead_testing.running.api import CHAT, ApiInstance, a_state, an_instance, running_api
from fairlead_testing.running.postgres import plain

SEED = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


@pytest.fixture
async def signing(database_url: str) -> AsyncIterator[ApiInstance]:
    async with running_api(database_url, audit_signing_key=SEED) as api:
        yield api


async def exported(api: ApiInstance, **query: str) -> list[bytes]:
    return b"".join([part async for part in api.viewer.export("/v1/audit/export", query)]).splitlines()


async def test_an_export_is_verified_without_the_api_and_a_changed_log_shows(signing: ApiInstance, database_url: str) -> None:
    for name in ("a", "b", "c"):
        await signing.operator.create_gateway_key(GatewayKeyRequest(name=name))
    await signing.pool_operator.put_pool_state(CHAT, a_state(an_instance("i")))
    lines = await exported(signing)
    found = verified(lines, _is_signed, json.loads(lines[0])["key"])
    assert (found.fault, found.entries, found.first) == (None, (await signing.viewer.audit_verification()).entries, 1)
    with psycopg.connect(plain(database_url)) as connection:
        connection.execute("ALTER TABLE audit_log DISABLE TRIGGER USER")
        connection.execute("UPDATE audit_log SET actor = 'nobody' WHERE id = 2")
    assert verified(await exported(signing), _is_signed).fault == "entry 2 was changed, added or moved"


async def test_an_export_begins_in_the_middle_of_the_chain(signing: ApiInstance) -> None:
    await signing.operator.create_gateway_key(GatewayKeyRequest(name="a"))
    middle = signing.clock().isoformat()
    await signing.operator.create_gateway_key(GatewayKeyRequest(name="b"))
    for query, ids in (({"from": middle}, (2, 2)), ({"to": middle}, (1, 1)), ({"from": "now-1s", "to": "now-0s"}, None)):
        found = verified(await exported(signing, **query), _is_signed)
        assert found.fault is None
        assert ids is None or (found.first, found.last) == ids


async def test_facets_count_what_occurs_in_a_range_and_in_sight(api: ApiInstance) -> None:
    for name in ("a", "b"):
        await api.operator.create_gateway_key(GatewayKeyRequest(name=name))
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("i")))
    found = await api.viewer.audit_facets()
    assert {one.value: one.entries for one in found.actions} == {"gateway-key.created": 2, "pool.created": 1}
    assert found.entries == 3
    of_pool = await api.viewer.audit_facets({"pool": str(CHAT)})
    assert [one.value for one in of_pool.actions] == ["pool.created"]

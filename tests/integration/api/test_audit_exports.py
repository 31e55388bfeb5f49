"""Exports and facets of the audit log over HTTP."""

import json
from collections.abc import AsyncIterator

import psycopg
import pytest

from fairlead_api import tables
from fairlead_cli.audit import _is_signed
from fairlead_client.audit_exports import verified
from fairlead_client.resources.gateway_keys import GatewayKeyRequest
from fairlead_testing.running.api import CHAT, ApiInstance, a_state, an_instance, running_api
from fairlead_testing.running.postgres import plain

DAY = 86_400.0
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


CHANGES = {
    **{
        f"audit_log.{name}": f"UPDATE audit_log SET {name} = {name} || 'x' WHERE id = %s"
        for name in ("actor", "role", "source", "action", "object")
    },
    **{
        f"audit_log.{name}": f"UPDATE audit_log SET {name} = 'x' WHERE id = %s"
        for name in ("reason", "result", "request_id", "plan", "chain")
    },
    **{f"audit_log.{name}": f"UPDATE audit_log SET {name} = '{{\"x\": 1}}' WHERE id = %s" for name in ("before", "after")},
    "audit_log.at": "UPDATE audit_log SET at = at + interval '1 microsecond' WHERE id = %s",
    "audit_log.day": "UPDATE audit_log SET day = day - 1 WHERE id = %s",
    "audit_log.id": "UPDATE audit_log SET id = id + 1000 WHERE id = %s",
    "an entry": "DELETE FROM audit_log WHERE id = %s",
    "audit_heads.chain": "UPDATE audit_heads SET chain = repeat('0', 64) WHERE last_id = %s",
    "audit_heads.at": "UPDATE audit_heads SET at = at - interval '1 second' WHERE last_id = %s",
    "audit_heads.day": "UPDATE audit_heads SET day = day - 1000 WHERE last_id = %s",
    "audit_heads.last_id": "UPDATE audit_heads SET last_id = last_id - 1 WHERE last_id = %s",
    "a head": "DELETE FROM audit_heads WHERE last_id = %s",
}
"""A change of each column of the audit log and of its heads, and deletions."""


async def test_whatever_is_changed_in_the_log_or_its_heads_is_found(api: ApiInstance, database_url: str) -> None:
    api.clock.skip(-3 * DAY)
    for _ in range(3):
        for name in ("a", "b"):
            await api.operator.create_gateway_key(GatewayKeyRequest(name=name))
        api.clock.skip(DAY)
    assert {name for name in CHANGES if "." in name} == {
        str(one) for table in (tables.audit_log, tables.audit_heads) for one in table.columns
    }
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        connection.execute("ALTER TABLE audit_log DISABLE TRIGGER USER")
        heads = [number for (number,) in connection.execute("SELECT last_id FROM audit_heads ORDER BY 1")]
        assert ((await api.viewer.audit_verification()).intact, heads) == (True, [2, 4, 6])
        connection.execute("CREATE TABLE kept AS TABLE audit_log; CREATE TABLE kept_heads AS TABLE audit_heads")
        unseen = []
        for name, change in CHANGES.items():
            for number in heads if "head" in name else range(1, 7):
                connection.execute(change, [number])
                if (await api.viewer.audit_verification()).intact:
                    unseen.append((name, number))
                connection.execute(
                    "TRUNCATE audit_log, audit_heads; INSERT INTO audit_log TABLE kept; INSERT INTO audit_heads TABLE kept_heads"
                )
        assert unseen == []


async def test_facets_count_what_occurs_in_a_range_and_in_sight(api: ApiInstance) -> None:
    for name in ("a", "b"):
        await api.operator.create_gateway_key(GatewayKeyRequest(name=name))
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("i")))
    found = await api.viewer.audit_facets()
    assert {one.value: one.entries for one in found.actions} == {"gateway-key.created": 2, "pool.created": 1}
    assert found.entries == 3
    of_pool = await api.viewer.audit_facets({"pool": str(CHAT)})
    assert [one.value for one in of_pool.actions] == ["pool.created"]

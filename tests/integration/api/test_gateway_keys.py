"""Gateway keys in the control API: made, listed, revoked, audited and told to routers; the secret is kept nowhere."""

import logging
from hashlib import sha256

import psycopg
import pytest

from fairlead_api.services.access import gateway_keys as service
from fairlead_client.lines import GatewayKeysLine
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.gateway_keys import GatewayKeyRequest
from fairlead_testing.running.api import ApiInstance
from fairlead_testing.running.postgres import plain
from fairlead_testing.running.seams import following


async def test_a_key_is_shown_once_listed_and_revoked(api: ApiInstance) -> None:
    made = await api.admin.create_gateway_key(
        GatewayKeyRequest(name=" team a ", pools=("default/b", "default/a", "default/a"), models=("mock",), days=2, requests_per_minute=60)
    )
    assert made.secret is not None
    assert made.secret.startswith("flk_")
    assert (len(made.secret), made.prefix) == (47, made.secret[:8])
    assert (made.name, made.pools, made.models) == ("team a", ("default/a", "default/b"), ("mock",))
    assert made.expires_at is not None
    assert (made.expires_at - made.created_at).days == 2
    plain_key = await api.operator.create_gateway_key(GatewayKeyRequest(name="open"))
    listed = (await api.viewer.gateway_keys()).items
    assert [found.id for found in listed] == [plain_key.id, made.id]
    assert [found.secret for found in listed] == [None, None]
    for _ in range(2):
        await api.operator.revoke_gateway_key(made.id)
    (first,) = [found for found in (await api.viewer.gateway_keys()).items if found.id == made.id]
    assert first.revoked_at is not None
    entries = [entry for entry in (await api.viewer.audit()).items if entry.action.startswith("gateway-key")]
    assert [(entry.action, entry.object) for entry in entries] == [
        ("gateway-key.revoked", made.id),
        ("gateway-key.created", plain_key.id),
        ("gateway-key.created", made.id),
    ]
    assert entries[2].after is not None
    assert entries[2].after["requests_per_minute"] == 60


async def test_routers_hear_of_keys_at_once_and_in_their_snapshot(api: ApiInstance) -> None:
    async with following(api.router.api, "router-0") as lines:
        assert await lines.snapshot() == [GatewayKeysLine()]
        made = await api.admin.create_gateway_key(GatewayKeyRequest(name="a", days=1, tokens_per_minute=5))
        assert made.secret is not None
        assert made.expires_at is not None
        (told,) = (await lines.until(GatewayKeysLine)).keys
        assert (told.id, told.digest) == (made.id, sha256(made.secret.encode()).hexdigest())
        assert (told.tokens_per_minute, told.requests_per_minute, told.expires_at) == (5, None, made.expires_at.timestamp())
        async with following(api.router.api, "router-1") as later:
            assert await later.snapshot() == [GatewayKeysLine(keys=(told,))]
        await api.admin.revoke_gateway_key(made.id)
        assert (await lines.until(GatewayKeysLine)).keys == ()


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (GatewayKeyRequest(name=" "), "name"),
        (GatewayKeyRequest(name="a\nb"), "name"),
        (GatewayKeyRequest(name="a", days=0), "days"),
        (GatewayKeyRequest(name="a", requests_per_minute=0), "requests_per_minute"),
        (GatewayKeyRequest(name="a", tokens_per_minute=-1), "tokens_per_minute"),
        (GatewayKeyRequest(name="a", pools=("chat",)), "pools"),
        (GatewayKeyRequest(name="a", models=("",)), "models"),
        (GatewayKeyRequest(name="a", models=("m",) * 101), "models"),
    ],
)
async def test_input_that_cannot_be_used_names_its_field(api: ApiInstance, request_: GatewayKeyRequest, field: str) -> None:
    with pytest.raises(ApiProblem) as caught:
        await api.admin.create_gateway_key(request_)
    assert field in str(caught.value)
    assert (await api.viewer.gateway_keys()).items == []


async def test_there_are_never_more_than_routers_are_told(api: ApiInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_KEYS", 2)
    first = await api.admin.create_gateway_key(GatewayKeyRequest(name="a"))
    await api.admin.create_gateway_key(GatewayKeyRequest(name="b"))
    with pytest.raises(ApiProblem, match="revoke those that nobody uses"):
        await api.admin.create_gateway_key(GatewayKeyRequest(name="c"))
    await api.admin.revoke_gateway_key(first.id)
    await api.admin.create_gateway_key(GatewayKeyRequest(name="c"))


async def test_the_secret_is_in_no_table_no_log_and_no_later_answer(
    api: ApiInstance, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made = await api.admin.create_gateway_key(GatewayKeyRequest(name="a"))
    assert made.secret is not None
    hidden = made.secret[8:]
    await api.admin.revoke_gateway_key(made.id)
    answers = f"{(await api.admin.gateway_keys()).items}{(await api.admin.audit()).items}"
    async with await psycopg.AsyncConnection.connect(plain(database_url)) as connection:
        tables = await (await connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")).fetchall()
        rows = []
        for (table,) in tables:
            rows += await (await connection.execute(f'SELECT t::text FROM "{table}" t')).fetchall()
    assert len(rows) > 2
    logs = "\n".join([caplog.text, *(str(vars(record)) for record in caplog.records)])
    assert hidden not in answers + str(rows) + logs

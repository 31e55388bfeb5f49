"""Gateway keys in the control API: made, listed, revoked, audited and sent to routers; the secret is stored nowhere."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import psycopg
import pytest

from fairlead.gateway_keys import KeyRefusal
from fairlead.reports.key_use import KeyUse
from fairlead_api.access.store import gateway_keys as store
from fairlead_api.settings import Retention
from fairlead_client.lines import GatewayKeysLine, KeptSessionsLine
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.gateway_keys import GatewayKeyChange, GatewayKeyRequest, GatewayKeyRotation, GatewayKeyTotals
from fairlead_testing.running.api import ApiInstance, a_report, running_api
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
        assert await lines.snapshot() == [GatewayKeysLine(begins=True), KeptSessionsLine()]
        made = await api.admin.create_gateway_key(GatewayKeyRequest(name="a", days=1, tokens_per_minute=5, priority_class="batch"))
        assert made.secret is not None
        assert made.expires_at is not None
        (told,) = (await lines.until(GatewayKeysLine)).keys
        assert (told.id, told.digest) == (made.id, sha256(made.secret.encode()).hexdigest())
        assert (told.tokens_per_minute, told.requests_per_minute, told.expires_at) == (5, None, made.expires_at.timestamp())
        assert told.priority_class == made.priority_class == "batch"
        async with following(api.router.api, "router-1") as later:
            assert await later.snapshot() == [GatewayKeysLine(keys=(told,), begins=True), KeptSessionsLine()]
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
        (GatewayKeyRequest(name="a", priority_class="Very Important"), "priority_class"),
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
    monkeypatch.setattr(store, "MOST_KEYS", 2)
    first = await api.admin.create_gateway_key(GatewayKeyRequest(name="a"))
    await api.admin.create_gateway_key(GatewayKeyRequest(name="b"))
    with pytest.raises(ApiProblem, match="revoke keys that are not used"):
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


def a_use(key: str, minute: float, **counts: Any) -> KeyUse:
    return KeyUse(key=key, minute=int(minute), **counts)


async def test_the_use_of_a_key_is_added_up_once_over_reports_and_routers(api: ApiInstance) -> None:
    made = await api.admin.create_gateway_key(GatewayKeyRequest(name="a"))
    unused = await api.admin.create_gateway_key(GatewayKeyRequest(name="b"))
    assert (made.last_used_at, made.last_day) == (None, GatewayKeyTotals())
    now = api.clock().timestamp()
    minute = now - now % 60
    first = a_report(
        "r1",
        key_use=(
            a_use(made.id, minute - 60, requests=2, prompt_tokens=10, output_tokens=3),
            a_use(made.id, minute - 60, prompt_tokens=5),
            a_use(made.id, minute - 60, refusal=KeyRefusal.OVER_REQUESTS, requests=4),
            a_use(made.id, minute - 7200, requests=1),
        ),
    )
    for _ in range(3):
        await api.router.post_report(first)
    await api.router.post_report(a_report("r2", key_use=(a_use(made.id, minute - 60, requests=1, prompt_tokens=1),)))
    await api.router.post_report(a_report("r1", "router-1", key_use=(a_use(made.id, minute - 60, requests=7),)))
    listed = {key.id: key for key in (await api.viewer.gateway_keys()).items}
    total = GatewayKeyTotals(requests=11, prompt_tokens=16, output_tokens=3, refused={"rejected-key-requests": 4})
    assert listed[made.id].last_day == total
    assert listed[made.id].last_used_at == datetime.fromtimestamp(minute - 60, UTC)
    assert (listed[unused.id].last_day, listed[unused.id].last_used_at) == (GatewayKeyTotals(), None)
    by_minute = await api.viewer.gateway_key_usage(made.id, {"from": "now-6h"})
    assert (by_minute.step_seconds, by_minute.total) == (60, total)
    assert [(point.at.timestamp(), point.requests) for point in by_minute.points] == [(minute - 7200, 1), (minute - 60, 10)]
    by_hour = await api.viewer.gateway_key_usage(made.id)
    assert (by_hour.step_seconds, by_hour.total, sum(point.requests for point in by_hour.points)) == (3600, total, 11)
    assert all(point.at.timestamp() % 3600 == 0 for point in by_hour.points)
    by_day = await api.viewer.gateway_key_usage(made.id, {"from": "now-30d"})
    assert (by_day.step_seconds, by_day.total) == (86_400, total)
    assert (await api.viewer.gateway_key_usage(unused.id)).points == []
    with pytest.raises(ApiProblem) as caught:
        await api.viewer.gateway_key_usage("nobody")
    assert caught.value.problem.status == 404


async def test_use_of_unknown_keys_and_impossible_times_costs_only_its_row(api: ApiInstance) -> None:
    made = await api.admin.create_gateway_key(GatewayKeyRequest(name="a"))
    now = api.clock().timestamp()
    rows = (
        a_use("nobody", now, requests=1),
        a_use(made.id, now - 91 * 86_400, requests=1),
        a_use(made.id, now + 3600, requests=1),
        a_use(made.id, now, requests=-1),
        a_use(made.id, now - 2.0, requests=5),
    )
    receipt = await api.router.post_report(a_report("r1", bindings=(), key_use=rows))
    assert not receipt.duplicate
    usage = await api.viewer.gateway_key_usage(made.id)
    assert usage.total.requests == 5
    assert [point.at.second for point in (await api.viewer.gateway_key_usage(made.id, {"from": "now-1h"})).points] == [0]


async def test_routers_that_report_one_key_at_the_same_time_lose_nothing(start_api: Callable[[], Awaitable[ApiInstance]]) -> None:
    first, second = await start_api(), await start_api()
    made = await first.admin.create_gateway_key(GatewayKeyRequest(name="a"))
    now = first.clock().timestamp()
    posts = [
        one.router.post_report(a_report(f"r{number}", f"router-{number % 3}", key_use=(a_use(made.id, now, requests=1),)))
        for number in range(30)
        for one in (first, second)
    ]
    await asyncio.gather(*posts)
    assert (await first.viewer.gateway_key_usage(made.id)).total.requests == 30


async def test_old_use_goes_but_for_the_minute_of_the_last_use(database_url: str) -> None:
    async with running_api(database_url, retention=Retention(rollups_1m_days=30)) as api:
        made = await api.admin.create_gateway_key(GatewayKeyRequest(name="a"))
        now = api.clock().timestamp()
        rows = tuple(a_use(made.id, now - days * 86_400, requests=1) for days in (1, 2, 3))
        await api.router.post_report(a_report("r1", key_use=(*rows, a_use(made.id, now, refusal=KeyRefusal.EXPIRED, requests=1))))
        last_used = (await api.viewer.gateway_keys()).items[0].last_used_at
        api.clock.skip(40 * 86_400)
        await api.app.state.upkeep.keep_days(api.clock())
        kept = await api.viewer.gateway_key_usage(made.id, {"from": "now-90d"})
        assert (kept.total.requests, kept.total.refused) == (1, {"key-expired": 1})
        assert (await api.viewer.gateway_keys()).items[0].last_used_at == last_used


async def test_a_key_is_changed_field_by_field_and_the_audit_log_has_only_what_changed(api: ApiInstance) -> None:
    key = await api.operator.create_gateway_key(GatewayKeyRequest(name="team", days=2, pools=("default/a",), requests_per_minute=60))
    change = GatewayKeyChange(name="crew", requests_per_minute=0, tokens_per_minute=5, pools=(), priority_class="batch", days=0)
    changed = await api.operator.change_gateway_key(key.id, change)
    assert (changed.name, changed.requests_per_minute, changed.tokens_per_minute) == ("crew", None, 5)
    assert (changed.pools, changed.priority_class, changed.expires_at, changed.explain) == ((), "batch", None, False)
    (entry,) = (await api.viewer.audit({"action": "gateway-key.changed"})).items
    assert entry.before is not None
    assert entry.before.keys() == {"name", "requests_per_minute", "tokens_per_minute", "pools", "priority_class", "expires_at"}
    assert await api.operator.change_gateway_key(key.id, change) == changed, "sent again, it changes nothing"
    assert len((await api.viewer.audit({"action": "gateway-key.changed"})).items) == 1
    with pytest.raises(ApiProblem, match="tokens_per_minute"):
        await api.operator.change_gateway_key(key.id, GatewayKeyChange(tokens_per_minute=-1))


async def test_a_rotated_key_has_a_new_secret_and_routers_know_both_until_the_former_one_ends(api: ApiInstance) -> None:
    async with following(api.router.api, "router-0") as lines:
        await lines.snapshot()
        key = await api.operator.create_gateway_key(GatewayKeyRequest(name="team"))
        await lines.until(GatewayKeysLine)
        rotated = await api.operator.rotate_gateway_key(key.id, GatewayKeyRotation(hours=2))
        assert rotated.secret not in {None, key.secret}
        assert rotated.former_until is not None
        new, former = (await lines.until(GatewayKeysLine)).keys
        assert (new.id, former.id) == (key.id, key.id)
        assert [one.digest for one in (new, former)] == [sha256(str(one).encode()).hexdigest() for one in (rotated.secret, key.secret)]
        assert (new.expires_at, former.expires_at) == (None, rotated.former_until.timestamp())
        at_once = await api.operator.rotate_gateway_key(key.id, GatewayKeyRotation(hours=0))
        (only,) = (await lines.until(GatewayKeysLine)).keys
        assert (only.digest, at_once.former_until) == (sha256(str(at_once.secret).encode()).hexdigest(), None)
    entries = (await api.viewer.audit({"action": "gateway-key.rotated"})).items
    assert [entry.object for entry in entries] == [key.id, key.id]
    assert all(secret not in str(entries) for secret in (key.secret, rotated.secret, at_once.secret) if secret)
    with pytest.raises(ApiProblem, match="hours"):
        await api.operator.rotate_gateway_key(key.id, GatewayKeyRotation(hours=1000))

"""Notices: written in the transaction of their event, posted signed, retried, recorded; secrets are shown once."""

import json
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import psycopg
import pytest

from fairlead.instances import InstanceState
from fairlead.pool_states import PoolEvent, SchedulesInForce
from fairlead.pools import parse_spec
from fairlead.reports.engines import EngineTrouble, TroubledEngine
from fairlead_api.settings import Retention
from fairlead_api.webhooks.deliveries import MOST_ATTEMPTS
from fairlead_api.webhooks.messages import signature
from fairlead_api.webhooks.posting import HttpPost
from fairlead_api.webhooks.receivers import receiver_of
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.plans import ApplyRequest
from fairlead_client.resources.webhooks import NoticeForm, NoticeKind, NoticeState, Webhook, WebhookNotice, WebhookRequest
from fairlead_process.logs import CHATTY
from fairlead_testing.fakes.cluster_gateway import FakeClusterGateway
from fairlead_testing.running.api import CHAT, SPEC, ApiInstance, a_report, a_state, an_instance, running_api
from fairlead_testing.running.notice_receiver import PATH, Receiver, receiving
from fairlead_testing.running.postgres import plain

LOOPBACK = (ip_network("127.0.0.0/8"),)


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[ApiInstance]:
    cluster = FakeClusterGateway()
    cluster.add(CHAT, 2)
    async with running_api(database_url, webhook_networks=LOOPBACK, overrides={"cluster": cluster}) as instance:
        yield instance


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as found:
        yield found


async def webhook(api: ApiInstance, receiver: Receiver, **changes: Any) -> Webhook:
    return await api.admin.create_webhook(WebhookRequest(**{"name": "on-call", "url": receiver.url, **changes}))


async def deliver(api: ApiInstance) -> None:
    await api.app.state.deliveries.deliver(api.clock())


async def told(api: ApiInstance) -> list[WebhookNotice]:
    return (await api.viewer.notices()).items


def condition(kind: str, status: str, reason: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": f"{reason} in words"}


async def test_each_kind_of_event_is_one_notice_however_often_the_state_is_repeated(api: ApiInstance, receiver: Receiver) -> None:
    await webhook(api, receiver)
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    stalled = TroubledEngine(pool=CHAT, instance="b", trouble=EngineTrouble.ENGINE_STALLED, words="it moves nothing", seconds=61)
    slow = TroubledEngine(pool=CHAT, instance="a", trouble=EngineTrouble.ENGINE_SLOW, words="it is slow")
    for router in ("router-0", "router-1"):
        await api.router.post_report(a_report(f"r-{router}", router, troubled_engines=(stalled, slow)))
    conditions = (condition("SLOMet", "False", "TargetMissed"), condition("Progressing", "False", "RolloutRegressed"))
    after = a_state(an_instance("a", InstanceState.LOST, reason="NotReady"), an_instance("b"), version=2, conditions=conditions)
    for _ in range(3):
        await api.pool_operator.put_pool_state(CHAT, after)
    vanished = PoolEvent(at=api.clock().timestamp(), reason="InstanceVanished", message="b is gone: its pod was deleted", instance="b")
    for _ in range(2):
        await api.pool_operator.post_pool_events(CHAT, [vanished])
    plan = await api.operator.create_scale_plan(CHAT, 3)
    for _ in range(2):
        await api.operator.apply_plan(plan.id, ApplyRequest(reason="load"))
    found = {(one.kind, one.subject): one for one in await told(api)}
    assert sorted(found) == [
        ("instance.lost", "a"),
        ("instance.lost", "b"),
        ("instance.stalled", "b"),
        ("plan.applied", plan.id),
        ("pool.out-of-slo", "default/chat"),
        ("rollout.halted", "default/chat"),
    ]
    assert len(await told(api)) == len(found)
    assert found[NoticeKind.OUT_OF_SLO, "default/chat"].words == "default/chat misses its objectives: TargetMissed in words"
    assert found[NoticeKind.PLAN_APPLIED, plan.id].words == f"test-operator applied plan {plan.id} (scale) to default/chat: load"
    await deliver(api)
    await deliver(api)
    assert sorted(receiver.kinds) == sorted(str(kind) for kind, _ in found)
    assert {one.state for one in await told(api)} == {NoticeState.DELIVERED}


async def test_targets_of_tasks_that_are_missed_are_noticed_as_objectives_are(api: ApiInstance, receiver: Receiver) -> None:
    await webhook(api, receiver, kinds=(NoticeKind.OUT_OF_SLO,))
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), conditions=(condition("TaskSLOMet", "True", "TargetMet"),)))
    missed = (condition("TaskSLOMet", "False", "TargetMissed"),)
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), version=2, conditions=missed))
    assert [one.words for one in await told(api)] == ["default/chat misses its targets of tasks: TargetMissed in words"]


async def test_skipped_starts_of_schedules_are_noticed_once_with_their_reason(api: ApiInstance, receiver: Receiver) -> None:
    await webhook(api, receiver, kinds=(NoticeKind.SCHEDULE_SKIPPED,))
    schedule = {
        "name": "night",
        "cron": "0 22 * * *",
        "timeZone": "UTC",
        "duration": "1h",
        "paused": True,
        "roles": [{"name": "both", "minReplicas": 2}],
    }
    document = {**SPEC, "scaling": {"schedules": [schedule]}}
    spec = parse_spec(document)
    at = api.clock() - timedelta(days=3)
    for days in (0, 1, 1):
        in_force = SchedulesInForce(at=at + timedelta(days=days), windows=(), slo=spec.slo, early_rejection=spec.early_rejection)
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), spec=document, schedules=in_force))
    (one,) = await told(api)
    assert (one.kind, one.subject, one.pool) == (NoticeKind.SCHEDULE_SKIPPED, "night", "default/chat")
    assert one.words.endswith("it is paused")


async def test_what_a_receiver_gets_is_signed_with_the_secret_that_was_shown_once(api: ApiInstance, receiver: Receiver) -> None:
    made = await webhook(api, receiver)
    assert made.secret is not None and made.secret.startswith("whsec_")
    sent = await api.admin.test_webhook(made.id)
    await deliver(api)
    ((headers, content),) = receiver.came
    assert headers["webhook-id"] == sent.id
    assert headers["webhook-signature"] == signature(made.secret, sent.id, headers["webhook-timestamp"], content)
    assert json.loads(content)["type"] == "test"
    (listed,) = (await api.viewer.webhooks()).items
    assert (listed.secret, listed.origin, listed.last_problem) == (None, receiver.url.removesuffix(PATH), None)
    assert listed.delivered_at is not None


async def test_slack_gets_a_text(api: ApiInstance, receiver: Receiver) -> None:
    made = await webhook(api, receiver, form=NoticeForm.SLACK, name="<!here> & co")
    await api.admin.test_webhook(made.id)
    await deliver(api)
    assert json.loads(receiver.came[0][1]) == {"text": "test-admin tests the webhook &lt;!here&gt; &amp; co of Fairlead"}


async def test_a_failing_receiver_gets_the_same_notice_again_later_and_later_and_at_last_no_more(
    api: ApiInstance, receiver: Receiver
) -> None:
    api.clock.stop()
    made = await webhook(api, receiver)
    receiver.status = 500
    sent = await api.admin.test_webhook(made.id)
    pauses = []
    for number in range(1, MOST_ATTEMPTS + 1):
        await deliver(api)
        await deliver(api)
        one = await api.viewer.notice(sent.id)
        assert (len(one.attempts), one.attempts[-1].status, one.attempts[-1].problem) == (number, 500, "answered 500")
        if one.due_at is not None:
            pauses.append((one.due_at - api.clock()).total_seconds())
            api.clock.skip(pauses[-1] + 1)
    assert one.state is NoticeState.FAILED
    assert 5 <= pauses[0] < 6.1 and 14_400 <= pauses[-1] <= 17_280 and pauses[:6] == sorted(pauses[:6])
    api.clock.skip(86_400)
    await deliver(api)
    assert len(receiver.came) == MOST_ATTEMPTS
    assert {headers["webhook-id"] for headers, _ in receiver.came} == {sent.id}
    assert len({content for _, content in receiver.came}) == 1
    assert len({headers["webhook-timestamp"] for headers, _ in receiver.came}) == MOST_ATTEMPTS, "an old one cannot be played again"


async def test_a_redirect_is_not_followed(api: ApiInstance, receiver: Receiver) -> None:
    made = await webhook(api, receiver)
    receiver.status = 307
    sent = await api.admin.test_webhook(made.id)
    await deliver(api)
    assert len(receiver.came) == 1
    assert (await api.viewer.notice(sent.id)).attempts[-1].problem == "redirected (307); write the address it leads to"


async def test_a_proxy_resolves_names_and_ip_addresses_are_judged_before_it(receiver: Receiver) -> None:
    post = HttpPost((), {"HTTP_PROXY": receiver.url.removesuffix(PATH)})
    assert await post(receiver_of("http://receiver.example/a"), b"{}", {}) == (204, None)
    assert receiver.came[0][0]["host"] == "receiver.example"
    assert (await post(receiver_of("http://10.0.0.1/a"), b"{}", {}))[0] is None
    assert len(receiver.came) == 1


async def test_an_attempt_whose_process_ended_is_repeated_with_the_same_id(api: ApiInstance, receiver: Receiver) -> None:
    api.clock.stop()
    made = await webhook(api, receiver)
    sent = await api.admin.test_webhook(made.id)
    claims = api.app.state.deliveries._store
    (claimed,) = await claims.claim(api.clock())
    assert claimed.message.id == sent.id
    await deliver(api)
    assert receiver.came == [], "it is another process's for a minute"
    api.clock.skip(61)
    await deliver(api)
    one = await api.viewer.notice(sent.id)
    assert one.state is NoticeState.DELIVERED
    assert [attempt.problem is None for attempt in one.attempts] == [False, True]


async def test_a_webhook_gets_only_the_kinds_and_pools_it_names(api: ApiInstance, receiver: Receiver) -> None:
    await webhook(api, receiver, name="other pool", pools=("default/other",))
    await webhook(api, receiver, name="other kind", kinds=(NoticeKind.PLAN_APPLIED,))
    wanted = await webhook(api, receiver, name="this", kinds=(NoticeKind.INSTANCE_LOST,), pools=("default/chat",))
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a", InstanceState.LOST), version=2))
    assert [one.webhook for one in await told(api)] == [wanted.id]


async def test_a_pool_at_its_limit_makes_one_notice_in_ten_minutes(api: ApiInstance, receiver: Receiver) -> None:
    api.clock.stop()
    await webhook(api, receiver)
    for version in range(1, 42):
        met = "True" if version % 2 else "False"
        state = a_state(an_instance("a"), version=version, conditions=(condition("SLOMet", met, "x"),))
        await api.pool_operator.put_pool_state(CHAT, state)
        api.clock.skip(30)
    assert [one.kind for one in await told(api)] == [NoticeKind.OUT_OF_SLO] * 2


async def test_nothing_secret_is_in_answers_logs_or_the_audit_log(
    api: ApiInstance, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made = await webhook(api, receiver)
    receiver.status = 500
    await api.admin.test_webhook(made.id)
    await deliver(api)
    with pytest.raises(ApiProblem) as refused:
        await api.admin.create_webhook(WebhookRequest(name="x", url=f"ftp://user:{PATH}@host{PATH}"))
    await api.admin.delete_webhook(made.id)
    entries = (await api.admin.audit()).items
    shown = [repr(one) for one in (*(await api.admin.webhooks()).items, *(await told(api)), *entries, refused.value.problem)]
    assert [entry.action for entry in entries][:3] == ["webhook.deleted", "webhook.tested", "webhook.created"]
    assert made.secret is not None
    ours = [repr(record.__dict__) for record in caplog.records if not record.name.startswith((*CHATTY, "aiohttp.access"))]
    for text in (*shown, *ours):
        assert "secret-path" not in text and made.secret not in text
    assert await told(api) == []


@pytest.mark.parametrize(
    ("request_", "field_"),
    [
        (WebhookRequest(name=" ", url="https://example.com/x"), "name"),
        (WebhookRequest(name="a", url="https://example.com/x", kinds=(NoticeKind.TEST,)), "kinds"),
        (WebhookRequest(name="a", url="https://example.com/x", pools=("chat",)), "pools"),
        (WebhookRequest(name="a", url="https://10.0.0.1/x"), "url"),
        (WebhookRequest(name="a", url="http://169.254.169.254/latest"), "url"),
        (WebhookRequest(name="a", url="http://[::1]/"), "url"),
    ],
)
async def test_what_cannot_be_used_is_named(api: ApiInstance, request_: WebhookRequest, field_: str) -> None:
    with pytest.raises(ApiProblem) as refused:
        await api.admin.create_webhook(request_)
    assert (refused.value.problem.status, refused.value.problem.field) == (422, field_)


async def test_there_are_at_most_a_hundred_webhooks(api: ApiInstance, database_url: str) -> None:
    with psycopg.connect(plain(database_url)) as connection:
        connection.execute(
            b"INSERT INTO webhooks (id, name, url, secret, form, kinds, pools, created_at, created_by) "
            b"SELECT 'w' || n, 'x', 'https://example.com', 'whsec_', 'json', '{}', '{}', now(), 'x' FROM generate_series(1, 100) n"
        )
    with pytest.raises(ApiProblem) as refused:
        await api.admin.create_webhook(WebhookRequest(name="x", url="https://example.com"))
    assert refused.value.problem.type == "too-many-webhooks"


async def test_old_notices_go_and_those_that_wait_stay(database_url: str, receiver: Receiver) -> None:
    async with running_api(database_url, webhook_networks=LOOPBACK, retention=Retention(notices_days=30)) as api:
        made = await webhook(api, receiver)
        delivered, waiting = await api.admin.test_webhook(made.id), None
        await deliver(api)
        waiting = await api.admin.test_webhook(made.id)
        api.clock.skip(31 * 86_400)
        await api.app.state.upkeep.keep_days(api.clock())
        assert [one.id for one in await told(api)] == [waiting.id]
        assert delivered.id != waiting.id

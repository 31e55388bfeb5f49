"""Processes are killed at bad moments: every acknowledged record is there afterwards, once."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psycopg
import pytest
import yaml
from aiohttp import web

from fairlead.instances import InstanceState
from fairlead.reports.batches import Report
from fairlead_api.plans.objects import Target
from fairlead_client.client import ControlApi
from fairlead_client.internal import SystemApi
from fairlead_client.problems import ApiUnreachable
from fairlead_client.resources.plans import ApplyRequest
from fairlead_client.resources.webhooks import WebhookRequest
from fairlead_testing.fakes.cluster_gateway import FakeClusterGateway
from fairlead_testing.running.api import BOOTSTRAP, CHAT, SECRETS, a_binding, a_report, a_state, an_instance, running_api
from fairlead_testing.running.notice_receiver import receiving
from fairlead_testing.running.patient_transport import PatientTransport
from fairlead_testing.running.postgres import plain
from fairlead_testing.running.strict_system_api import NotTaken, StrictSystemApi, taken
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.ports import free_port


@asynccontextmanager
async def api_process(database_url: str, port: int, **more: str) -> AsyncIterator["subprocess.Popen[bytes]"]:
    tokens = ",".join(":".join(token) for token in BOOTSTRAP)
    environment = {**os.environ, "FAIRLEAD_DATABASE_URL": database_url, "FAIRLEAD_BOOTSTRAP_TOKENS": tokens, "FAIRLEAD_WEB": "0", **more}
    process = subprocess.Popen([sys.executable, "-m", "fairlead_api.main", "--port", str(port)], env=environment)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), httpx.AsyncClient(timeout=PATIENCE_SECONDS) as http:
            while True:
                try:
                    if (await http.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200:
                        break
                except httpx.HTTPError:
                    assert process.poll() is None
                await asyncio.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)


async def test_a_killed_api_process_loses_and_doubles_nothing(database_url: str) -> None:
    port = free_port()
    sent = [a_report(f"r{number}", bindings=(a_binding(f"s{number}", "ab"[number % 2]),)) for number in range(200)]
    acknowledged: set[str] = set()
    url = f"http://127.0.0.1:{port}"
    async with (
        api_process(database_url, port) as process,
        SystemApi(url, SECRETS["system-router"], timeout_seconds=PATIENCE_SECONDS, transport=PatientTransport()) as router_api,
        SystemApi(url, SECRETS["system-operator"], timeout_seconds=PATIENCE_SECONDS, transport=PatientTransport()) as operator_api,
    ):
        taken(await operator_api.put_state(CHAT, a_state(an_instance("a"), an_instance("b"))))
        client = StrictSystemApi(router_api)

        async def send(reports: list[Report]) -> None:
            for report in reports:
                acknowledged.add((await client.post_report(report)).id)

        senders = [asyncio.create_task(send(sent[start::4])) for start in range(4)]
        while len(acknowledged) < 20 and not all(sender.done() for sender in senders):
            await asyncio.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        results = await asyncio.gather(*senders, return_exceptions=True)
        assert any(isinstance(result, NotTaken) for result in results)
    async with running_api(database_url) as api:
        stored = {item.session for item in (await api.viewer.sessions({"limit": 100})).items}
        total = (await api.viewer.sessions({})).total
        assert len(acknowledged) <= (total or 0) < 200
        receipts = [await api.router.post_report(report) for report in sent]
        assert acknowledged <= {receipt.id for receipt in receipts if receipt.duplicate}
        assert stored
        assert (await api.viewer.sessions({})).total == 200
        assert (await api.admin.audit_verification()).intact


async def test_what_a_killed_api_process_applied_is_recorded_by_the_next_one(database_url: str, tmp_path: Path) -> None:
    cluster, patched = FakeClusterGateway(), asyncio.Event()
    cluster.add(CHAT, 4)

    async def answered(request: web.Request) -> web.Response:
        target = Target.of_pool(CHAT)
        if request.method == "PATCH":
            body, dry = await request.json(), "dryRun" in request.query
            marks = {name: value for name, value in body["metadata"]["annotations"].items() if value is not None}
            found = await cluster.patch(target, body["spec"], body["metadata"]["resourceVersion"], marks, dry_run=dry)
            if not dry:
                patched.set()
                await asyncio.sleep(PATIENCE_SECONDS)  # the answer comes to nobody: who asked is killed
        else:
            found = await cluster.read(target)
        about = {"uid": found.uid, "resourceVersion": found.resource_version, "generation": found.generation}
        return web.json_response({"metadata": {**about, "annotations": dict(found.annotations)}, "spec": dict(found.spec)})

    kubernetes = web.Application()
    kubernetes.router.add_route("*", "/{path:.*}", answered)
    runner = web.AppRunner(kubernetes, shutdown_timeout=0.1)  # 0 would wait for ever
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", free_port())
    await site.start()
    kubeconfig = tmp_path / "kubeconfig"
    named = [{"name": "one", "cluster": {"server": site.name}}]
    context = [{"name": "one", "context": {"cluster": "one", "user": "one"}}]
    users = [{"name": "one", "user": {}}]
    kubeconfig.write_text(yaml.safe_dump({"clusters": named, "contexts": context, "users": users, "current-context": "one"}))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with (
        api_process(database_url, port, KUBECONFIG=str(kubeconfig)) as process,
        SystemApi(url, SECRETS["system-operator"], timeout_seconds=PATIENCE_SECONDS, transport=PatientTransport()) as operator_api,
        ControlApi(url, SECRETS["operator"], PatientTransport(), timeout_seconds=PATIENCE_SECONDS) as person,
    ):
        taken(await operator_api.put_state(CHAT, a_state(an_instance("a"))))
        plan = await person.create_scale_plan(CHAT, 6)
        applying = asyncio.create_task(person.apply_plan(plan.id, ApplyRequest(reason="load")))
        await asyncio.wait_for(patched.wait(), PATIENCE_SECONDS)
        process.send_signal(signal.SIGKILL)
        with pytest.raises(ApiUnreachable):
            await applying
    async with running_api(database_url, overrides={"cluster": cluster}) as api:
        api.clock.stop()
        assert (await api.viewer.plan(plan.id)).state == "open", "it may still be under way"
        api.clock.skip(700)
        await api.app.state.upkeep.close_plans(api.clock())
        found = await api.viewer.plan(plan.id)
        assert (found.state, found.applied_by) == ("applied", "test-operator")
        assert found.applied_at is not None and found.applied_at < plan.expires_at
        (entry,) = (await api.admin.audit({"action": "plan.applied"})).items
        assert (entry.actor, entry.role, entry.reason, entry.plan) == ("test-operator", "operator", "load", plan.id)
        back = await api.operator.undo_plan(plan.id)
        await api.operator.apply_plan(back.id, ApplyRequest(confirm="chat", reason="back"))
        assert cluster.spec(CHAT)["replicas"] == 4
    await runner.cleanup()


async def test_no_notice_is_lost_and_none_is_sent_again_that_was_recorded(database_url: str) -> None:
    ports = [free_port(), free_port()]
    allowed = {"FAIRLEAD_WEBHOOK_NETWORKS": "127.0.0.0/8"}

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                await asyncio.sleep(0.05)

    async with receiving() as receiver:
        async with (
            api_process(database_url, ports[0], **allowed) as process,
            SystemApi(
                f"http://127.0.0.1:{ports[0]}",
                SECRETS["system-operator"],
                timeout_seconds=PATIENCE_SECONDS,
                transport=PatientTransport(),
            ) as operator_api,
            ControlApi(f"http://127.0.0.1:{ports[0]}", SECRETS["admin"], PatientTransport(), timeout_seconds=PATIENCE_SECONDS) as person,
        ):
            await person.create_webhook(WebhookRequest(name="on-call", url=receiver.url))
            taken(await operator_api.put_state(CHAT, a_state(an_instance("a"), an_instance("b"))))
            taken(await operator_api.put_state(CHAT, a_state(an_instance("a", InstanceState.LOST), an_instance("b"), version=2)))
            await until(lambda: len(receiver.came) == 1)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (await person.notices()).items[0].state != "delivered":
                    await asyncio.sleep(0.05)
            receiver.free.clear()
            lost = (an_instance("a", InstanceState.LOST), an_instance("b", InstanceState.LOST))
            taken(await operator_api.put_state(CHAT, a_state(*lost, version=3)))
            await until(lambda: len(receiver.came) == 2)
            process.send_signal(signal.SIGKILL)
        receiver.free.set()
        with psycopg.connect(plain(database_url)) as connection:
            connection.execute("UPDATE notices SET due_at = now() WHERE state = 'waiting'")  # the claim's minute is over
        async with api_process(database_url, ports[1], **allowed):
            await until(lambda: len(receiver.came) == 3)
        ids = [headers["webhook-id"] for headers, _ in receiver.came]
        assert ids[1] == ids[2] != ids[0]
        assert [json.loads(content)["data"]["subject"] for _, content in receiver.came] == ["a", "b", "b"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"FAIRLEAD_DATABASE_URL": "postgresql+psycopg://x@127.0.0.1:1/none"}, "does not answer"),
        ({"FAIRLEAD_DATABASE_URL": "mysql://x"}, "postgresql+psycopg://"),
        ({"FAIRLEAD_BOOTSTRAP_TOKENS": "root:x:short"}, "FAIRLEAD_BOOTSTRAP_TOKENS"),
        ({"FAIRLEAD_AUTH_MODE": "open"}, "FAIRLEAD_AUTH_MODE"),
        ({"TAKEN_PORT": "1"}, "--port"),
    ],
)
async def test_an_impossible_start_ends_with_one_line(database_url: str, changes: dict[str, str], said: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1] if "TAKEN_PORT" in changes else free_port()
        environment = {**os.environ, "FAIRLEAD_DATABASE_URL": database_url, **changes}
        command = [sys.executable, "-m", "fairlead_api.main", "--port", str(port), "--wait-for-database", "0"]
        ended = await asyncio.to_thread(
            subprocess.run, command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    assert ended.returncode == (1 if said == "does not answer" else 2)
    assert len(ended.stderr.strip().splitlines()) == 1
    assert said in ended.stderr

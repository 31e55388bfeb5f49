"""The example of a receiver of notices, with notices as Fairlead sends them."""

import asyncio
import os
import subprocess
import sys
from ipaddress import ip_network
from pathlib import Path

import httpx
import psycopg

from fairlead_client.resources.webhooks import NoticeState, WebhookRequest
from fairlead_testing.running.api import running_api
from fairlead_testing.running.postgres import plain
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.ports import free_port

RECEIVER = Path(__file__).resolve().parents[3] / "examples" / "notices" / "receiver.py"


async def test_the_example_takes_a_notice_once_and_refuses_what_is_not_signed(database_url: str) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    async with running_api(database_url, webhook_networks=(ip_network("127.0.0.0/8"),)) as api:
        made = await api.admin.create_webhook(WebhookRequest(name="example", url=url))
        environment = {**os.environ, "NOTICE_SECRET": made.secret or ""}
        process = subprocess.Popen([sys.executable, str(RECEIVER), str(port)], env=environment, stdout=subprocess.PIPE, text=True)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), httpx.AsyncClient() as http:
                while True:
                    try:
                        forged = await http.post(url, content=b"{}", headers={"webhook-id": "x", "webhook-timestamp": "1"})
                        break
                    except httpx.HTTPError:
                        assert process.poll() is None
                        await asyncio.sleep(0.05)
            assert forged.status_code == 401
            sent = await api.admin.test_webhook(made.id)
            for _ in range(2):
                await api.app.state.deliveries.deliver(api.clock())
                assert (await api.viewer.notice(sent.id)).state is NoticeState.DELIVERED
                again(database_url, sent.id)
        finally:
            process.kill()
        lines = (process.communicate(timeout=PATIENCE_SECONDS)[0]).splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["test test-admin tests the webhook example of Fairlead"]


def again(url: str, notice: str) -> None:
    """Make a delivered notice due again, like one whose outcome was not recorded."""
    with psycopg.connect(plain(url)) as connection:
        connection.execute("UPDATE notices SET state = 'waiting', due_at = now() WHERE id = %s", (notice,))

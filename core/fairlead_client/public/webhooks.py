"""Webhooks, and the notices that are sent to them."""

from fairlead_client.public.calling import ApiCalls, Query, segment
from fairlead_client.resources.pages import Page
from fairlead_client.resources.webhooks import Webhook, WebhookNotice, WebhookRequest


class WebhookCalls(ApiCalls):
    """Calls about webhooks and notices."""

    async def webhooks(self, *, cursor: str | None = None, limit: int | None = None) -> Page[Webhook]:
        return await self._call("GET", "/v1/webhooks", Page[Webhook], query={"cursor": cursor, "limit": limit})

    async def create_webhook(self, request: WebhookRequest) -> Webhook:
        return await self._call("POST", "/v1/webhooks", Webhook, body=request)

    async def delete_webhook(self, webhook_id: str) -> None:
        await self._call("DELETE", f"/v1/webhooks/{segment(webhook_id)}", None)

    async def test_webhook(self, webhook_id: str) -> WebhookNotice:
        """Send a test notice. The notice waits to be delivered; `notice` shows the result."""
        return await self._call("POST", f"/v1/webhooks/{segment(webhook_id)}/test", WebhookNotice)

    async def notices(self, filters: Query | None = None) -> Page[WebhookNotice]:
        return await self._call("GET", "/v1/notices", Page[WebhookNotice], query=filters)

    async def notice(self, notice_id: str) -> WebhookNotice:
        return await self._call("GET", f"/v1/notices/{segment(notice_id)}", WebhookNotice)

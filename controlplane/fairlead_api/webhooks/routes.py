"""Routes of webhooks and of their notices."""

import secrets
import time
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, Query

from fairlead_api.access.guards import Guard
from fairlead_api.features import Feature, Infra
from fairlead_api.http.answers import answer
from fairlead_api.http.bodies import known_fields
from fairlead_api.http.listing import Fetch, listing
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Caller
from fairlead_api.webhooks.deliveries import Deliveries
from fairlead_api.webhooks.messages import SECRET_BYTES, new_secret
from fairlead_api.webhooks.posting import HttpPost
from fairlead_api.webhooks.receivers import Networks, new_webhook
from fairlead_api.webhooks.store.webhooks import PostgresClaims, PostgresWebhooks
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.webhooks import Webhook, WebhookNotice, WebhookRequest


def webhook_routes(guard: Guard, stored: PostgresWebhooks, networks: Networks, clock: Callable[[], datetime]) -> Routes:
    """Return the routes of /v1/webhooks and /v1/notices. Receivers' addresses must be public or in `networks`."""
    routes = Routes(prefix="/v1", tags=["webhooks"])
    viewer = guard.needs(AccessRole.VIEWER)
    Admin = Annotated[Caller, Depends(guard.needs(AccessRole.ADMIN))]  # noqa: N806 - it is a type

    async def all_webhooks() -> Fetch:
        return lambda span: stored.webhooks(span.cursor, span.limit)

    listing(routes, "/webhooks", Webhook, viewer, all_webhooks, about="Webhooks, newest first, without addresses and secrets.")

    async def all_notices(webhook: Annotated[str | None, Query(max_length=100)] = None) -> Fetch:
        return lambda span: stored.notices(webhook, span.cursor, span.limit)

    listing(routes, "/notices", WebhookNotice, viewer, all_notices, about="Notices with their attempts, newest first.")

    @routes.get("/notices/{notice_id}", response_model=WebhookNotice, dependencies=[Depends(viewer)])
    async def get_notice(notice_id: str) -> Any:
        """One notice, with the attempts to deliver it."""
        return answer(await stored.notice(notice_id))

    @routes.post("/webhooks", status_code=201, dependencies=[Depends(known_fields(WebhookRequest))])
    async def create_webhook(body: WebhookRequest, caller: Admin) -> Webhook:
        """Makes a webhook. Only this response contains the secret that signs the webhook's notices; no response
        contains its address.
        """
        now = clock()
        made = new_webhook(body, new_secret(secrets.token_bytes(SECRET_BYTES)), networks, caller, now)
        return await stored.add(made, body.url, caller, now)

    @routes.post("/webhooks/{webhook_id}/test", status_code=201)
    async def test_webhook(webhook_id: str, caller: Admin) -> WebhookNotice:
        """Sends a test notice to the webhook. The attempts to deliver it are at /v1/notices/{notice_id}."""
        return await stored.test(webhook_id, f"msg_{secrets.token_hex(16)}", caller, clock())

    @routes.delete("/webhooks/{webhook_id}", status_code=204)
    async def delete_webhook(webhook_id: str, caller: Admin) -> None:
        """Deletes a webhook with its notices. Notices that have not been delivered are not sent any more."""
        await stored.delete(webhook_id, caller, clock())

    return routes


def deliveries_of(infra: Infra) -> Deliveries:
    """Return the job that delivers due notices."""
    return Deliveries(PostgresClaims(infra.background), HttpPost(infra.settings.webhook_networks), infra.clock, time.monotonic)


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of webhooks and notices."""
    return Feature(routes=(webhook_routes(guard, PostgresWebhooks(infra.control), infra.settings.webhook_networks, infra.clock),))

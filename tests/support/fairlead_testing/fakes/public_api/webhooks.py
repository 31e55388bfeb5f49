"""Webhooks and notices; a test notice is delivered at once."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.webhooks import NoticeAttempt, NoticeForm, NoticeKind, NoticeState, Webhook, WebhookNotice, WebhookRequest
from fairlead_testing.fakes.public_api.access import Access
from fairlead_testing.fakes.public_api.answers import Refusal, as_json, list_routes
from fairlead_testing.fakes.public_data.loads import HOSTILE


class Webhooks:
    """Two webhooks: one works, and the receiver of the other is unreachable."""

    def __init__(self, access: Access, clock: Callable[[], datetime]) -> None:
        self._access = access
        self._clock = clock
        self.fail_tests_with: str | None = None
        now = clock()
        made = {"created_at": now - timedelta(days=3), "created_by": "admin-person"}
        slack = Webhook(
            id="wh-1",
            name=HOSTILE,
            origin="https://hooks.slack.com",
            form=NoticeForm.SLACK,
            kinds=(NoticeKind.OUT_OF_SLO,),
            pools=("default/chat",),
            waiting=1,
            last_problem="answered 503",
            **made,  # type: ignore[arg-type]  # both are of the type of their field
        )
        works = Webhook(id="wh-0", name="on-call", origin="https://hooks.example.com", form=NoticeForm.JSON, kinds=(), pools=(), **made)  # type: ignore[arg-type]  # as above
        self.webhooks = [slack, replace(works, delivered_at=now - timedelta(minutes=5))]
        fails = tuple(NoticeAttempt(at=now - timedelta(seconds=9 - n), seconds=0.2, status=503, problem="answered 503") for n in range(2))
        late = self._notice("msg_1", "wh-1", NoticeKind.OUT_OF_SLO, f"default/chat misses its objectives: {HOSTILE}")
        lost = self._notice("msg_0", "wh-0", NoticeKind.INSTANCE_LOST, "Instance chat-2 of default/chat is lost: NotReady")
        done = (NoticeAttempt(at=now - timedelta(minutes=5), seconds=0.05, status=204),)
        self.notices = [
            replace(late, attempts=fails, due_at=now + timedelta(seconds=70)),
            replace(lost, state=NoticeState.DELIVERED, attempts=done),
        ]

    def _notice(self, notice_id: str, webhook: str, kind: NoticeKind, words: str) -> WebhookNotice:
        now = self._clock()
        pool = "" if kind is NoticeKind.TEST else "default/chat"
        return WebhookNotice(
            id=notice_id, webhook=webhook, kind=kind, pool=pool, subject=pool or webhook, words=words, at=now, state=NoticeState.WAITING
        )

    def routes(self) -> list[Route]:
        guard, admin = self._access.guard, AccessRole.ADMIN
        return [
            *list_routes("/v1/webhooks", lambda _: self.webhooks, guard),
            Route("/v1/webhooks", guard(self._create, admin), methods=["POST"]),
            Route("/v1/webhooks/{webhook}/test", guard(self._test, admin), methods=["POST"]),
            Route("/v1/webhooks/{webhook}", guard(self._delete, admin), methods=["DELETE"]),
            *list_routes("/v1/notices", self._listed, guard),
            Route("/v1/notices/{notice}", guard(self._one)),
        ]

    def _listed(self, request: Request) -> list[WebhookNotice]:
        wanted = request.query_params.get("webhook")
        return [one for one in self.notices if wanted in {None, one.webhook}]

    async def _create(self, request: Request) -> Response:
        asked = msgspec.json.decode(await request.body(), type=WebhookRequest)
        parts = urlsplit(asked.url)
        if parts.scheme != "https":
            raise Refusal(422, "Input cannot be used", "url: write https://host/path", "invalid-input", field="url")
        made = Webhook(
            id=f"wh-{len(self.webhooks)}",
            name=asked.name,
            origin=f"https://{parts.netloc}",
            form=asked.form,
            kinds=asked.kinds,
            pools=asked.pools,
            created_at=self._clock(),
            created_by=self._access.identity(request).subject,
        )
        self.webhooks.insert(0, made)
        return as_json(replace(made, secret="whsec_c2hvd24tb25jZQ=="), 201)

    async def _test(self, request: Request) -> Response:
        webhook = self._known(request)
        made = self._notice(f"msg_{len(self.notices)}", webhook.id, NoticeKind.TEST, f"somebody tests {webhook.name}")
        status, problem = (500, self.fail_tests_with) if self.fail_tests_with else (204, None)
        done = (NoticeAttempt(at=self._clock(), seconds=0.1, status=status, problem=problem),)
        self.notices.insert(0, replace(made, state=NoticeState.WAITING if problem else NoticeState.DELIVERED, attempts=done))
        return as_json(made, 201)

    async def _delete(self, request: Request) -> Response:
        webhook = self._known(request)
        self.webhooks.remove(webhook)
        self.notices = [one for one in self.notices if one.webhook != webhook.id]
        return Response(status_code=204)

    async def _one(self, request: Request) -> Response:
        found = next((one for one in self.notices if one.id == request.path_params["notice"]), None)
        if found is None:
            raise Refusal(404, "Not found", f"notice {request.path_params['notice']!r} does not exist", "not-found")
        return as_json(found)

    def _known(self, request: Request) -> Webhook:
        found = next((one for one in self.webhooks if one.id == request.path_params["webhook"]), None)
        if found is None:
            raise Refusal(404, "Not found", f"webhook {request.path_params['webhook']!r} does not exist", "not-found")
        return found

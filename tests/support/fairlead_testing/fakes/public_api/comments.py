"""Comments: an operator's comment on the last hour of a pool, in hostile words, and the comments that tests add."""

from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fairlead.errors import InvalidInput
from fairlead_api.comments.rules import range_of, text_of
from fairlead_api.infra.times import parse_range
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.comments import Comment, CommentRequest, Comments
from fairlead_testing.fakes.public_api.access import Access
from fairlead_testing.fakes.public_api.answers import Refusal, as_json, document_routes
from fairlead_testing.fakes.public_api.pools import pool_named
from fairlead_testing.fakes.public_data.loads import CHAT, HOSTILE


class WrittenComments:
    def __init__(self, access: Access, clock: Callable[[], datetime]) -> None:
        self._access = access
        self._clock = clock
        now = clock()
        start, end = now - timedelta(minutes=40), now - timedelta(minutes=31)
        text = f"{HOSTILE} load test of the billing service"
        self.comments = [
            Comment(id="comment-0", pool=CHAT, author="operator-person", text=text, start=start, end=end, plan=None, created_at=now)
        ]

    def routes(self) -> list[Route]:
        guard = self._access.guard
        return [
            *document_routes("/v1/comments", self._listed, "comments", guard),
            Route("/v1/pools/{namespace}/{name}/comments", guard(self._add), methods=["POST"]),
            Route("/v1/comments/{comment}", guard(self._delete), methods=["DELETE"]),
        ]

    async def _listed(self, request: Request) -> Response:
        query = request.query_params
        start, end = parse_range(query.get("from"), query.get("to"), self._clock())
        found = [
            one
            for one in sorted(self.comments, key=lambda one: one.start, reverse=True)
            if query.get("pool") in (None, one.pool)
            and query.get("plan") in (None, one.plan)
            and (start is None or one.end >= start)
            and (end is None or one.start < end)
        ]
        return as_json(Comments(comments=found, complete=True))

    async def _add(self, request: Request) -> Response:
        asked, now = msgspec.json.decode(await request.body(), type=CommentRequest), self._clock()
        try:
            start, end = range_of(asked, now) or (now, now)
            text = text_of(asked)
        except InvalidInput as error:
            raise Refusal(422, "Invalid input", str(error), "invalid-input", field=error.field) from error
        made = Comment(
            id=f"comment-{len(self.comments)}",
            pool=pool_named(request),
            author=self._access.identity(request).subject,
            text=text,
            start=start,
            end=end,
            plan=asked.plan,
            created_at=now,
        )
        self.comments.append(made)
        return as_json(made, 201)

    async def _delete(self, request: Request) -> Response:
        who = self._access.identity(request)
        found = next((one for one in self.comments if one.id == request.path_params["comment"]), None)
        if found is None:
            raise Refusal(404, "Not found", "this comment does not exist", "not-found")
        if found.author != who.subject and not who.role.reaches(AccessRole.ADMIN):
            raise Refusal(403, "Not allowed", "this needs admin", "forbidden")
        self.comments.remove(found)
        return Response(status_code=204)

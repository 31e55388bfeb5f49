"""Comments of people on a pool's plans, or on ranges of time of a pool."""

import secrets
from collections.abc import Callable
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Request

from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.comments.rules import range_of, text_of
from fairlead_api.comments.store import PostgresComments
from fairlead_api.features import Feature, Infra
from fairlead_api.http.bodies import known_fields
from fairlead_api.http.documents import Ask, document
from fairlead_api.http.listing import From, To
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.times import parse_range
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.comments import Comment, CommentRequest, Comments


def comment_routes(guard: Guard, stored: PostgresComments, clock: Callable[[], datetime]) -> Routes:
    """Return the routes of comments. Everybody who sees a pool can comment on it; only a comment's author or an admin
    of the pool can delete it.
    """
    routes = Routes(prefix="/v1", tags=["history"])
    anywhere = guard.needs(AccessRole.VIEWER, somewhere=True)
    Anywhere = Annotated[Caller, Depends(anywhere)]  # noqa: N806 - it is a type
    Viewer = Annotated[Caller, Depends(guard.needs(AccessRole.VIEWER))]  # noqa: N806 - it is a type

    async def get_comments(pool: str | None = None, plan: str | None = None, start: From = None, end: To = None) -> Ask:
        """Comments of people on a range of time or a plan, the latest first, at most 200. With `from` or `to`, only
        comments whose range overlaps that range are listed; with a pool or plan, only comments on that pool or plan.
        """
        span = parse_range(start, end, clock())
        return lambda sight: stored.comments(pool, plan, span, sight)

    document(routes, "/comments", Comments, anywhere, get_comments, Comment, lambda found: found.comments)

    @routes.post("/pools/{namespace}/{name}/comments", status_code=201, dependencies=[Depends(known_fields(CommentRequest))])
    async def add_comment(namespace: str, name: str, body: CommentRequest, caller: Viewer) -> Comment:
        """Adds a comment on a plan of the pool, or on a range of time, which the pool's charts mark. Everybody who sees
        the pool can read the comment. A person can have at most 500 comments on one pool.
        """
        now = clock()
        span = range_of(body, now)
        begun, ended = span or (now, now)
        pool = str(PoolKey(namespace=namespace, name=name))
        author, made = caller.identity.subject, f"comment-{secrets.token_hex(8)}"
        comment = Comment(id=made, pool=pool, author=author, text=text_of(body), start=begun, end=ended, plan=body.plan, created_at=now)
        return await stored.add(comment, span, caller)

    @routes.delete("/comments/{comment_id}", status_code=204)
    async def delete_comment(comment_id: str, request: Request, caller: Anywhere) -> None:
        """Deletes a comment. To delete another person's comment, the caller needs the role admin. The audit log keeps
        the comment's text.
        """
        found = await stored.comment(comment_id, caller)
        if found.author != caller.identity.subject:
            await guard.require(request, caller, AccessRole.ADMIN, found.pool)
        await stored.delete(found, caller, clock())

    return routes


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of comments."""
    return Feature(routes=(comment_routes(guard, PostgresComments(infra.control), infra.clock),))

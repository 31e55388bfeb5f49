"""Saved views of the audit log: an operator's view for everybody, with a hostile name, and a view of the viewer
alone.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.audit import AuditView, AuditViewChange, AuditViewRequest, AuditViews
from fairlead_testing.fakes.public_api.access import Access
from fairlead_testing.fakes.public_api.answers import Refusal, as_json
from fairlead_testing.fakes.public_data.loads import HOSTILE


class SavedViews:
    def __init__(self, access: Access, clock: Callable[[], datetime]) -> None:
        self._access = access
        self._clock = clock
        self.views = [
            AuditView(id="view-0", name=HOSTILE, owner="operator-person", shared=True, created_at=clock(), action="plan.*", start="now-7d"),
            AuditView(id="view-1", name="my logins", owner="viewer-person", shared=False, created_at=clock(), action="login"),
        ]

    def routes(self) -> list[Route]:
        guard = self._access.guard
        return [
            Route("/v1/audit-views", guard(self._listed), methods=["GET"]),
            Route("/v1/audit-views", guard(self._save), methods=["POST"]),
            Route("/v1/audit-views/{view}", guard(self._change), methods=["PATCH"]),
            Route("/v1/audit-views/{view}", guard(self._delete), methods=["DELETE"]),
        ]

    def _seen(self, request: Request) -> list[AuditView]:
        me = self._access.identity(request).subject
        return sorted((one for one in self.views if one.shared or one.owner == me), key=lambda one: one.name)

    async def _listed(self, request: Request) -> Response:
        return as_json(AuditViews(views=self._seen(request)))

    async def _save(self, request: Request) -> Response:
        asked = msgspec.json.decode(await request.body(), type=AuditViewRequest)
        me = self._access.identity(request).subject
        made = AuditView(id=f"view-{len(self.views)}", owner=me, created_at=self._clock(), **asdict(asked))
        self._check(request, made)
        self.views.append(made)
        return as_json(made, 201)

    async def _change(self, request: Request) -> Response:
        asked, view = msgspec.json.decode(await request.body(), type=AuditViewChange), self._known(request)
        given = {name: value for name, value in asdict(asked).items() if value is not None}
        after = replace(view, **given)
        self._check(request, after)
        self.views[self.views.index(view)] = after
        return as_json(after)

    async def _delete(self, request: Request) -> Response:
        self.views.remove(self._known(request))
        return Response(status_code=204)

    def _check(self, request: Request, view: AuditView) -> None:
        if view.shared and not self._access.identity(request).role.reaches(AccessRole.OPERATOR):
            raise Refusal(403, "Not allowed", "this needs operator", "forbidden")
        if view.name in {one.name for one in self.views if one.owner == view.owner and one.id != view.id}:
            raise Refusal(409, "Conflict", f"{view.owner} already has a view {view.name!r}; choose another name", "view-exists")

    def _known(self, request: Request) -> AuditView:
        view, who = request.path_params["view"], self._access.identity(request)
        found = next((one for one in self._seen(request) if one.id == view), None)
        if found is None:
            raise Refusal(404, "Not found", f"saved view {view!r} does not exist", "not-found")
        if found.owner != who.subject and not who.role.reaches(AccessRole.ADMIN):
            raise Refusal(403, "Not allowed", "this needs admin", "forbidden")
        return found

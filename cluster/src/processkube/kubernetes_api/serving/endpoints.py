"""The REST verbs over objects, the same for every kind: list, get, create, change, delete and watch."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from processkube.kubernetes_api.collecting.deleting import DeleteOptions, delete, parse_delete_options
from processkube.kubernetes_api.kinds.kinds import ResourceKind
from processkube.kubernetes_api.objects.errors import (
    ApiError,
    BadRequest,
    Cause,
    Expired,
    Invalid,
    MethodNotAllowed,
    UnsupportedMediaType,
    forbidden_value,
    invalid_value,
    not_supported,
)
from processkube.kubernetes_api.objects.objects import Object, decode, encode
from processkube.kubernetes_api.objects.selectors import LabelSelector, Selects, parse_field_selector, parse_label_selector, selects
from processkube.kubernetes_api.serving.accounts import Account
from processkube.kubernetes_api.serving.exchanges import (
    Output,
    answer,
    is_true,
    raw_answer,
    read_body,
    success,
    transformed,
    wanted_output,
    write_options,
)
from processkube.kubernetes_api.serving.request_paths import Target
from processkube.kubernetes_api.serving.tables import table
from processkube.kubernetes_api.storing.representations import is_stored_form, to_external
from processkube.kubernetes_api.storing.store import Key, Stored
from processkube.kubernetes_api.storing.watches import DEFAULT_TIMEOUT_SECONDS, Watch, WatchRequest
from processkube.kubernetes_api.writing.patches import in_order, json_patch, merge_patch, strategic_merge_patch
from processkube.kubernetes_api.writing.resources import Resources, Written

_RETURNS_DELETED = frozenset({"Pod", "Service", "Namespace", "PersistentVolumeClaim"})


class Endpoints:
    """Handlers for the URLs of resources. `open_watches` are the watches that must be closed at shutdown."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._store = resources.store
        self.open_watches: dict[Watch, ResourceKind] = {}

    async def collection(self, request: web.Request, target: Target, account: Account) -> web.StreamResponse:
        kind = target.kind
        if request.method == "GET" and "list" in kind.verbs:
            if is_true(request.query.get("watch")):
                return await self._watch(request, target)
            return self._list(request, target)
        if request.method == "POST" and (target.namespace or not kind.namespaced):
            body = await read_body(request)
            written = self._resources.create(kind, target.namespace, body, write_options(request, account.username))
            return self._written(request, kind, written, status=201)
        if request.method == "DELETE" and "deletecollection" in kind.verbs and (target.namespace or not kind.namespaced):
            return await self._delete_collection(request, target)
        raise not_allowed(request)

    async def item(self, request: web.Request, target: Target, account: Account) -> web.StreamResponse:
        kind = target.kind
        match request.method:
            case "GET":
                if is_true(request.query.get("watch")):
                    return await self._watch(request, target)
                stored = self._resources.require(kind, target.namespace, target.name)
                return self._stored(request, kind, stored)
            case "PUT" | "PATCH":
                return self._written(request, kind, await self.change(request, target, account))
            case "DELETE":
                options = parse_delete_options(await read_body(request), dict(request.query))
                written = delete(self._resources, kind, target.namespace, target.name, options)
                metadata = written.object["metadata"]
                if written.removed and kind.kind not in _RETURNS_DELETED:
                    return answer(success(kind, metadata["name"], metadata["uid"]))
                return self._written(request, kind, written)
        raise not_allowed(request)

    async def change(self, request: web.Request, target: Target, account: Account) -> Written:
        """Handle a PUT or PATCH of an object or of its status, and return the result."""
        kind, namespace, name = target.kind, target.namespace, target.name
        options = write_options(request, account.username)
        body = await read_body(request) if request.method == "PUT" else None
        if request.method == "PUT":
            return self._resources.update(kind, namespace, name, lambda _: body, options, subresource=target.subresource, replace=True)
        if request.content_type in {"application/apply-patch+yaml", "application/apply-patch+cbor"}:
            if not request.query.get("fieldManager"):
                raise BadRequest('PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch')
            applied = await _read_patch(request)
            return self._resources.apply(kind, namespace, name, applied, options, subresource=target.subresource)
        patch = patch_function(request.content_type, await _read_patch(request), kind)
        return self._resources.update(kind, namespace, name, patch, options, subresource=target.subresource)

    def _stored(self, request: web.Request, kind: ResourceKind, stored: Stored) -> web.Response:
        output = wanted_output(request)
        if not output.form and is_stored_form(kind):
            return raw_answer(stored.body)
        return answer(transformed(kind, to_external(kind, stored.object), output, self._resources.clock()))

    def _written(self, request: web.Request, kind: ResourceKind, written: Written, status: int = 200) -> web.Response:
        item = transformed(kind, written.object, wanted_output(request), self._resources.clock())
        return answer(item, status=201 if written.created else status, warnings=written.warnings)

    def _selects(self, request: web.Request, target: Target) -> Selects | None:
        labels = _labels(request)
        fields = parse_field_selector(request.query.get("fieldSelector", ""), target.kind.selectable_fields)
        chosen = selects(labels, fields)
        if not target.name:
            return chosen
        return lambda item: item["metadata"]["name"] == target.name and (chosen is None or chosen(item))

    def _list(self, request: web.Request, target: Target) -> web.Response:
        kind, output = target.kind, wanted_output(request)
        version, after = self._list_version(request, kind)
        if version == self._store.version:
            found = self._store.list(kind.storage, target.namespace, _labels(request).label())
        else:
            found = self._store.list_at(kind.storage, version, target.namespace)
        if (chosen := self._selects(request, target)) is not None:
            found = [stored for stored in found if chosen(to_external(kind, stored.object))]
        found, metadata = _page(request, found, version, after)
        if chosen is not None:
            metadata.pop("remainingItemCount", None)  # with a selector, the real server does not know it
        if output.form == "Table":
            items = [to_external(kind, stored.object) for stored in found]
            now = self._resources.clock()
            answered = table(kind, items, version=metadata["resourceVersion"], include=output.include, now=now)
            return answer({**answered, "metadata": metadata})
        if output.form:
            items = [transformed(kind, stored.object, output, self._resources.clock()) for stored in found]
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
            return answer({**head, "items": items})
        bodies = _list_items(kind, found)
        head_bytes = encode({"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata})
        return raw_answer(head_bytes[:-1] + b',"items":[' + b",".join(bodies) + b"]}")

    def _list_version(self, request: web.Request, kind: ResourceKind) -> tuple[int, Key | None]:
        """Return the resource version for the response to a list request, and the key of the object after which the
        response begins (None: at the first object).

        Raises Expired if the requested version is no longer kept.
        """
        current, oldest = self._store.version, self._store.oldest_resumable(kind.storage)
        text, token = request.query.get("resourceVersion", ""), request.query.get("continue", "")
        check_list_options(request.query, watch=False)
        if token:
            if text not in {"", "0"}:
                raise BadRequest("specifying resource version is not allowed when using continue")
            version, after = _read_token(token)
            if 0 < version < oldest:
                raise Expired(_INCONSISTENT, continue_token=_token(-1, after))
            return (version if version > 0 else current), after
        if text in {"", "0"}:
            return current, None
        if not text.isdigit():
            raise BadRequest(f'resourceVersion: Invalid value: "{text}": it is not a number')
        if int(text) > current:
            raise TooLargeVersion(
                f"Too large resource version: {text}, current: {current}",
                details={
                    "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                    "retryAfterSeconds": 1,
                },
            )
        match = request.query.get("resourceVersionMatch", "") or ("Exact" if request.query.get("limit", "0") not in {"", "0"} else "")
        if match != "Exact":
            return current, None
        if int(text) < oldest:
            raise Expired("The resourceVersion for the provided list is too old.")
        return int(text), None

    async def _delete_collection(self, request: web.Request, target: Target) -> web.Response:
        kind = target.kind
        options = parse_delete_options(await read_body(request), dict(request.query))
        chosen = self._selects(request, target)
        deleted = []
        for stored in self._store.list(kind.storage, target.namespace):
            if chosen is None or chosen(to_external(kind, stored.object)):
                each = DeleteOptions(dry_run=options.dry_run, propagation=options.propagation, grace_seconds=options.grace_seconds)
                deleted.append(delete(self._resources, kind, stored.namespace, stored.name, each).object)
        metadata = {"resourceVersion": str(self._store.version)}
        return answer({"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata, "items": deleted})

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        watch = Watch(self._store, self._watch_request(request, target))
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
        self.open_watches[watch] = target.kind
        try:
            await response.prepare(request)
            async for lines in watch.lines():
                await response.write(lines)
            await response.write_eof()
        except ConnectionResetError:
            pass  # the client went away, which is how most watches end
        finally:
            del self.open_watches[watch]
        return response

    def _watch_request(self, request: web.Request, target: Target) -> WatchRequest:
        query, output = request.query, wanted_output(request)
        try:
            seconds = float(query.get("timeoutSeconds") or 0) or DEFAULT_TIMEOUT_SECONDS
        except ValueError as error:
            raise BadRequest(f"timeoutSeconds: {query['timeoutSeconds']!r} is not a number of seconds") from error
        initial = None if "sendInitialEvents" not in query else is_true(query["sendInitialEvents"])
        check_list_options(query, watch=True)
        if not (version := query.get("resourceVersion", "") or "0").isdigit():
            cause = invalid_value("resourceVersion", version, f'strconv.ParseUint: parsing "{version}": invalid syntax')
            raise Invalid(kind=target.kind.plural, group=target.kind.group, name="", causes=[cause])
        return WatchRequest(
            kind=target.kind,
            namespace=target.namespace,
            selects=self._selects(request, target),
            resource_version=query.get("resourceVersion", ""),
            bookmarks=is_true(query.get("allowWatchBookmarks")),
            initial_events=initial,
            timeout_seconds=seconds,
            transform=self._transform(target.kind, output) if output.form else None,
        )

    def _transform(self, kind: ResourceKind, output: Output) -> Callable[[Object], Object]:
        return lambda item: transformed(kind, item, output, self._resources.clock())

    def close_watches(self, kind: ResourceKind | None = None) -> None:
        """End all watches or, if `kind` is given, the watches of this kind."""
        for watch, watched in tuple(self.open_watches.items()):
            if kind is None or watched.resource == kind.resource:
                watch.close()


class TooLargeVersion(ApiError):
    code, reason = 504, "Timeout"


_INCONSISTENT = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the "
    "continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with "
    "the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


def _page(request: web.Request, found: list[Stored], version: int, after: Key | None) -> tuple[list[Stored], Object]:
    """Return one page of a list, and the list's metadata. The metadata has a token for the next page, if there is one.
    Later pages show the state at the time of the first page.
    """
    text = request.query.get("limit", "0") or "0"
    if not text.isdigit():
        raise BadRequest(f'limit: Invalid value: "{text}": it is not a number of objects')
    limit = int(text)
    if after is not None:
        found = [stored for stored in found if stored.key > after]
    metadata: Object = {"resourceVersion": str(version)}
    if limit and len(found) > limit:
        metadata["continue"] = _token(version, found[limit - 1].key)
        metadata["remainingItemCount"] = len(found) - limit
        found = found[:limit]
    return found, metadata


def _token(version: int, last: Key) -> str:
    """Return the token with which a client continues a list after the object `last`. The list continues in the state at
    the resource version `version`; -1 = in the current state.
    """
    return base64.urlsafe_b64encode(encode([version, *last])).decode()


def _read_token(text: str) -> tuple[int, Key]:
    try:
        version, namespace, name = decode(base64.urlsafe_b64decode(text))
        return int(version), (str(namespace), str(name))
    except (ValueError, TypeError) as error:
        raise BadRequest("invalid continue token: continue key is not valid") from error


def check_list_options(query: Mapping[str, str], *, watch: bool) -> None:
    """Raise Invalid for options of a list or watch that cannot be combined."""
    match, version, token = (query.get(name, "") for name in ("resourceVersionMatch", "resourceVersion", "continue"))
    initial, name = "sendInitialEvents" in query, "resourceVersionMatch"
    known = ("NotOlderThan",) if watch else ("Exact", "NotOlderThan", "")
    faults: list[Cause] = []
    if watch and initial and match != "NotOlderThan":
        faults.append(forbidden_value(name, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
    if match and watch and not initial:
        faults.append(forbidden_value(name, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
    if match and not watch and not version:
        faults.append(forbidden_value(name, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
    if match and match not in known:
        faults.append(not_supported(name, match, known))
    if match and token:
        faults.append(forbidden_value(name, "resourceVersionMatch is forbidden when continue is provided"))
    if match == "Exact" and version == "0" and not watch:
        faults.append(forbidden_value(name, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if initial and not watch:
        faults.append(forbidden_value("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if faults:
        raise Invalid(kind="ListOptions", group="meta.k8s.io", name="", causes=faults)


def _list_items(kind: ResourceKind, found: list[Stored]) -> list[bytes]:
    """Return the encoded items of a list. As in Go's typed lists, the items of a built-in kind do not contain their
    kind and version.
    """
    if kind.custom:
        return [one.body if is_stored_form(kind) else encode(to_external(kind, one.object)) for one in found]
    types = {"apiVersion": kind.api_version, "kind": kind.kind}
    begins = [encode({name: types[name] for name in names})[:-1] + b"," for names in (("apiVersion", "kind"), ("kind", "apiVersion"))]
    bodies = []
    for one in found:
        if begin := next(filter(one.body.startswith, begins), b""):  # of nearly every body: it is cut off there
            bodies.append(b"{" + one.body[len(begin) :])
        else:
            bodies.append(encode({name: value for name, value in to_external(kind, one.object).items() if name not in types}))
    return bodies


def _labels(request: web.Request) -> LabelSelector:
    return parse_label_selector(request.query.get("labelSelector", ""))


def not_allowed(request: web.Request) -> MethodNotAllowed:
    return MethodNotAllowed("the server does not allow this method on the requested resource", details={"kind": request.path})


async def _read_patch(request: web.Request) -> Any:
    body = await request.read()
    if not body:
        raise BadRequest("the patch is empty; send a patch document")
    return await read_body(request)


def patch_function(media: str, patch: Any, kind: ResourceKind) -> Callable[[Object], object]:
    """Return the function that applies a patch to an object. Raises UnsupportedMediaType for a patch format that this
    kind does not support.
    """
    match media:
        case "application/merge-patch+json":
            if not isinstance(patch, dict):
                raise BadRequest("a merge patch is an object")
            return lambda current: merge_patch(current, patch)
        case "application/json-patch+json":
            return lambda current: json_patch(current, patch)
        case "application/strategic-merge-patch+json" if not kind.custom:
            if not isinstance(patch, dict):
                raise BadRequest("a strategic merge patch is an object")
            return lambda current: in_order(strategic_merge_patch(current, patch, kind.schema))
    accepted = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    raise UnsupportedMediaType(f"the body of the request was in an unknown format - accepted media types include: {accepted}")

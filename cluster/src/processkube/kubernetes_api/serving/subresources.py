"""Subresources with special rules: scale; a pod's binding, eviction and log; a namespace's finalize; a service
account's token.
"""

from __future__ import annotations

import math

from aiohttp import web

from processkube.kubernetes_api.collecting.deleting import parse_delete_options
from processkube.kubernetes_api.collecting.disruption import refuse_violation
from processkube.kubernetes_api.collecting.evictions import evict
from processkube.kubernetes_api.objects.errors import ApiError, BadRequest, Invalid, NotFound, NotImplementedHere, invalid_value
from processkube.kubernetes_api.objects.objects import Object, at_path, copy_of, timestamp
from processkube.kubernetes_api.serving.accounts import Account
from processkube.kubernetes_api.serving.endpoints import Endpoints, not_allowed, patch_function
from processkube.kubernetes_api.serving.exchanges import answer, dry_run, is_true, raw_answer, read_body, write_options
from processkube.kubernetes_api.serving.logs import LogSource
from processkube.kubernetes_api.serving.proxying import ServiceProxy
from processkube.kubernetes_api.serving.request_paths import NO_SUCH_RESOURCE, Target
from processkube.kubernetes_api.serving.service_accounts import ServiceAccountTokens
from processkube.kubernetes_api.storing.representations import has_replicas, scale_of, set_replicas, to_external
from processkube.kubernetes_api.writing.resources import SCALE, Resources, conflict

_STREAMING = frozenset({"exec", "attach", "portforward", "proxy"})
_UNSUPPORTED_LOG_OPTIONS = ("timestamps", "sinceSeconds", "sinceTime")


class Subresources:
    """Passes requests for `…/<name>/<subresource>` to the subresource's handler."""

    def __init__(self, resources: Resources, endpoints: Endpoints, log_source: LogSource, service_accounts: ServiceAccountTokens) -> None:
        self._resources = resources
        self._service_accounts = service_accounts
        self._endpoints = endpoints
        self._log_source = log_source
        self._proxy = ServiceProxy(resources)

    async def serve(self, request: web.Request, target: Target, account: Account) -> web.StreamResponse:
        kind, name = target.kind, target.subresource
        if name == "status" and kind.has_status:
            if request.method == "GET":
                return answer(to_external(kind, self._resources.require(kind, target.namespace, target.name).object))
            if request.method not in {"PUT", "PATCH"}:
                raise not_allowed(request)
            written = await self._endpoints.change(request, target, account)
            return answer(written.object, warnings=written.warnings)
        if name == "scale" and kind.scale is not None:
            return await self._scale(request, target, account)
        if name in kind.subresources:
            match name:
                case "log":
                    return await self._log(request, target)
                case "eviction":
                    return await self._evict(request, target)
                case "binding":
                    return await self._bind(request, target)
                case "finalize":
                    return await self._finalize(request, target)
                case "token":
                    return await self._token(request, target)
                case "proxy":
                    return await self._proxy.serve(request, target)
        if name in _STREAMING:
            raise NotImplementedHere(f"{kind.plural}/{name} is not supported by processkube; read logs, or use a real cluster")
        raise NotFound(NO_SUCH_RESOURCE)

    async def _scale(self, request: web.Request, target: Target, account: Account) -> web.Response:
        kind, paths = target.kind, target.kind.scale
        assert paths is not None
        if request.method == "GET":
            stored = self._resources.require(kind, target.namespace, target.name)
            item = to_external(kind, stored.object)
            if not has_replicas(paths, item):  # as of a pool of prefill and decode
                raise ApiError(f'Internal error occurred: the spec replicas field "{paths.spec_replicas}" does not exist')
            return answer(scale_of(paths, item))
        if request.method not in {"PUT", "PATCH"}:
            raise not_allowed(request)
        body = await read_body(request)
        patch = patch_function(request.content_type, body, kind) if request.method == "PATCH" else None

        def rescale(current: Object) -> Object:
            wanted = patch(scale_of(paths, current)) if patch else body
            replicas = at_path(wanted, "spec", "replicas", default=0)
            if not isinstance(replicas, int) or isinstance(replicas, bool):
                raise BadRequest(f"spec.replicas: {replicas!r} is not a whole number")
            if replicas < 0:
                cause = invalid_value("spec.replicas", replicas, "should be a non-negative integer")
                raise Invalid(kind="Scale", group="autoscaling", name=target.name, causes=[cause])
            changed: Object = copy_of(current)
            if version := at_path(wanted, "metadata", "resourceVersion"):
                changed["metadata"]["resourceVersion"] = version
            set_replicas(paths, changed, replicas)
            return changed

        options = write_options(request, account.username)
        written = self._resources.update(kind, target.namespace, target.name, rescale, options, subresource=SCALE)
        return answer(scale_of(paths, written.object))

    async def _evict(self, request: web.Request, target: Target) -> web.Response:
        if request.method != "POST":
            raise not_allowed(request)
        body = await read_body(request) or {}
        if at_path(body, "metadata", "name") != target.name:
            raise BadRequest("name in URL does not match name in Eviction object")
        stored = self._resources.require(target.kind, target.namespace, target.name)
        options = parse_delete_options(body.get("deleteOptions"), dict(request.query))
        refuse_violation(self._resources, stored)
        evict(self._resources, target.kind, stored, options)
        return answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}, status=201)

    async def _bind(self, request: web.Request, target: Target) -> web.Response:
        if request.method != "POST":
            raise not_allowed(request)
        node = at_path(await read_body(request), "target", "name")
        if not node:
            raise BadRequest("target.name: Required value: the node to bind the pod to")
        stored = self._resources.require(target.kind, target.namespace, target.name)
        if assigned := at_path(stored.object, "spec", "nodeName"):
            raise conflict(target.kind, target.name, f"pod {target.name} is already assigned to node {assigned!r}")
        if stored.object["metadata"].get("deletionTimestamp"):
            raise conflict(target.kind, target.name, f"pod {target.name} is being deleted, cannot be assigned to a host")
        item: Object = copy_of(stored.object)
        item["spec"]["nodeName"] = node
        conditions = [one for one in at_path(item, "status", "conditions", default=[]) if one["type"] != "PodScheduled"]
        now = timestamp(self._resources.clock())
        conditions.append({"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now})
        item.setdefault("status", {})["conditions"] = conditions
        if not dry_run(request):
            self._resources.store.put(target.kind.storage, target.namespace, target.name, item)
        return answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}, status=201)

    async def _finalize(self, request: web.Request, target: Target) -> web.Response:
        if request.method != "PUT":
            raise not_allowed(request)
        finalizers = at_path(await read_body(request), "spec", "finalizers", default=[])
        stored = self._resources.require(target.kind, "", target.name)
        item: Object = copy_of(stored.object)
        item["spec"] = {"finalizers": finalizers} if finalizers else {}
        store = self._resources.store
        metadata = item["metadata"]
        if metadata.get("deletionTimestamp") and not finalizers and not metadata.get("finalizers"):
            store.remove(target.kind.storage, "", target.name)
            return answer(item)
        return raw_answer(store.put(target.kind.storage, "", target.name, item).body)

    async def _token(self, request: web.Request, target: Target) -> web.Response:
        if request.method != "POST":
            raise not_allowed(request)
        stored = self._resources.require(target.kind, target.namespace, target.name)
        return answer(self._service_accounts.answer(stored, await read_body(request) or {}), status=201)

    async def _log(self, request: web.Request, target: Target) -> web.StreamResponse:
        if request.method != "GET":
            raise not_allowed(request)
        query = request.query
        for option in _UNSUPPORTED_LOG_OPTIONS:
            if query.get(option) not in (None, "", "false"):
                raise BadRequest(f"{option} is not supported by processkube; its logs are plain files without times")
        pod = self._resources.require(target.kind, target.namespace, target.name).object
        container = _container(pod, query.get("container", ""))
        previous = is_true(query.get("previous"))
        tail, limit = _number(query.get("tailLines"), "tailLines"), _number(query.get("limitBytes"), "limitBytes")
        chunks = self._log_source(
            target.namespace, target.name, container, follow=is_true(query.get("follow")), tail_lines=tail, previous=previous
        )
        try:
            first = await anext(chunks, b"")
        except FileNotFoundError as error:
            if previous:
                raise BadRequest(f'previous terminated container "{container}" in pod "{target.name}" not found') from error
            raise BadRequest(f'container "{container}" in pod "{target.name}" is waiting to start: it has written no log yet') from error
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        left = limit if limit is not None else math.inf
        try:
            while first and left > 0:
                await response.write(first[: int(min(left, len(first)))])
                left -= len(first)
                first = await anext(chunks, b"")
            await response.write_eof()
        except (ConnectionResetError, FileNotFoundError):
            pass  # the reader stopped following, or the pod and its log are gone
        finally:
            await chunks.aclose()
        return response


def _container(pod: Object, wanted: str) -> str:
    names = [one["name"] for one in at_path(pod, "spec", "containers", default=[])]
    if not wanted:
        if len(names) != 1:
            raise BadRequest(f"a container name must be specified for pod {pod['metadata']['name']}, choose one of: {names}")
        return str(names[0])
    if wanted not in [*names, *(one["name"] for one in at_path(pod, "spec", "initContainers", default=[]))]:
        raise BadRequest(f"container {wanted} is not valid for pod {pod['metadata']['name']}")
    return wanted


def _number(text: str | None, name: str) -> int | None:
    if text is None or text == "":
        return None
    if not text.isdigit():
        raise BadRequest(f"{name}: Invalid value: {text!r}: must be a whole number, 0 or more")
    return int(text)

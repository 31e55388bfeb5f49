"""The whole server. This module connects the store, the write path, the collectors, the controllers and HTTP."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from processkube.kubernetes_api.collecting.disruption import DisruptionController
from processkube.kubernetes_api.collecting.expiry import expire_events
from processkube.kubernetes_api.collecting.garbage import GarbageCollector
from processkube.kubernetes_api.collecting.grace_periods import GRACE_SECONDS
from processkube.kubernetes_api.collecting.lost_nodes import LostNodes
from processkube.kubernetes_api.kinds.kinds import CREATE_ONLY
from processkube.kubernetes_api.kinds.registry import Registry
from processkube.kubernetes_api.objects.errors import ApiError, NotAcceptable, NotFound, TooLarge, Unauthorized
from processkube.kubernetes_api.objects.objects import Clock, at_path, encode, utc_now
from processkube.kubernetes_api.serving import discovery
from processkube.kubernetes_api.serving.accounts import ADMIN, Account, Accounts, ensure_accounts, kubeconfig
from processkube.kubernetes_api.serving.certificates import ensure_certificates
from processkube.kubernetes_api.serving.endpoints import Endpoints, not_allowed
from processkube.kubernetes_api.serving.exchanges import answer, error_answer, raw_answer, read_body, write_options
from processkube.kubernetes_api.serving.impersonation import acting_account
from processkube.kubernetes_api.serving.logs import LogSource, file_log_source
from processkube.kubernetes_api.serving.openapi import OpenApi
from processkube.kubernetes_api.serving.rbac import Rbac
from processkube.kubernetes_api.serving.request_paths import NO_SUCH_RESOURCE, Target, resource_target, wishes_of
from processkube.kubernetes_api.serving.reviews import answer_review
from processkube.kubernetes_api.serving.service_accounts import API_AUDIENCE, Authenticated, ServiceAccountTokens
from processkube.kubernetes_api.serving.subresources import Subresources
from processkube.kubernetes_api.storing.store import EventType, Store, StoredChange
from processkube.kubernetes_api.workloads.controllers import WorkloadControllers
from processkube.kubernetes_api.writing.admitting import decode_object
from processkube.kubernetes_api.writing.pods import FINISHED
from processkube.kubernetes_api.writing.resources import Resources, WriteOptions
from processkube.private_files import write_private
from processkube.starting import bind

_log = logging.getLogger(__name__)

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
_OPEN_PATHS = frozenset({"/healthz", "/readyz", "/livez"})
_FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_MAX_BODY_BYTES = 3 * 1024 * 1024
_AGGREGATED = {f"g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList": version for version in ("v2", "v2beta1")}


class KubernetesApi:
    """All parts of one server, over one state directory. `start` begins its background jobs, and `stop` ends them."""

    def __init__(
        self,
        state_dir: Path,
        accounts: Accounts,
        *,
        clock: Clock = utc_now,
        randomness: random.Random | None = None,
        log_source: LogSource | None = None,
        node_grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        state_dir.mkdir(parents=True, exist_ok=True)
        self.store = Store(state_dir / "objects.sqlite")
        self.registry = Registry()
        for stored in self.store.list(DEFINITIONS):
            self.registry.define(stored.object)
        self.resources = Resources(self.store, self.registry, clock, randomness or random.SystemRandom())
        self.accounts = accounts
        self.service_accounts = ServiceAccountTokens(state_dir / "service-account.key", self.store, clock)
        self.rbac = Rbac(self.store)
        self.openapi = OpenApi(self.registry)
        self.endpoints = Endpoints(self.resources)
        source = log_source or file_log_source(state_dir / "logs", self._is_running)
        self.subresources = Subresources(self.resources, self.endpoints, source, self.service_accounts)
        self.garbage = GarbageCollector(self.resources)
        self.disruption = DisruptionController(self.resources)
        self.lost_nodes = LostNodes(self.resources, node_grace_seconds)
        self.workloads = WorkloadControllers(self.resources)
        self.failure = ""
        """The error that ended a background job; "" if none has failed."""
        self._tasks: list[asyncio.Task[None]] = []
        self.store.subscribe(self._follow_definitions)
        self._create_first_namespaces()

    async def start(self) -> None:
        jobs = (
            self.garbage.run(),
            self.disruption.run(),
            self.lost_nodes.run(),
            self.workloads.run(),
            expire_events(self.resources),
        )
        self._tasks = [asyncio.create_task(job) for job in jobs]
        for task in self._tasks:
            task.add_done_callback(self._note_end)

    async def stop(self) -> None:
        self.endpoints.close_watches()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.store.close()

    def authenticate(self, token: str, audiences: Collection[str] = (API_AUDIENCE,)) -> Authenticated | None:
        """Return the account of a token, and the members of `audiences` for which the token is valid. Return None if
        the token is valid for none of them.

        The account is one of the server's own accounts or a service account.
        """
        if (own := self.accounts.authenticate(token)) is None:
            return self.service_accounts.authenticate(token, audiences)
        return (own, (API_AUDIENCE,)) if API_AUDIENCE in audiences else None

    def has(self, target: Target) -> bool:
        """Return whether the object that a URL names exists."""
        return self.store.get(target.kind.storage, target.namespace, target.name) is not None

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """Record the error that ended a background job. Such an error is a bug; from then on, the health endpoints
        report it.
        """
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failure = f"{type(error).__name__}: {error}"
            _log.error("background job failed", exc_info=error)

    def _create_first_namespaces(self) -> None:
        kind = self.registry.find("", "v1", "namespaces")
        assert kind is not None
        for name in _FIRST_NAMESPACES:
            if self.store.get("namespaces", "", name) is None:
                body = {"metadata": {"name": name}}
                self.resources.create(kind, "", body, WriteOptions(field_manager="processkube"))
        for stored in self.store.list("namespaces"):
            self.resources.create_default_account(stored.name)

    def _follow_definitions(self, change: StoredChange) -> None:
        if change.now.resource != DEFINITIONS:
            return
        if change.type is not EventType.DELETED:
            if change.before is None or change.before.object["spec"] != change.now.object["spec"]:
                self.registry.define(change.now.object)
            return
        group, plural = change.now.object["spec"]["group"], change.now.object["spec"]["names"]["plural"]
        for kind in self.registry:
            if (kind.group, kind.plural) == (group, plural):
                self.endpoints.close_watches(kind)
        self.registry.forget(change.now.object)

    def _is_running(self, namespace: str, pod: str) -> bool:
        stored = self.store.get("pods", namespace, pod)
        return stored is not None and at_path(stored.object, "status", "phase") not in FINISHED


def create_app(api: KubernetesApi) -> web.Application:
    """Return the HTTP application for `api`. When the application starts or stops, it starts or stops `api`."""

    async def lifetime(_app: web.Application) -> AsyncIterator[None]:
        await api.start()
        yield
        await api.stop()

    async def close_watches(_app: web.Application) -> None:
        api.endpoints.close_watches()

    app = web.Application(middlewares=[_guard(api)], client_max_size=_MAX_BODY_BYTES)
    app.cleanup_ctx.append(lifetime)
    app.on_shutdown.append(close_watches)
    app.router.add_route("*", "/{path:.*}", _dispatcher(api))
    return app


_ACCOUNT = web.RequestKey("account", Account)


def _guard(api: KubernetesApi) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.path in _OPEN_PATHS:
                return web.Response(text=api.failure or "ok", status=500 if api.failure else 200)
            scheme, _, token = request.headers.get("Authorization", "").partition(" ")
            found = api.authenticate(token.strip()) if scheme.lower() == "bearer" else None
            account = found[0] if found is not None else None
            if account is None:
                raise Unauthorized("Unauthorized")
            request[_ACCOUNT] = acting_account(request, account, api.accounts, api.rbac)
            return await handler(request)
        except ApiError as error:
            return error_answer(error)
        except web.HTTPRequestEntityTooLarge:
            return error_answer(TooLarge(f"Request entity too large: limit is {_MAX_BODY_BYTES}"))
        except web.HTTPException:
            raise
        except Exception:  # noqa: BLE001 - logged with its traceback; the client gets a Status, not a page of text
            _log.exception("request failed", extra={"method": request.method, "path": request.path})
            return error_answer(ApiError(f"Internal error occurred while handling {request.method} {request.path}; see the server's log"))

    return guard


def _dispatcher(api: KubernetesApi) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def dispatch(request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/") or "/"
        account = request[_ACCOUNT]
        described = _describe(api, request, path)
        if described is not None:
            api.rbac.require_description(account, path, request.method)
            if request.method not in {"GET", "HEAD"}:
                raise not_allowed(request)
            return described
        target = resource_target(api.registry, path)
        if account.obeys_rbac:
            for wish in wishes_of(request, target, exists=api.has(target)):
                api.rbac.require(account, wish)
        if target.subresource:
            return await api.subresources.serve(request, target, account)
        if target.name:
            return await api.endpoints.item(request, target, account)
        if target.kind.verbs == CREATE_ONLY and request.method == "POST":
            return await _review(api, request, account)
        return await api.endpoints.collection(request, target, account)

    return dispatch


async def _review(api: KubernetesApi, request: web.Request, account: Account) -> web.Response:
    kind = resource_target(api.registry, request.path).kind
    options = write_options(request, account.username)
    decoded = decode_object(kind, await read_body(request), options.field_validation)
    answered = answer_review(kind, decoded.object, account, api.accounts, api.authenticate, api.rbac)
    return answer(answered, status=201, warnings=decoded.warnings)


def _describe(api: KubernetesApi, request: web.Request, path: str) -> web.Response | None:
    """Return the response for a path that describes the server itself, such as `/version`; None for any other path."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case []:
            return answer({"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]})
        case ["version"]:
            return answer(discovery.VERSION)
        case ["api"] | ["apis"]:
            return _root(api, request, core=parts[0] == "api")
        case ["apis", name]:
            return _or_404(discovery.group(api.registry, name))
        case ["api", version]:
            return _or_404(discovery.resource_list(api.registry, "", version))
        case ["apis", name, version]:
            return _or_404(discovery.resource_list(api.registry, name, version))
        case ["openapi", "v3"]:
            return answer(api.openapi.index())
        case ["openapi", "v3", *rest]:
            document = api.openapi.document("/".join(rest))
            return raw_answer(document) if document is not None else _or_404(None)
        case ["openapi", "v2"]:
            if not any(media in request.headers.get("Accept", "*/*") for media in ("application/json", "*/*", "application/*")):
                raise NotAcceptable("this server writes /openapi/v2 as application/json only; accept that, or use /openapi/v3")
            return raw_answer(api.openapi.second_version())
    return None


def _root(api: KubernetesApi, request: web.Request, *, core: bool) -> web.Response:
    accepted = request.headers.get("Accept", "").replace(" ", "")
    for parameters, version in _AGGREGATED.items():
        if parameters in accepted:
            document = discovery.aggregated(api.registry, core=core, version=version)
            return web.Response(body=encode(document), headers={"Content-Type": f"application/json;{parameters}"})
    if core:
        return answer(discovery.api_versions(request.host))
    return answer(discovery.group_list(api.registry))


def _or_404(document: dict[str, object] | None) -> web.Response:
    if document is None:
        raise NotFound(NO_SUCH_RESOURCE)
    return answer(document)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A running server: its address, and the credentials for it."""

    url: str
    kubeconfig: Path
    certificate_authority: Path
    accounts: Accounts
    api: KubernetesApi

    def token(self, account: str = ADMIN) -> str:
        return self.accounts.named(account).token


@asynccontextmanager
async def running_server(
    state_dir: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    log_source: LogSource | None = None,
    node_grace_seconds: float = GRACE_SECONDS,
    service_accounts: Sequence[str] = (),
) -> AsyncIterator[RunningServer]:
    """Serve `state_dir` over TLS until the block ends. With port 0, a free port is used.

    A node that is silent for `node_grace_seconds` is lost. Each of `service_accounts`, written `namespace/name`, gets a
    token and a kubeconfig, and may do everything.

    Raises InvalidInput for an address on which the server cannot listen.
    """
    certificates = ensure_certificates(state_dir / "pki", host)
    accounts = ensure_accounts(state_dir / "tokens.csv", service_accounts)
    listener = bind("--host/--port", host, port)
    api = KubernetesApi(state_dir, accounts, log_source=log_source, node_grace_seconds=node_grace_seconds)
    runner = web.AppRunner(create_app(api), access_log=None, handler_cancellation=True, shutdown_timeout=2.0)
    await runner.setup()
    try:
        context: ssl.SSLContext = certificates.server_context()
        await web.SockSite(runner, listener, ssl_context=context).start()
        shown = f"[{host}]" if ":" in host else host
        url = f"https://{shown}:{listener.getsockname()[1]}"
        authority = certificates.authority.read_bytes()
        for account in accounts.all():
            write_private(state_dir / f"kubeconfig-{account.name}", kubeconfig(url, authority, account))
        main_config = state_dir / "kubeconfig"
        write_private(main_config, kubeconfig(url, authority, accounts.named(ADMIN)))
        yield RunningServer(
            url=url,
            kubeconfig=main_config,
            certificate_authority=certificates.authority,
            accounts=accounts,
            api=api,
        )
    finally:
        await runner.cleanup()
        with suppress(OSError):
            listener.close()

"""The endpoint picker: the pool of each request of a proxy, the choice of its scheduler, and what came of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence

from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.tables import Outlook
from fairlead_router import paths
from fairlead_router.answers import Usage
from fairlead_router.bodies import header_value
from fairlead_router.calls import Calls
from fairlead_router.dialects import Dialect
from fairlead_router.direct import DirectRelay
from fairlead_router.dividing import refuse_forged
from fairlead_router.forms import PassingForm
from fairlead_router.held_responses import HeldResponses
from fairlead_router.informing import Informing
from fairlead_router.keys import GatewayKey, GatewayKeys
from fairlead_router.metrics import RouterMetrics
from fairlead_router.paths import Endpoint, Handling
from fairlead_router.picking.accounts import Account, DirectAccount, RoutedAccount
from fairlead_router.picking.finding import find_endpoint, opening, pool_of_service, session_of, withheld
from fairlead_router.picking.messages import HeaderList
from fairlead_router.pool import Pool, Ticket
from fairlead_router.pools import Opens, Pools
from fairlead_router.prompts import invocation_prompt
from fairlead_router.refusals import BadRequest, ErrorAnswer, closed, error_answer, nobody_serves, refusal_answer, shutting_down
from fairlead_router.requests import parse_request
from fairlead_router.routed_requests import POOL_HEADER, RoutedRequests
from fairlead_router.settings import RouterSettings

OTHER_PATH = Endpoint(path="", methods=(), handling=Handling.ROUTED, prompt=invocation_prompt, streams=True)
"""A path that the gateway does not know, where the settings let those through."""

logger = logging.getLogger(__name__)


class PickedRequest:
    """One request on its way to a destination; whoever owns its stream is told through the three callbacks.

    `go(endpoints, withheld headers, request id, changed body)` and `refuse` come once, one of them; `account` is there
    before either.
    """

    __slots__ = ("account", "arrived_at", "authority", "dialect", "go", "gone", "headers", "refuse", "task")

    def __init__(
        self,
        headers: HeaderList,
        authority: bytes,
        arrived_at: float,
        go: Callable[[str, list[bytes], list[tuple[bytes, bytes]], bytes | None], None],
        refuse: Callable[[ErrorAnswer], None],
    ) -> None:
        self.headers = headers
        self.authority = authority
        self.arrived_at = arrived_at
        self.go = go
        self.refuse = refuse
        self.dialect = Dialect.OPENAI
        self.account: Account | None = None
        self.task: asyncio.Task[None] | None = None
        self.gone = False

    def abandon(self, now: float) -> None:
        """The stream ended: give the request up, wherever it waits."""
        self.gone = True
        if self.task is not None:
            self.task.cancel()
        account, self.account = self.account, None
        if account is not None:
            account.abandoned(now)


class Picker:
    """Decides for all streams. `now` is the router's clock in Unix seconds."""

    def __init__(
        self,
        settings: RouterSettings,
        pools: Pools,
        keys: GatewayKeys,
        calls: Calls,
        routed: RoutedRequests,
        direct: DirectRelay,
        held: HeldResponses,
        informing: Informing,
        metrics: RouterMetrics,
        now: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._pools = pools
        self._keys = keys
        self._calls = calls
        self._routed = routed
        self._direct = direct
        self._held = held
        self._informing = informing
        self._metrics = metrics
        self.now = now

    @property
    def most_bytes(self) -> int:
        """Bytes of a body that are taken."""
        return max(self._settings.max_body_bytes, self._settings.max_upload_bytes)

    def pick(self, asked: PickedRequest, body: bytes, subset: tuple[str, ...] | None, *, bodiless: bool) -> None:
        """Decide where the request goes, now or when its turn comes."""
        target = header_value(asked.headers, b":path") or ""
        asked.dialect = paths.dialect_of(target.encode("latin-1"))
        try:
            self._pick(asked, target.encode("latin-1"), body, subset, bodiless=bodiless)
        except BadRequest as problem:
            self._metrics.client_errors[problem.code] += 1
            asked.refuse(problem.answer(asked.dialect))
        except Exception:  # noqa: BLE001  # logged, and hidden from clients
            self._own_fault(asked)

    def too_large(self, asked: PickedRequest) -> None:
        """Refuse a body of more than `most_bytes`."""
        self._refuse(asked, BadRequest(413, "request_too_large", f"the body is larger than {self.most_bytes} bytes; send less"))

    def too_slow(self, asked: PickedRequest) -> None:
        """Refuse a body that does not come."""
        seconds = self._settings.timeouts.body
        self._refuse(asked, BadRequest(408, "body_timeout", f"the body did not arrive within {seconds:g} s"))

    def _refuse(self, asked: PickedRequest, problem: BadRequest) -> None:
        self._metrics.client_errors[problem.code] += 1
        asked.refuse(problem.answer(asked.dialect))

    def _own_fault(self, asked: PickedRequest) -> None:
        request = self._calls.next_id()
        self._metrics.client_errors["internal_error"] += 1
        logger.exception("pick failed in the router", extra={"request": request})
        message = f"the router failed to handle this request; its log tells more under {request}"
        asked.refuse(error_answer(asked.dialect, 500, "internal_error", message, None, [(b"x-request-id", request.encode())]))

    # ── what is done with a path ──

    def _pick(self, asked: PickedRequest, target: bytes, body: bytes, subset: tuple[str, ...] | None, *, bodiless: bool) -> None:
        endpoint = find_endpoint(target)
        if endpoint is None and self._settings.picker_any_path:
            endpoint = OTHER_PATH
        if endpoint is None:
            message = (
                f"{target.partition(b'?')[0][:200].decode('latin-1')!r} ends in no path of this gateway; there are {', '.join(paths.KNOWN)}"
            )
            raise BadRequest(404, "not_found", message)
        asked.dialect = endpoint.dialect
        method = header_value(asked.headers, b":method") or ""
        if endpoint.methods and method not in endpoint.methods:
            allowed = ", ".join(endpoint.methods)
            headers = [(b"allow", allowed.encode())]
            raise BadRequest(405, "method_not_allowed", f"{endpoint.path} takes {allowed}, not {method[:20]}", None, headers)
        if self._informing.refusing:
            asked.refuse(shutting_down(endpoint.dialect))
            return
        local = endpoint.handling is Handling.LOCAL or (endpoint is OTHER_PATH and (bodiless or not body))
        key = None if endpoint.keyless else self._keys.admit(asked.headers, asked.arrived_at, counted=not local)
        only = self._settings.picker_pool or self._served(pool_of_service(asked.authority))
        opens = opening(key, only)
        if local:
            self._pick_any(asked, self._any_pool(asked, opens), subset)
        elif endpoint.handling is Handling.ROUTED:
            self._route(asked, endpoint, body, subset, key, opens)
        elif endpoint.handling is Handling.HELD:
            self._start(asked, self._pick_holder(asked, target, subset, key, opens))
        else:
            pool, changed = self._named_pool(asked, endpoint, body, key, opens)
            self._pick_any(asked, pool, subset, changed)

    def _served(self, pool: str | None) -> str | None:
        """The pool of the Service that was called, if there is one."""
        return pool if pool is not None and self._pools.serves(pool) else None

    def _named_pool(
        self, asked: PickedRequest, endpoint: Endpoint, body: bytes, key: GatewayKey | None, opens: Opens
    ) -> tuple[Pool, bytes | None]:
        """The pool of a request that needs no scheduler, and its body if that has to be changed."""
        if endpoint.handling is Handling.UPLOAD:
            form = PassingForm(header_value(asked.headers, b"content-type"))
            form.feed(body)
            if not form.model:
                raise BadRequest(400, "missing_field", "model: is missing; name the model in the form's field `model`", "model")
            pool = self._routed.pool_for(form.model, asked.headers, key, opens)
            name = pool.engine_name(form.model)
            return pool, None if form.model == name else form.taken(name)
        self._limit(body)
        parsed = parse_request(body, endpoint)
        pool = self._routed.pool_for(parsed.model, asked.headers, key, opens)
        name = pool.engine_name(parsed.model)
        return pool, None if parsed.model == name else parsed.renamed(name)

    def _limit(self, body: bytes) -> None:
        most = self._settings.max_body_bytes
        if len(body) > most:
            raise BadRequest(413, "request_too_large", f"the body is larger than {most} bytes; send less (FAIRLEAD_MAX_BODY_BYTES)")

    def _any_pool(self, asked: PickedRequest, opens: Opens) -> Pool:
        """The pool of a request that names no model. Raises BadRequest 404 when several could be meant."""
        wanted = header_value(asked.headers, POOL_HEADER)
        pools = [pool for pool in self._pools.all() if opens(pool) and (wanted is None or str(pool.key) == wanted)]
        if len(pools) != 1:
            known = ", ".join(str(pool.key) for pool in self._pools.all() if opens(pool)) or "none yet"
            message = f"x-fairlead-pool: {(wanted or 'is missing')[:200]}; such a request names no model, so name one pool of: {known}"
            raise BadRequest(404, "pool_not_found", message, "x-fairlead-pool")
        return pools[0]

    # ── through the scheduler ──

    def _route(
        self,
        asked: PickedRequest,
        endpoint: Endpoint,
        body: bytes,
        subset: tuple[str, ...] | None,
        key: GatewayKey | None,
        opens: Opens,
    ) -> None:
        self._limit(body)
        parsed = parse_request(body, endpoint)
        refuse_forged(parsed.document)
        headers = asked.headers
        pool = self._routed.pool_for(parsed.model, headers, key, opens)
        if pool.divides:
            message = f"pool {pool.key} divides prefill and decode, which no proxy can follow; send the request to the router's own gateway"
            raise BadRequest(501, "pool_divides", message)
        session = session_of(headers, pool.session_header)
        within = None if subset is None else members(pool, subset)
        request = self._routed.request(pool, endpoint, parsed, headers, session, key, asked.arrived_at, body_bytes=len(body), within=within)
        name = pool.engine_name(parsed.model)
        changed = None if parsed.model == name else parsed.renamed(name)

        def settled(usage: Usage | None, now: float) -> None:
            if key is not None:
                self._keys.settle(key, usage, request.prompt_tokens, now)

        ticket = pool.submit(request, self.now())
        if key is not None:  # not before: a request that the scheduler fails on has no account to give it back
            key.spend(request.prompt_tokens, asked.arrived_at)
        account = RoutedAccount(pool, ticket, asked.dialect, self._held, settled)
        if ticket.verdict is None:
            asked.account = account
            ticket.when_decided = lambda: self._decided_later(asked, account, ticket, changed)
        else:
            self._decided(asked, account, ticket, changed)

    def _decided_later(self, asked: PickedRequest, account: RoutedAccount, ticket: Ticket, changed: bytes | None) -> None:
        """As `_decided`, in the middle of a scheduler's delivery, which no fault here may break off."""
        try:
            self._decided(asked, account, ticket, changed)
        except Exception:  # noqa: BLE001  # logged, and hidden from clients
            self._own_fault(asked)

    def _decided(self, asked: PickedRequest, account: RoutedAccount, ticket: Ticket, changed: bytes | None) -> None:
        if asked.gone:
            return
        verdict, pool = ticket.verdict, account.pool
        if not isinstance(verdict, Dispatch):
            asked.account = None
            account.refused(self.now())
            if verdict is not None:
                asked.refuse(refusal_answer(verdict, pool.header, asked.dialect))
            return
        account.told = self._endpoints(pool, verdict)
        asked.account = account
        self._go(asked, pool, account.told, ticket.request.id, changed)

    def _endpoints(self, pool: Pool, dispatch: Dispatch) -> list[str]:
        """The choice, then as many fallbacks as may be named, of those that still accept."""
        endpoints = [dispatch.address]
        for instance in dispatch.fallbacks[: self._settings.picker_fallbacks]:
            if instance in pool.accepting and pool.addresses[instance] not in endpoints:
                endpoints.append(pool.addresses[instance])
        return endpoints

    def _go(self, asked: PickedRequest, pool: Pool, endpoints: list[str], request_id: str, changed: bytes | None) -> None:
        destination = ",".join(endpoints)
        headers = [(b"x-gateway-destination-endpoint", destination.encode())]
        if header_value(asked.headers, b"x-request-id") is None:
            headers.append((b"x-request-id", request_id.encode()))
        asked.go(destination, withheld(asked.headers, credentials=pool.pass_credentials), headers, changed)

    # ── past the scheduler ──

    def _pick_any(self, asked: PickedRequest, pool: Pool, subset: tuple[str, ...] | None, changed: bytes | None = None) -> None:
        """The instance with the fewest requests in flight; waits for a pool without one to have one."""
        excluded = () if subset is None else tuple(pool.addresses.keys() - set(members(pool, subset)))
        instances = pool.by_load(excluded, self.now())
        if instances:
            self._send_direct(asked, pool, instances, changed)
        elif subset is not None or pool.table.outlook is not Outlook.COMING:
            self._refuse_direct(asked, pool)
        else:
            self._start(asked, self._await_instance(asked, pool, changed))

    async def _await_instance(self, asked: PickedRequest, pool: Pool, changed: bytes | None) -> None:
        pool.used_at = self.now()
        await pool.wait_for_instance(0 if changed is None else len(changed))
        instances = pool.by_load((), self.now())
        if instances:
            self._send_direct(asked, pool, instances, changed)
        else:
            self._refuse_direct(asked, pool)

    def _refuse_direct(self, asked: PickedRequest, pool: Pool) -> None:
        pool.counters.direct["refused"] += 1
        asked.refuse(self._nobody(asked, pool))

    def _nobody(self, asked: PickedRequest, pool: Pool) -> ErrorAnswer:
        if pool.table.outlook is Outlook.CLOSED:
            return closed(pool.table, self.now(), pool.header, asked.dialect)
        return nobody_serves(f"no instance of pool {pool.key} that may serve it accepts requests", pool.header, asked.dialect)

    def _send_direct(self, asked: PickedRequest, pool: Pool, instances: Sequence[str], changed: bytes | None = None) -> None:
        """Name the first of the instances, then as many of the others as may be named."""
        told = instances[: 1 + self._settings.picker_fallbacks]
        asked.account = DirectAccount(pool, told, self.now())
        self._go(asked, pool, [pool.addresses[instance] for instance in told], self._calls.next_id(), changed)

    async def _pick_holder(
        self, asked: PickedRequest, target: bytes, subset: tuple[str, ...] | None, key: GatewayKey | None, opens: Opens
    ) -> None:
        """The instance that made the response; if none is remembered, look for it. No other can stand in for it."""
        path = target.partition(b"?")[0]
        response = paths.response_id(path[path.rindex(b"/v1/responses/") :])
        home = self._held.find(response)
        pool = self._pools.get(home[0]) if home is not None else None
        if home is None or pool is None or home[1] not in pool.addresses or not opens(pool):
            pools = [pool for pool in self._pools.all() if opens(pool)]
            headers = [(name, value) for name, value in asked.headers if not name.startswith(b":")]  # engines speak HTTP/1.1
            found = await self._direct.find_holder(pools, b"/v1/responses/" + response.encode(), headers)
            if found is None or found[1] not in found[0].addresses:
                raise BadRequest(404, "response_not_found", f"response {response[:100]!r} is held by no instance")
            pool, instance = found
            self._held.remember(response, pool.key, instance)
        else:
            instance = home[1]
        if key is not None:
            self._keys.sent_to_pool(key, self.now())
        if subset is None or instance in members(pool, subset):
            self._send_direct(asked, pool, [instance])
        else:
            self._refuse_direct(asked, pool)

    def _start(self, asked: PickedRequest, work: Coroutine[None, None, None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except BadRequest as problem:
                self._metrics.client_errors[problem.code] += 1
                asked.refuse(problem.answer(asked.dialect))
            except Exception:  # noqa: BLE001  # logged, and hidden from clients
                self._own_fault(asked)

        asked.task = asyncio.get_running_loop().create_task(guarded())


def members(pool: Pool, subset: tuple[str, ...]) -> tuple[str, ...]:
    """Instances of the pool among endpoints `ip:port`; one without a port means all of that address."""
    wanted = set(subset)
    return tuple(name for name, address in pool.addresses.items() if address in wanted or address.rpartition(":")[0] in wanted)

"""The endpoint picker: finds the pool for each request of a proxy, and gets the routing decision from the pool's
scheduler.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.targets import instance_of
from fairlead_router.gateway.claims import may_explain
from fairlead_router.gateway.informing import Informing
from fairlead_router.gateway.routed_requests import RoutedRequests, answer_follows
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.picking.accounts import RoutedAccount
from fairlead_router.picking.direct_picks import DirectPicks, Work, of_http1
from fairlead_router.picking.finding import any_pool, find_endpoint, opening, pool_of_service, scores_of, session_headers
from fairlead_router.picking.messages import HeaderList
from fairlead_router.picking.picked_request import PickedRequest
from fairlead_router.picking.sidecars import decode_endpoints, members_and_prefills, rank_for_all
from fairlead_router.pools.charges import Charge
from fairlead_router.pools.keys import GatewayKey, GatewayKeys
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Opens, Pools
from fairlead_router.pools.tickets import Ticket
from fairlead_router.protocols import paths
from fairlead_router.protocols.kept_headers import asks_to_explain
from fairlead_router.protocols.paths import Endpoint, Handling
from fairlead_router.protocols.peer_fields import refuse_peer_addresses
from fairlead_router.protocols.prompts import invocation_prompt
from fairlead_router.protocols.refusals import (
    BadRequest,
    body_too_large,
    body_too_slow,
    memory_full,
    own_fault,
    refusal_answer,
    shutting_down,
)
from fairlead_router.protocols.requests import ADAPTER_HEADER, ParsedRequest, is_shown_id, parse_request, refused_adapter_header
from fairlead_router.relaying.calls import Calls, Change
from fairlead_router.relaying.class_priorities import PLACES
from fairlead_router.relaying.direct import DirectRelay
from fairlead_router.relaying.held_responses import HeldResponses
from fairlead_router.relaying.response_holders import ResponseHolders
from fairlead_router.relaying.usage_asking import UsageAsking, ask_for_usage, may_ask_for_usage
from fairlead_router.serving.bodies import BODY_LIMIT, UPLOAD_LIMIT, decoded, header_value
from fairlead_router.serving.body_memory import BodyMemory, MemoryFull
from fairlead_router.serving.client_requests import BodyTooLarge
from fairlead_router.serving.content_codings import ContentDecoder, codings_of
from fairlead_router.serving.forms import PassingForm
from fairlead_router.settings import RouterSettings

OTHER_PATH = Endpoint(path="", methods=(), handling=Handling.ROUTED, prompt=invocation_prompt, streams=True, ids=frozenset(paths.ANY_IDS))
"""The endpoint for all paths that the gateway does not know; used if the settings allow such paths."""

logger = logging.getLogger(__name__)


class Picker:
    """Picks a destination for each request of all streams. `now` is the router's clock in Unix seconds."""

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
        body_memory: BodyMemory,
        asking: UsageAsking,
        now: Callable[[], float],
    ) -> None:
        self.body_memory = body_memory
        self._asking = asking
        self._settings = settings
        self._pools = pools
        self._keys = keys
        self._calls = calls
        self._routed = routed
        self._held = held
        self._informing = informing
        self._metrics = metrics
        self.now = now
        self._holders = ResponseHolders(held, direct, pools)
        self._past = DirectPicks(settings, keys, calls, self._holders, held, now, self._start)
        """Picks instances for requests that bypass the scheduler."""

    @property
    def most_bytes(self) -> int:
        """Maximum number of bytes of a request's body."""
        return self._most_bytes[0]

    @property
    def _most_bytes(self) -> tuple[int, str]:
        """Maximum number of bytes of a request's body, and the name of the setting that limits it."""
        settings = self._settings
        return max((settings.max_body_bytes, BODY_LIMIT), (settings.max_upload_bytes, UPLOAD_LIMIT))

    def pick(self, asked: PickedRequest, subset: tuple[str, ...] | None, *, bodiless: bool) -> None:
        """Pick the request's destination now, or when the scheduler dispatches the request. `subset`: the only
        endpoints that may be chosen, or None. `bodiless`: whether the request has no body.
        """
        target = header_value(asked.headers, b":path") or ""
        asked.dialect = paths.dialect_of(target.encode("latin-1"))
        try:
            self._pick(asked, target.encode("latin-1"), subset, bodiless=bodiless)
        except BadRequest as problem:
            self._metrics.client_errors[problem.code] += 1
            asked.refuse(problem.answer(asked.dialect))
        except Exception:  # noqa: BLE001  # logged, and hidden from clients
            self._own_fault(asked)

    def too_large(self, asked: PickedRequest) -> None:
        """Refuse a request whose body has more than `most_bytes`."""
        self._refuse(asked, body_too_large(*self._most_bytes))

    def too_slow(self, asked: PickedRequest) -> None:
        """Refuse a request whose body did not arrive in time."""
        self._refuse(asked, body_too_slow(self._settings.timeouts.body))

    def memory_full(self, asked: PickedRequest) -> None:
        """Refuse a request because there is no memory for its body now."""
        self._refuse(asked, memory_full())

    def next_id(self) -> str:
        """Return a new id for a request without an id."""
        return self._calls.next_id()

    def _refuse(self, asked: PickedRequest, problem: BadRequest) -> None:
        self._metrics.client_errors[problem.code] += 1
        asked.refuse(problem.answer(asked.dialect))

    def _own_fault(self, asked: PickedRequest) -> None:
        request = asked.shown_id(self._calls.next_id)
        self._metrics.client_errors["internal_error"] += 1
        logger.exception("pick failed in the router", extra={"request": request})
        asked.refuse(own_fault(request, asked.dialect))

    # ── what is done with a path ──

    def _pick(self, asked: PickedRequest, target: bytes, subset: tuple[str, ...] | None, *, bodiless: bool) -> None:
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
        _check_headers(asked.headers)
        if self._informing.refusing:
            asked.refuse(shutting_down(endpoint.dialect))
            return
        local = endpoint.handling is Handling.LOCAL or (endpoint is OTHER_PATH and (bodiless or not asked.body))
        key = None if endpoint.keyless else self._keys.admit(asked.headers, asked.arrived_at, counted=not local)
        only = self._settings.picker_pool or self._served(pool_of_service(asked.authority))
        opens = opening(key, only)
        if local:
            self._past.pick_any(asked, any_pool(self._pools, asked.headers, opens), subset)
        elif endpoint.handling is Handling.HELD:
            self._start(asked, partial(self._past.pick_holder, asked, target, subset, key, opens))
        elif asked.body and (codings := codings_of(asked.headers)):
            self._start(asked, partial(self._decode, asked, ContentDecoder(codings), endpoint, subset, key, opens))
        else:
            self._place(asked, endpoint, subset, key, opens)

    async def _decode(
        self,
        asked: PickedRequest,
        decoder: ContentDecoder,
        endpoint: Endpoint,
        subset: tuple[str, ...] | None,
        key: GatewayKey | None,
        opens: Opens,
    ) -> None:
        """Decode the body, so that the engine gets the decoded body, and place the request. Raises BadRequest."""
        largest = self._most_bytes if endpoint.handling is Handling.UPLOAD else (self._settings.max_body_bytes, BODY_LIMIT)
        size = len(asked.body)
        try:
            asked.body = await decoded(decoder, asked.body, largest[0], asked.hold)
        except BodyTooLarge:
            raise body_too_large(*largest) from None
        except MemoryFull:
            raise memory_full() from None
        asked.encoded = False
        asked.memory.release(size)
        self._place(asked, endpoint, subset, key, opens)

    def _place(
        self, asked: PickedRequest, endpoint: Endpoint, subset: tuple[str, ...] | None, key: GatewayKey | None, opens: Opens
    ) -> None:
        """Find the pool for the request in its decoded body, and submit the request to the pool."""
        if endpoint.handling is Handling.ROUTED:
            self._route(asked, endpoint, subset, key, opens)
        else:
            pool, name = self._named_pool(asked, endpoint, key, opens)
            self._past.pick_any(asked, pool, subset, name)

    def _served(self, pool: str | None) -> str | None:
        """Return the pool whose Service was called, if this router serves the pool; None otherwise."""
        return pool if pool is not None and self._pools.serves(pool) else None

    def _named_pool(self, asked: PickedRequest, endpoint: Endpoint, key: GatewayKey | None, opens: Opens) -> tuple[Pool, str]:
        """Return the pool for a request that bypasses the scheduler, and the name of the model at the pool's engines.
        The body is changed to this name.
        """
        if endpoint.handling is Handling.UPLOAD:
            form = PassingForm(header_value(asked.headers, b"content-type"))
            form.feed(asked.body)
            pool = self._routed.pool_for(form.model or None, asked.headers, key, opens)
            self._count(key)
            name = pool.engine_name(form.model or None)
            if form.model != name:
                asked.body = form.taken(name)
            return pool, name
        self._limit(asked.body)
        parsed = parse_request(asked.body, endpoint)
        pool = self._routed.pool_for(parsed.model, asked.headers, key, opens)
        self._count(key)
        name = pool.engine_name(parsed.model)
        asked.body = parsed.body if parsed.model == name else parsed.renamed(name)
        return pool, name

    def _count(self, key: GatewayKey | None) -> None:
        """Count a request against the limit of its key. For requests that are sent to a pool and use no tokens."""
        if key is not None:
            self._keys.sent_to_pool(key, self.now())

    def _limit(self, body: bytes) -> None:
        if len(body) > self._settings.max_body_bytes:
            raise body_too_large(self._settings.max_body_bytes, BODY_LIMIT)

    # ── through the scheduler ──

    def _route(
        self,
        asked: PickedRequest,
        endpoint: Endpoint,
        subset: tuple[str, ...] | None,
        key: GatewayKey | None,
        opens: Opens,
    ) -> None:
        self._limit(asked.body)
        parsed = parse_request(asked.body, endpoint)
        pool = self._routed.pool_for(parsed.model, asked.headers, key, opens)
        submit = partial(self._submit, asked, endpoint, subset, key, parsed, pool)
        if "previous_response_id" in parsed.document and self._holders.is_sought(parsed.document, endpoint, pool):
            self._start(asked, partial(self._seek_holder, asked, endpoint, parsed, pool, submit))
        else:
            submit()

    async def _seek_holder(
        self, asked: PickedRequest, endpoint: Endpoint, parsed: ParsedRequest, pool: Pool, submit: Callable[[], None]
    ) -> None:
        """Find the instance that holds the stored response which the request continues, and then call `submit`."""
        await self._holders.seek(parsed.document, endpoint, pool, of_http1(asked.headers))
        asked.task = None
        submit()

    def _submit(
        self,
        asked: PickedRequest,
        endpoint: Endpoint,
        subset: tuple[str, ...] | None,
        key: GatewayKey | None,
        parsed: ParsedRequest,
        pool: Pool,
    ) -> None:
        headers = asked.headers
        naming = session_headers(headers, pool.session_header)
        within = None if subset is None else members_and_prefills(pool, subset)
        size = len(asked.body)
        given = header_value(headers, b"x-request-id") or ""
        asked_for, allowed = asks_to_explain(headers), may_explain(key, anybody=self._settings.explains_without_key)
        asked.is_denied = asked_for and not allowed
        request = self._routed.request(
            pool,
            endpoint,
            parsed,
            headers,
            naming,
            key,
            asked.arrived_at,
            body_bytes=size,
            within=within,
            client_id=given if is_shown_id(given) else "",
            explain=asked_for and allowed,
            by_sidecar=pool.divides,
            scored=self._settings.picker_scores and not pool.divides,
        )
        name = pool.engine_name(parsed.model)
        body = parsed.body if parsed.model == name else parsed.renamed(name)
        if pool.passes_priority:
            places, priority = PLACES[pool.table.engine.type], pool.classes[request.priority_class].priority
            body = places.body(body, parsed, endpoint, priority)
            asked.priority = places.header_value(endpoint.path, priority)
        asks: Change | None = None
        if may_ask_for_usage(parsed, endpoint):
            body, asks = ask_for_usage(body, parsed.document)
        asked.body = body
        charge: Charge | None = None
        if key is not None:
            follows = answer_follows(parsed, endpoint)
            most, answers = pool.most_tokens(size, parsed.answers), parsed.answers
            charge = self._keys.reserve(key, request, most, self.now(), follows=follows, answers=answers)
        del parsed, body  # what it holds is as large as the body, and the request may wait
        ticket = pool.account.submit(request, self.now(), charge)
        memory, is_known = asked.memory.another(), endpoint is not OTHER_PATH
        account = RoutedAccount(pool, ticket, asked.dialect, self._held, self._asking, memory, is_known=is_known)
        account.name = name
        if ticket.verdict is None:
            asked.account = account
            ticket.when_decided = partial(self._decided_later, asked, account, ticket, asks)
        else:
            self._decided(asked, account, ticket, asks)

    def _decided_later(self, asked: PickedRequest, account: RoutedAccount, ticket: Ticket, asks: Change | None) -> None:
        """Call `_decided` for a request that was decided after a wait, and log its exceptions. An exception must not
        interrupt the scheduler's delivery, which calls this function.
        """
        try:
            self._decided(asked, account, ticket, asks)
        except Exception:  # noqa: BLE001  # logged, and hidden from clients
            self._own_fault(asked)

    def _decided(self, asked: PickedRequest, account: RoutedAccount, ticket: Ticket, asks: Change | None) -> None:
        """Send a decided request to its endpoints, or refuse it. `asks`: the change of the body that requests usage
        from the engine; None if the body was not changed.
        """
        if asked.gone:
            return
        pool = account.pool
        verdict = self._where_served(account, ticket)
        if not isinstance(verdict, Dispatch):
            asked.account = None
            if verdict is not None:
                asked.refuse(refusal_answer(verdict, pool.header, asked.dialect))
            return
        account.told = self._endpoints(pool, verdict, account.name)
        ticket.given = True  # as far as can be known: the proxy sends it now
        asked.account = account
        account.asks_usage = asks is not None and not self._asking.refuses(account.told[0])
        if asks is not None and not account.asks_usage:
            asked.body = asks.undone(asked.body)
        prefill = None if verdict.decode is None else verdict.instance
        asked.send(pool, account.told, ticket.request.id, rank_for_all(verdict), prefill, scores_of(pool, verdict))

    def _where_served(self, account: RoutedAccount, ticket: Ticket) -> Dispatch | Refusal | None:
        """Return the decision for the request. If the chosen instance is known by now not to serve the model's name,
        return a decision for another instance. None if there is no decision yet.
        """
        pool, verdict = account.pool, ticket.verdict
        while isinstance(verdict, Dispatch) and (pool.choice.names or pool.choice.handovers):
            lacks = pool.choice.lacks(verdict, account.name, self.now()) or pool.choice.prefills_in_vain(verdict, self.now())
            other = None if lacks is None else pool.account.pass_over(ticket, lacks, self.now())
            if other is None:
                break
            verdict = other
        return verdict

    def _endpoints(self, pool: Pool, dispatch: Dispatch, name: str) -> list[str]:
        """Return the endpoint of the chosen instance, and then as many alternatives as the settings allow.

        The alternatives still accept requests and serve the name. A proxy sends the same rank to each endpoint, so all
        endpoints have the same ranks. If another instance prefills, all endpoints are decode instances.
        """
        if dispatch.decode is not None:
            return decode_endpoints(pool, dispatch, self.now(), name)[: 1 + self._settings.picker_fallbacks]
        endpoints, ranks = [dispatch.address], pool.ranks(instance_of(dispatch.instance))
        lacking = pool.choice.names.lacking(name, self.now()) if pool.choice.names else ()
        named = [*map(instance_of, dispatch.fallbacks)]
        if ranks:  # then they may all be ranks of the choice
            named += (one for one in pool.choice.by_load((), self.now(), name) if dispatch.request.may_go_to(one))
        for instance in named:
            if instance not in pool.accepting or instance in lacking or pool.ranks(instance) != ranks:
                continue
            if pool.addresses[instance] not in endpoints:
                endpoints.append(pool.addresses[instance])
        return endpoints[: 1 + self._settings.picker_fallbacks]

    def _start(self, asked: PickedRequest, work: Work) -> None:
        async def guarded() -> None:
            try:
                await work()
            except BadRequest as problem:
                self._metrics.client_errors[problem.code] += 1
                asked.refuse(problem.answer(asked.dialect))
            except Exception:  # noqa: BLE001  # logged, and hidden from clients
                self._own_fault(asked)

        asked.task = asyncio.get_running_loop().create_task(guarded())


def _check_headers(headers: HeaderList) -> None:
    """Raise BadRequest for a header that would make an engine connect to a peer or serve another model."""
    for name, value in headers:
        if name == b"x-request-id":
            refuse_peer_addresses("x-request-id", value.decode("latin-1"))
        elif name == ADAPTER_HEADER:
            raise refused_adapter_header()

"""Turns a parsed request into the routing request for its pool: which pool serves it, and what routing needs to know.

The gateway and the endpoint picker differ in how a request reaches them and its engine; everything in between is here.

The router estimates a prompt's tokens from its kind, and from the bytes that its engine will turn into tokens. The
canonical prompt has everything that an engine renders, so its length is what counts. But a token of JSON has fewer
bytes than a token of prose, the bytes that stand for a medium are an estimate, and part of the prompt may be at the
engine. The parts of a prompt decide its kind, and the router learns a token's size for each kind separately
(`fairlead.routing.knowledge.token_sizes`):

    plain text     text alone
    +tools         also tools, calls of them, thoughts or documents
    +media         also images, sounds, videos or files
    +unseen        a part of the prompt is at the engine, or is cut off there: the bytes say little
    token ids      four bytes each, exactly
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.knowledge.prefixes import block_hashes, first_bytes_hash, prompt_root
from fairlead.routing.knowledge.token_sizes import GIVEN_IDS
from fairlead.tables import DEFAULT_CLASS
from fairlead_router.gateway.claims import may_explain, priority_class, tenant
from fairlead_router.gateway.prompt_tokens import PromptTokens
from fairlead_router.pools.keys import GatewayKey, GatewayKeys
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Opens, Pools, every
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.lineages import lineage
from fairlead_router.protocols.paths import Endpoint
from fairlead_router.protocols.prompts import Prompt
from fairlead_router.protocols.refusals import BadRequest, Headers
from fairlead_router.protocols.requests import ParsedRequest
from fairlead_router.protocols.session_names import beginning, session_name, session_names
from fairlead_router.relaying.calls import Calls
from fairlead_router.relaying.dividing import is_divisible, sidecars_divide
from fairlead_router.relaying.held_responses import HeldResponses
from fairlead_router.relaying.response_holders import previous_response
from fairlead_router.serving.bodies import header_value
from fairlead_router.tracing.contexts import trace_context

_UNSEEN = frozenset({"previous_response_id", "conversation", "prompt_embeds", "truncate_prompt_tokens", "chat_template"})
"""Fields that add to a prompt, or cut from it, parts that the request's bytes do not show."""
_MAY_HIDE = _UNSEEN | {"truncation"}
_MAY_BE_IDS = frozenset({"prompt", "input_ids", "input"})

_BESIDES = ("", "+tools", "+media", "+tools+media")
"""Suffixes of the kind, by the parts that a prompt has besides text."""

Document = Mapping[str, Any]


class PromptSize(NamedTuple):
    """The size of a prompt. `counted_bytes` are the bytes from which its tokens are estimated."""

    kind: str
    counted_bytes: int
    is_plain_text: bool


def prompt_size(endpoint: Endpoint, document: Document, prompt: Prompt) -> PromptSize:
    """Return the size from which the prompt's tokens are estimated."""
    length = len(prompt.text)
    if not _MAY_BE_IDS.isdisjoint(document) and _is_token_ids(document):
        return PromptSize(GIVEN_IDS, length, False)
    if not _MAY_HIDE.isdisjoint(document) and _hides_part(document):
        return PromptSize(endpoint.path + "+unseen", length, False)
    if not prompt.kinds:
        return PromptSize(endpoint.path, length, endpoint.streams)
    return PromptSize(endpoint.path + _BESIDES[prompt.kinds], length, False)


def _hides_part(document: Document) -> bool:
    return document.get("truncation") == "auto" or any(document.get(field) for field in _UNSEEN)


def _is_token_ids(document: Document) -> bool:
    given = document.get("prompt") or document.get("input_ids") or document.get("input")
    if not isinstance(given, list) or not given:
        return False
    first = given[0]
    return type(first) is int or (isinstance(first, list) and bool(first) and type(first[0]) is int)


POOL_HEADER = b"x-fairlead-pool"


def opened_by(key: GatewayKey | None) -> Opens:
    """Return the pools that a client may use: the pools that its key opens, or all pools for a client that was
    admitted without a key.
    """
    return every if key is None else key.opens


def answer_follows(parsed: ParsedRequest, endpoint: Endpoint) -> bool:
    """Return whether the client may fetch the answer with a later request, because it is made in the background;
    engines take 1 and "true" for true.
    """
    return endpoint.dialect is Dialect.RESPONSES and bool(parsed.document.get("background"))


class RoutedRequests:
    """Makes `RoutingRequest`s. `now` is the router's clock in Unix seconds. `trusted`: a client without a key may ask
    for any priority class and for any tenant; `explains`: such a client may have decisions kept. With `traces` each
    request gets its trace.
    """

    def __init__(
        self,
        pools: Pools,
        keys: GatewayKeys,
        calls: Calls,
        prompt_tokens: PromptTokens,
        held: HeldResponses,
        now: Callable[[], float],
        *,
        trusted: bool,
        explains: bool = True,
        traces: bool = False,
    ) -> None:
        self._pools = pools
        self._keys = keys
        self._calls = calls
        self._prompt_tokens = prompt_tokens
        self._held = held
        self._now = now
        self._trusted = trusted
        self._explains = explains
        self._traces = traces

    def pool_for(self, model: str | None, headers: Headers, key: GatewayKey | None, opens: Opens | None = None) -> Pool:
        """Return the pool for a request, among `opens` or else the pools of its key. Raises BadRequest 404, also for a
        pool that its key does not open.
        """
        try:
            return self._pools.resolve(model, header_value(headers, POOL_HEADER), opens or opened_by(key))
        except BadRequest:
            if key is not None and self._pools.serves(model):
                self._keys.out_of_scope(key, self._now())
            raise

    def request(
        self,
        pool: Pool,
        endpoint: Endpoint,
        parsed: ParsedRequest,
        headers: Headers,
        naming: Mapping[bytes, bytes] | None,
        key: GatewayKey | None,
        arrived_at: float,
        *,
        body_bytes: int,
        within: tuple[str, ...] | None = None,
        client_id: str = "",
        explain: bool = False,
        movable: bool = False,
        by_sidecar: bool = False,
        scored: bool = False,
    ) -> RoutingRequest:
        """Return the request as routing sees it. A request that continues a response may go only to the instance that
        holds that response.

        `naming` are the headers that may name the session, `within` the only instances that may serve it. `client_id`
        is the client's own id of the request; with `explain` the router keeps its decision. `movable`: this router
        sends the request itself, so it can first let engines hand on KV blocks. `by_sidecar`: a side-car, not this
        router, divides the request between prefill and decode. With `scored` its dispatch has the scores that were
        compared.
        """
        document = parsed.document
        prompt = parsed.prompt.text
        previous: str | None = None
        if "previous_response_id" in document and (response := previous_response(document, endpoint)) is not None:
            previous = self._held.session(response)
            within = self._holder(response, pool, within)
        names = session_names(naming, pool.session_header, document, previous)
        adapter = pool.adapter(parsed.model)
        root = prompt_root(adapter, parsed.prompt.root)
        blocks = block_hashes(prompt, pool.block_bytes, root)
        (kind, counted_bytes, is_plain_text), sizes = prompt_size(endpoint, document, parsed.prompt), pool.token_sizes
        prompt_tokens = sizes.tokens(counted_bytes, kind)
        engine_blocks: tuple[int, ...] = ()
        if pool.scheduler.caches.heard:
            known = self._prompt_tokens.of(pool, endpoint.path, document, prompt_tokens, adapter)
            prompt_tokens, engine_blocks = known.prompt_tokens, known.engine_blocks
        first_hash = first_bytes_hash(prompt, pool.block_bytes, blocks, root)
        as_others = not blocks or sizes.of(kind) == sizes.bytes_per_token
        request_id, trace = self._calls.next_id(), None
        if self._traces:
            may_ask = may_explain(key, anybody=self._explains)
            trace = trace_context(headers, request_id, endpoint.path, parsed.model, may_ask=may_ask)
        return RoutingRequest(
            id=request_id,
            arrived_at=arrived_at,
            prompt_tokens=prompt_tokens,
            prompt_bytes=counted_bytes,
            prompt_kind=kind,
            is_plain_text=is_plain_text,
            block_tokens=0 if as_others else max(1, round(prompt_tokens * pool.block_bytes / len(prompt))),
            blocks=blocks,
            first_bytes_hash=first_hash,
            session=names[0] if names else None,
            further_names=names[1:],
            lineage=lineage(naming, document, session_name, names[0]) if names else None,
            beginning=beginning(document, first_hash) if names or pool.binds_beginnings else 0,
            max_output_tokens=parsed.max_output_tokens,
            answers=parsed.answers,
            streamed=parsed.stream,
            divisible=not pool.divides
            or (endpoint.divides and (sidecars_divide(endpoint.path, document) if by_sidecar else is_divisible(document))),
            movable=movable and pool.moves_caches and endpoint.divides and is_divisible(document),
            by_sidecar=by_sidecar,
            priority_class=priority_class(headers, key, pool, trusted=self._trusted) if pool.classes.are_declared else DEFAULT_CLASS,
            tenant=tenant(headers, key, pool, trusted=self._trusted),
            owner="" if key is None else key.facts.id,
            body_bytes=body_bytes,
            engine_blocks=engine_blocks,
            client_id=client_id,
            explain=explain,
            scored=scored,
            trace=trace,
            within=pool.choice.serving(pool.engine_name(parsed.model), within, arrived_at) if pool.choice.names.missing else within,
        )

    def _holder(self, response: str, pool: Pool, within: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return only the instance that holds the response, if that instance takes requests and may serve this one.
        Otherwise return `within`: any of these engines answers that it does not know the response.
        """
        home = self._held.find(response)
        if home is None or home[0] != pool.key or home[1] not in pool.accepting or (within is not None and home[1] not in within):
            return within
        return (home[1],)

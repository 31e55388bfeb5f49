"""Turns a parsed request into a routing request: finds the pool that serves the request, and collects the inputs of the
routing decision.

The gateway and the endpoint picker receive requests and send them to engines in different ways. This module has the
part that both need.

The router estimates a prompt's tokens from the kind and the length of the canonical prompt, which has everything that
an engine renders. The number of bytes per token differs between kinds of prompts: JSON has fewer bytes per token than
prose, the bytes of a medium are an estimate, and part of the prompt may be stored at the engine. So the router measures
the bytes per token for each kind separately (`fairlead.routing.knowledge.token_sizes`):

    plain text     text alone
    +tools         also tools, tool calls, thoughts or documents
    +media         also images, sounds, videos or files
    +unseen        the engine stores part of the prompt, or cuts part off: the bytes say little about the tokens
    token ids      four bytes each, exactly
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.knowledge.prefixes import block_hashes_of, first_bytes_hash, prompt_root
from fairlead.routing.knowledge.token_sizes import GIVEN_IDS
from fairlead.tables import DEFAULT_CLASS
from fairlead_router.gateway.claims import may_explain, priority_class, tenant
from fairlead_router.gateway.prompt_tokens import PromptTokens
from fairlead_router.pools.keys import GatewayKey, GatewayKeys
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Opens, Pools, every
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.lineages import lineage
from fairlead_router.protocols.paths import ANY_IDS, Endpoint
from fairlead_router.protocols.prompts import Prompt, truth
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
"""Fields of a request that add tokens to the prompt, or remove tokens from it, so that the request's bytes do not show
how many tokens the prompt has.
"""
_MAY_HIDE = _UNSEEN | {"truncation"}

ADAPTERS = "lora_path"
"""The field in which a request to SGLang names its adapter, or one adapter for each prompt, in addition to the model.
"""

_BESIDES = ("", "+tools", "+media", "+tools+media")
"""Suffixes of a prompt's kind, which name the contents that the prompt has besides text."""

Document = Mapping[str, Any]


class PromptSize(NamedTuple):
    """The size and kind of a prompt. `counted_bytes` are the bytes from which its tokens are estimated."""

    kind: str
    counted_bytes: int
    is_plain_text: bool


def prompt_size(endpoint: Endpoint, document: Document, prompt: Prompt) -> PromptSize:
    """Return the size and kind of a prompt, from which its tokens are estimated."""
    length = prompt.size
    if not endpoint.ids.isdisjoint(document) and _is_token_ids(document, endpoint.ids):
        return PromptSize(GIVEN_IDS, length, False)
    if not _MAY_HIDE.isdisjoint(document) and _hides_part(document):
        return PromptSize(endpoint.path + "+unseen", length, False)
    if not prompt.kinds:
        return PromptSize(endpoint.path, length, endpoint.streams)
    return PromptSize(endpoint.path + _BESIDES[prompt.kinds], length, False)


def _hides_part(document: Document) -> bool:
    return document.get("truncation") == "auto" or any(document.get(field) for field in _UNSEEN)


def _is_token_ids(document: Document, fields: Collection[str]) -> bool:
    given = next((document[field] for field in ANY_IDS if field in fields and document.get(field)), None)
    if not isinstance(given, list):
        return False
    first = given[0]
    return type(first) is int or (isinstance(first, list) and bool(first) and type(first[0]) is int)


POOL_HEADER = b"x-fairlead-pool"


def opened_by(key: GatewayKey | None) -> Opens:
    """Return the function that says which pools and models a client may use: the pools and models of its key, or all of
    them if the client was admitted without a key.
    """
    return every if key is None else key.opens


def answer_follows(parsed: ParsedRequest, endpoint: Endpoint) -> bool:
    """Return whether the engine makes the response in the background, so that the client fetches it with a later
    request. The field `background` is interpreted as engines do.
    """
    return endpoint.dialect is Dialect.RESPONSES and truth(parsed.document.get("background")) is True


class RoutedRequests:
    """Makes `RoutingRequest`s.

    `now`: the router's clock in Unix seconds. `trusted`: whether a client without a key may name any priority class and
    tenant. `explains`: whether a client without a key may have routing decisions kept. `traces`: whether each request
    gets a trace.
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
        """Return the pool that serves the model, among the pools that `opens` allows (None = the pools of the key).
        Raises BadRequest 404, also if only pools that the key does not open serve the model.
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
        """Return the routing request. If the request continues a stored response, only the instance that holds that
        response may serve it.

        `naming`: the headers that may name the session. `within`: the only instances that may serve the request; None =
        all instances. `client_id`: the client's own id of the request. `explain`: whether the router keeps the routing
        decision. `movable`: whether this router sends the request itself, so that it can first let engines copy KV
        blocks. `by_sidecar`: whether a side-car, not this router, divides the request between prefill and decode.
        `scored`: whether the dispatch has the scores of the compared targets.
        """
        document = parsed.document
        prompt = parsed.prompt
        if key is not None and ADAPTERS in document:
            self._check_adapters(document[ADAPTERS], pool, key)
        previous: str | None = None
        if "previous_response_id" in document and (response := previous_response(document, endpoint)) is not None:
            previous = self._held.session(response)
            within = self._holder(response, pool, within)
        owner = "" if key is None else key.facts.id
        names = session_names(naming, pool.session_header, document, previous, owner)
        adapter = pool.adapter(parsed.model)
        root = prompt_root(adapter, prompt.root)
        blocks = block_hashes_of(prompt.pieces, pool.block_bytes, root)
        (kind, counted_bytes, is_plain_text), sizes = prompt_size(endpoint, document, prompt), pool.token_sizes
        prompt_tokens = sizes.tokens(counted_bytes, kind)
        engine_blocks: tuple[int, ...] = ()
        if pool.scheduler.caches.heard:
            known = self._prompt_tokens.of(pool, endpoint.path, document, prompt_tokens, adapter)
            prompt_tokens, engine_blocks = known.prompt_tokens, known.engine_blocks
        first_hash = blocks[0] if blocks else first_bytes_hash(prompt.text, pool.block_bytes, (), root)
        as_others = not blocks or sizes.of(kind) == sizes.bytes_per_token
        request_id, trace = self._calls.next_id(), None
        if self._traces:
            may_ask = may_explain(key, anybody=self._explains)
            trace = trace_context(headers, request_id, endpoint.path, parsed.model, may_ask=may_ask)
        return RoutingRequest(  # by position, see fairlead.values
            request_id,  # id
            arrived_at,
            prompt_tokens,
            blocks,
            first_hash,  # first_bytes_hash
            names[0] if names else None,  # session
            names[1:],  # further_names
            beginning(document, first_hash) if names or pool.binds_beginnings else 0,
            None,  # named
            parsed.max_output_tokens,
            parsed.answers,
            parsed.stream,  # streamed
            not pool.divides  # divisible
            or (endpoint.divides and (sidecars_divide(endpoint.path, document) if by_sidecar else is_divisible(document))),
            movable and pool.moves_caches and endpoint.divides and is_divisible(document),
            False,  # warms
            by_sidecar,
            counted_bytes,  # prompt_bytes
            kind,  # prompt_kind
            is_plain_text,
            0 if as_others else max(1, round(prompt_tokens * pool.block_bytes / counted_bytes)),  # block_tokens
            priority_class(headers, key, pool, trusted=self._trusted) if pool.classes.are_declared else DEFAULT_CLASS,
            tenant(headers, key, pool, trusted=self._trusted),
            owner,
            body_bytes,
            pool.choice.serving(pool.engine_name(parsed.model), within, arrived_at) if pool.choice.names.missing else within,
            client_id,
            explain,
            scored,
            trace,
            lineage(naming, document, partial(session_name, tenant=owner), names[0]) if names else None,
            engine_blocks,
        )

    def _check_adapters(self, named: object, pool: Pool, key: GatewayKey) -> None:
        """Raise BadRequest 404 if the field `ADAPTERS` of the request names an adapter to which the client's key gives
        no access.
        """
        for name in named if isinstance(named, list) else (named,):
            if name and isinstance(name, str) and not key.opens(pool, name):
                self._keys.out_of_scope(key, self._now())
                raise BadRequest(404, "model_not_found", f"{ADAPTERS}: {name[:200]!r} is not served here", ADAPTERS)

    def _holder(self, response: str, pool: Pool, within: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return the instance that holds the response, as the only element, if that instance accepts requests and is
        among `within`. Otherwise return `within`; an engine that does not hold the response refuses the request.
        """
        home = self._held.find(response)
        if home is None or home[0] != pool.key or home[1] not in pool.accepting or (within is not None and home[1] not in within):
            return within
        return (home[1],)

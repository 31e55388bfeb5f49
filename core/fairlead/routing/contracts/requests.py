"""The data of a request from which routing decides, before and while the request waits in a queue."""

from typing import NamedTuple, Protocol

from fairlead.session_trees import Lineage
from fairlead.tables import DEFAULT_CLASS
from fairlead.targets import instance_of
from fairlead.values import value


@value
class TraceContext:
    """The trace to which a request belongs, in the terms of W3C Trace Context. Ids are lower-case hexadecimal digits:
    32 in a trace id, 16 in a span id.

    `span_id` is the request's own span; `parent` is the caller's span, None if the caller sent none. If the caller does
    not sample the trace, the request has no `TraceContext`.
    """

    trace_id: str
    span_id: str
    parent: str | None = None
    state: str = ""
    """The value of the caller's `tracestate` header."""
    asks: bool = False
    """Whether the caller samples the trace and has the right to request that decisions are kept."""
    operation: str = ""
    """The operation that the client requested, as named by the GenAI semantic conventions (`gen_ai.operation.name`)."""
    model: str = ""
    """The model name that the client sent."""


@value
class RoutingRequest:
    """The data of one request from which routing decides.

    `blocks` are chained 64-bit hashes of the full routing blocks of the prompt; times are Unix seconds.
    """

    id: str
    arrived_at: float
    prompt_tokens: int
    blocks: tuple[int, ...]
    first_bytes_hash: int
    """Hash of the prompt's first block, or of the whole prompt if it is shorter than a block. Policies use this hash as
    the key of prompts without blocks.
    """
    session: str | None = None
    """The session's name as the client sent it. In a decision, it is None if several sessions turned out to share this
    name.
    """
    further_names: tuple[str, ...] = ()
    """Other names that the request gives for its session. They are used when several conversations share the first
    name.
    """
    beginning: int = 0
    """Hash of how the conversation begins, equal in all its turns; 0 = unknown."""
    named: str | None = None
    """The session name that the client sent, if several conversations turned out to share this name. `session` is then
    another name or None.
    """
    max_output_tokens: int = 0
    answers: int = 1
    """Number of answers that the engine generates for the request at the same time (`n`, or several prompts). If the
    number is above 1, the time between tokens is not the time of a decode step.
    """
    streamed: bool = True
    """Whether the caller can observe the first token. If not, the scheduler assumes that the prefill has ended once the
    predicted time has passed.
    """
    divisible: bool = True
    """Whether the prompt and the answer may be computed on two instances. False if the request's format has no field to
    name KV blocks of another instance, so that one instance must compute both.
    """
    movable: bool = False
    """Whether the caller can make an instance fetch KV blocks of the prompt from another instance before it computes
    the rest of the prompt.
    """
    warms: bool = False
    """Whether the request only warms a cache, so that no client waits for it: a router sends a session's last prompt to
    the session's new home, so that the new home holds the prompt. Such a request counts as work of its instance, but
    not as demand. Its decision is not recorded, and its latency is not compared with the objectives.
    """
    by_sidecar: bool = False
    """Whether a side-car of the decode instance sends the prompt to the prefill instance. The caller then cannot
    observe when the prompt is computed.
    """
    prompt_bytes: int = 0
    """Number of bytes from which `prompt_tokens` was estimated; 0 = `prompt_tokens` is the engine's own count."""
    prompt_kind: str = ""
    """The kind of text in the prompt's bytes (`fairlead.routing.knowledge.token_sizes`). Token sizes are compared only
    between prompts of the same kind.
    """
    is_plain_text: bool = True
    """Whether the bytes are plain text to which a chat template adds little."""
    block_tokens: int = 0
    """Number of tokens per block of this prompt, if it differs from the pool's table; 0 = as in the table."""
    priority_class: str = DEFAULT_CLASS
    """The request's priority class in its pool (`fairlead.priority_classes`); a class that the pool does not declare is
    treated as the default class.
    """
    tenant: str = ""
    """The tenant that sent the request, if the pool shares its instances fairly between tenants
    (`RoutingFacts.fairness`). Requests with an empty name count as requests of one tenant.
    """
    owner: str = ""
    """The owner of the session: the id of the client's key. All clients without a key count as one owner. If a router
    has too many sessions, it determines per owner which sessions to forget.
    """
    body_bytes: int = 0
    """Memory in bytes that the request occupies while it waits."""
    within: tuple[str, ...] | None = None
    """The ids of the only instances that may serve the request; None = any instance of the pool. The request never
    waits for an instance that is not among these.
    """
    client_id: str = ""
    """The request id that the client sent, "" if it sent none."""
    explain: bool = False
    """Whether the client requested that the decision is kept, and has the right to request this."""
    scored: bool = False
    """Whether the dispatch must list the compared candidates."""
    trace: TraceContext | None = None
    """The request's trace; None if the request has no trace, or if the router exports no traces."""
    lineage: Lineage | None = None
    """The client's statement of how its session relates to other sessions, such as a parent session; None if the client
    makes none.
    """
    engine_blocks: tuple[int, ...] = ()
    """Keys of the prompt's leading blocks as the engine divides the prompt (`fairlead.kv_events.block_keys`), as far as
    the tokens are known. If the last block ends exactly with the prompt, it is left out, because an engine always
    computes at least one token.
    """

    def may_go_to(self, instance: str) -> bool:
        """Return whether the target (an instance, or one of its ranks) may serve the request."""
        return self.within is None or instance in self.within or instance_of(instance) in self.within


class QueuedRequest(Protocol):
    """A request waiting in an instance's queue, as a policy that rebalances gets it. The object is the scheduler's own
    record, valid only during the call to `rebalance`.
    """

    @property
    def request(self) -> RoutingRequest: ...

    @property
    def instance(self) -> str: ...

    @property
    def alternate(self) -> str | None:
        """The only other instance to which the request may move; None if the request may not move."""

    @property
    def miss_tokens(self) -> int:
        """Number of uncached prompt tokens that were counted for the request on `instance`."""


class Overtaken(NamedTuple):
    """The requests in a queue that would be sent after a new request: their number, their predicted prefill time, and
    the part of that time that belongs to requests that are already late.
    """

    requests: int = 0
    microseconds: int = 0
    late_microseconds: int = 0

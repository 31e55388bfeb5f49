"""Requests as routing sees them, before and while they wait in a queue."""

from typing import NamedTuple, Protocol

from fairlead.session_trees import Lineage
from fairlead.tables import DEFAULT_CLASS
from fairlead.targets import instance_of
from fairlead.values import value


@value
class TraceContext:
    """The trace to which a request belongs, in the terms of W3C Trace Context. Ids are lower-case hexadecimal digits:
    32 of a trace id and 16 of a span id.

    `span_id` is the request's own span; `parent` is the caller's span, None if the caller sent none. A request whose
    caller does not sample its trace has no context.
    """

    trace_id: str
    span_id: str
    parent: str | None = None
    state: str = ""
    """The caller's `tracestate`."""
    asks: bool = False
    """Whether the caller samples the trace and may have decisions kept."""
    operation: str = ""
    """The operation asked of the model, as named by the GenAI semantic conventions (`gen_ai.operation.name`)."""
    model: str = ""
    """The model's name as the client gave it."""


@value
class RoutingRequest:
    """One request as routing sees it.

    `blocks` are chained 64-bit hashes of the full routing blocks of the prompt; times are Unix seconds.
    """

    id: str
    arrived_at: float
    prompt_tokens: int
    blocks: tuple[int, ...]
    first_bytes_hash: int
    """Hash of the first block, or of the whole prompt if it is shorter than a block: a key for prompts
    without blocks.
    """
    session: str | None = None
    """The session's name as the client gave it; in a decision, None if several sessions turned out to
    share the name.
    """
    further_names: tuple[str, ...] = ()
    """Other names of the session in this request, used when several conversations share the first name."""
    beginning: int = 0
    """Hash of how the conversation begins, the same in all its turns; 0 = unknown."""
    named: str | None = None
    """The client's name for the session, if it turned out to be shared, so that `session` is another name or None."""
    max_output_tokens: int = 0
    answers: int = 1
    """Answers that its engine makes at the same time (`n`, several prompts); their tokens say nothing of a step."""
    streamed: bool = True
    """Whether the caller can see the first token. If not, the scheduler takes the prefill as finished once its
    predicted time has passed.
    """
    divisible: bool = True
    """Whether the prompt and the answer may be computed on two instances. False: one instance must compute both,
    because nothing in the request could name another's KV blocks.
    """
    movable: bool = False
    """Whether the sender of this request can let an instance fetch KV blocks of the prompt from another
    instance first.
    """
    warms: bool = False
    """Whether the request only warms a cache and no client waits for it: a router sends a session's last prompt again,
    so that the session's new home holds it. Such a request counts as work of its instance, but not as demand; its
    decision is not recorded, and its latency is not compared with the objectives.
    """
    by_sidecar: bool = False
    """Whether a side-car of the decode instance asks the prefill instance, so that the caller does not see when the
    prompt is computed.
    """
    prompt_bytes: int = 0
    """Bytes from which `prompt_tokens` were estimated; 0 = they are the engine's own count."""
    prompt_kind: str = ""
    """The kind of these bytes (`fairlead.routing.knowledge.token_sizes`): only prompts of the same kind can be
    compared.
    """
    is_plain_text: bool = True
    """Whether the bytes are plain text to which a chat template adds little."""
    block_tokens: int = 0
    """Tokens that a block of this prompt counts for, if different from the pool's table; 0 = as in the table."""
    priority_class: str = DEFAULT_CLASS
    """A class of its pool (`fairlead.priority_classes`); a class that the pool does not declare counts as the
    default.
    """
    tenant: str = ""
    """The tenant that sent it, where the pool shares fairly between tenants (`RoutingFacts.fairness`); all requests
    with "" belong to one tenant.
    """
    owner: str = ""
    """The owner in whose group the session counts when a router has too many sessions: the id of the client's key. All
    clients without a key are one owner.
    """
    body_bytes: int = 0
    """Memory in bytes that the request occupies while it waits."""
    within: tuple[str, ...] | None = None
    """The ids of the only instances that may serve the request; None = all of the pool. The request does not wait for
    further instances to be added.
    """
    client_id: str = ""
    """The client's own id of the request, "" if it gave none."""
    explain: bool = False
    """Whether the client asked to keep the decision and has the right to do so."""
    scored: bool = False
    """Whether the dispatch includes the compared candidates."""
    trace: TraceContext | None = None
    """The request's trace, if the router exports traces."""
    lineage: Lineage | None = None
    """The client's statement about how its session relates to other sessions; None if the client makes none."""
    engine_blocks: tuple[int, ...] = ()
    """Keys of the prompt's leading blocks as the engine divides it (`fairlead.kv_events.block_keys`), as far as the
    tokens are known. A last block that ends the prompt is left out, since an engine computes at least one token.
    """

    def may_go_to(self, instance: str) -> bool:
        """Return whether the request may be served by the instance, or by this rank of the instance."""
        return self.within is None or instance in self.within or instance_of(instance) in self.within


class QueuedRequest(Protocol):
    """A request waiting in an instance's queue, as a policy's rebalancing sees it: the scheduler's own record, valid
    only during that call.
    """

    @property
    def request(self) -> RoutingRequest: ...

    @property
    def instance(self) -> str: ...

    @property
    def alternate(self) -> str | None:
        """The only other instance to which the request may move."""

    @property
    def miss_tokens(self) -> int:
        """Number of uncached prompt tokens with which the request counts on `instance`."""


class Overtaken(NamedTuple):
    """The waiting requests in a queue that would be sent after a certain request: their number, their predicted prefill
    time, and the part of that time that belongs to late ones.
    """

    requests: int = 0
    microseconds: int = 0
    late_microseconds: int = 0

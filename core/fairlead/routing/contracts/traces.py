"""Facts about a traced request that has ended, besides its decision. A router that exports traces makes spans
of both.
"""

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.values import value


@value
class TracedRequest:
    """A request whose decision is kept and which belongs to a trace. Times are Unix seconds.

    `first_token_at` is None if no first token was seen, for example for answers that are not streamed. `prefilled_at`
    is when a prefill instance had computed the prompt for another instance that decodes, None if one instance did both.
    """

    decision: str
    """The id of its decision."""
    request: RoutingRequest
    ended_at: float
    output_tokens: int
    first_token_at: float | None = None
    prefilled_at: float | None = None

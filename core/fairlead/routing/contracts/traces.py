"""Facts about a finished traced request that its decision does not contain. A router that exports traces makes spans
from the decision and these facts.
"""

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.values import value


@value
class TracedRequest:
    """A traced request whose decision is kept. Times are Unix seconds.

    `first_token_at` is None if no first token was observed, for example for responses that are not streamed.
    `prefilled_at` is the time at which the prefill instance had computed the prompt; None if one instance did both
    prefill and decode.
    """

    decision: str
    """The id of the request's decision."""
    request: RoutingRequest
    ended_at: float
    output_tokens: int
    first_token_at: float | None = None
    prefilled_at: float | None = None

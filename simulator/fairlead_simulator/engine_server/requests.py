"""The state of a request in the served engine."""

from dataclasses import dataclass

from fairlead_simulator.engine_model.text_memory import TextRequest


@dataclass(slots=True, kw_only=True, eq=False)
class Generation(TextRequest):
    """One generation in the engine. Times are in seconds of engine time; -1 = not yet."""

    finish_reason: str = "length"
    pooled: bool = False
    """Whether only the prompt is computed, as for an embedding. `output_tokens` is then 1, but no token is counted."""
    fetched_tokens: int = 0
    """Number of prompt tokens whose KV blocks were fetched from another engine."""
    prefill_cached_tokens: int | None = None
    """Number of prompt tokens that the prefilling engine had in its cache; None if no blocks were fetched from it. As
    in vLLM, `usage` reports this number and not the hits in this engine.
    """
    arrived_at: float = -1.0
    last_token_at: float = -1.0
    """Time of the last token that a prefill produced or, once the request has left the decode batch, of its last token.
    """

    @property
    def external_tokens(self) -> int:
        """Number of the `hit_tokens` whose KV blocks were fetched from another engine."""
        return min(self.fetched_tokens, self.hit_tokens)

"""The state of a request in the served engine."""

from dataclasses import dataclass

from fairlead_simulator.engine_model.text_memory import TextRequest


@dataclass(slots=True, kw_only=True, eq=False)
class Generation(TextRequest):
    """One generation in the engine. Times are seconds of engine time; -1 = not yet."""

    finish_reason: str = "length"
    pooled: bool = False
    """Whether only the prompt is computed, as for an embedding. `output_tokens` is then 1, but that token is neither
    produced nor counted.
    """
    fetched_tokens: int = 0
    """Number of prompt tokens whose KV blocks were fetched from another engine."""
    prefill_cached_tokens: int | None = None
    """Number of prompt tokens that the prefill engine had cached before its blocks were fetched, None if none were
    fetched; `usage` reports this number, as in vLLM.
    """
    arrived_at: float = -1.0
    last_token_at: float = -1.0
    """Time of the last token that a prefill produced. After the request has left the decode batch, time of its last
    token.
    """

    @property
    def external_tokens(self) -> int:
        """Number of the `hit_tokens` that came from another engine."""
        return min(self.fetched_tokens, self.hit_tokens)

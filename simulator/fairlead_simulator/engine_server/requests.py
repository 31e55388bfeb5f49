"""A request as the served engine keeps it."""

from dataclasses import dataclass

from fairlead_simulator.engine_model.text_memory import TextRequest


@dataclass(slots=True, kw_only=True, eq=False)
class Generation(TextRequest):
    """One piece of work in the engine. Times in seconds of engine time; -1 = not yet."""

    finish_reason: str = "length"
    pooled: bool = False
    """Whether only the prompt is computed, as for an embedding: `output_tokens` is 1, but that token is neither
    produced nor counted.
    """
    fetched_tokens: int = 0
    """Tokens of the prompt whose KV came from another engine."""
    prefill_cached_tokens: int | None = None
    """Prompt tokens that the prefill engine had cached when its blocks were fetched; `usage` reports them, as vLLM's
    does.
    """
    arrived_at: float = -1.0
    last_token_at: float = -1.0
    """When the last token made by a prefill came or, after the request left the decode batch, when its last
    token came.
    """

    @property
    def external_tokens(self) -> int:
        """The part of `hit_tokens` that came from another engine."""
        return min(self.fetched_tokens, self.hit_tokens)

"""Bytes of prompt text per token, learnt from the counts that engines tell with their answers.

A model's tokenizer makes two to five bytes of a token, by model and by language, so a fixed figure makes every estimate
of work wrong by the same factor. The estimate is bytes over tokens of the last few hundred prompts, long ones weighing
more. It is used in steps: everything counted in tokens begins anew with each, so small drifts are not followed.
"""

from collections import deque
from dataclasses import dataclass, replace
from math import ceil

from fairlead.tables import EngineFacts

MEMORY_PROMPTS = 200
"""An observation weighs 1/e after so many further ones."""
KEPT = 1 - 1 / MEMORY_PROMPTS

FIRST_PROMPTS = 20
"""Prompts before the first step."""

STEP = 0.05
"""An estimate that is nearer than this to the figure in use changes nothing."""

LEAST, MOST = 0.5, 64.0
"""Bytes per token beyond these are no text: an image is hundreds of tokens with few bytes, or none."""

ERRORS_KEPT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSizeReport:
    """How prompts are counted: `bytes_per_token` is the figure in use, `learnt` the mean of the last prompts.

    `error` is the mean absolute error of the counts of the last prompts against the engine's own, `declared_error`
    that of the declared figure over the same; shares (0.1 = 10 %), None before any prompt.
    """

    bytes_per_token: float
    learnt: float | None
    samples: int
    error: float | None
    declared_error: float | None


class TokenSizes:
    """The bytes of a token in one pool; `declared` until the engines have told enough."""

    def __init__(self, declared: float) -> None:
        self.declared = declared
        self.bytes_per_token = float(declared)
        self.samples = 0
        self._bytes = 0.0
        self._tokens = 0.0
        self._next_step_at = FIRST_PROMPTS
        self._errors: deque[tuple[float, float]] = deque(maxlen=ERRORS_KEPT)

    def tokens(self, prompt_bytes: int) -> int:
        """The tokens that a prompt of so many bytes counts for; at least 1."""
        return max(1, ceil(prompt_bytes / self.bytes_per_token))

    def observe(self, prompt_bytes: int, prompt_tokens: int) -> bool:
        """An engine counted so many tokens in a prompt. Returns whether `bytes_per_token` changed.

        What cannot be text is ignored.
        """
        if prompt_bytes <= 0 or prompt_tokens <= 0 or not LEAST <= prompt_bytes / prompt_tokens <= MOST:
            return False
        self._errors.append(
            (abs(self.tokens(prompt_bytes) / prompt_tokens - 1), abs(ceil(prompt_bytes / self.declared) / prompt_tokens - 1))
        )
        self._bytes = self._bytes * KEPT + prompt_bytes
        self._tokens = self._tokens * KEPT + prompt_tokens
        self.samples += 1
        if self.samples < self._next_step_at:
            return False
        estimate = self._bytes / self._tokens
        if abs(estimate / self.bytes_per_token - 1) <= STEP:
            return False
        self.bytes_per_token = estimate
        self._next_step_at = self.samples + MEMORY_PROMPTS
        return True

    def counted(self, engine: EngineFacts) -> EngineFacts:
        """The facts with a routing block of as many tokens as its bytes are now believed to be."""
        if self.bytes_per_token == self.declared:
            return engine
        return replace(engine, block_tokens=max(1, round(engine.block_bytes / self.bytes_per_token)))

    def report(self) -> TokenSizeReport:
        """The figure in use and its error."""
        count = len(self._errors)
        return TokenSizeReport(
            bytes_per_token=self.bytes_per_token,
            learnt=self._bytes / self._tokens if self._tokens else None,
            samples=self.samples,
            error=sum(used for used, _ in self._errors) / count if count else None,
            declared_error=sum(declared for _, declared in self._errors) / count if count else None,
        )

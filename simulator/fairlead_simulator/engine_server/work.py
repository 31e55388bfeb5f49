"""The work that protocols submit to the engine, its results, and the formats of streams."""

from dataclasses import dataclass
from typing import Any, Protocol

from fairlead_simulator.engine_model.requests import Phase
from fairlead_simulator.engine_server.answers import AnswerBook
from fairlead_simulator.engine_server.kv_transfers import NO_HANDOVER, Handover
from fairlead_simulator.engine_server.pacing import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A prompt to compute, and the length of its answer. The answer ends either because the model stops (`stop`) or
    because of the client's limit (`length`).
    """

    prompt: bytes
    max_tokens: int
    finish_reason: str = "length"
    pooled: bool = False
    """Whether only the prompt is computed, as for an embedding, and nothing is generated."""
    handover: Handover = NO_HANDOVER
    continues: bool = False
    """Whether the prompt may end within an answer, which is then continued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one answer. `created_tokens` are the prompt tokens in blocks that were not cached before."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    created_tokens: int

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class Run:
    """A work that was submitted to the engine, and its result so far."""

    __slots__ = ("_answers", "_block_tokens", "_start", "held", "ticket", "work")

    def __init__(self, work: Work, ticket: Turn, answers: AnswerBook, block_tokens: int) -> None:
        self.work = work
        self.ticket = ticket
        self.held: dict[str, Any] | None = None
        """The parameters with which another engine can fetch the KV blocks that are held for it; None if none are
        held.
        """
        self._answers = answers
        self._start = answers.start_of(work.prompt, continues=work.continues)
        self._block_tokens = block_tokens

    @property
    def finish_reason(self) -> str:
        """The reason why the answer ended: the reason given in its work, or `abort` if the generation was aborted."""
        return self.ticket.generation.finish_reason

    @property
    def prompt_tokens(self) -> int:
        return self.ticket.generation.input_tokens

    def words(self, first: int, stop: int) -> bytes:
        """Return the tokens with indexes from `first` to `stop` (excluded) of the answer: ASCII words without
        characters that JSON must escape.
        """
        return self._answers.words(self._start, first, stop)

    def text(self) -> str:
        """Return the whole answer so far."""
        return self.words(0, self.ticket.tokens()).decode("ascii")

    def usage(self) -> Usage:
        """Return the token counts of a finished run. Raises AssertionError before its end."""
        generation = self.ticket.generation
        assert generation.phase is Phase.FINISHED, "usage is known at the end"
        prompt = generation.input_tokens
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=0 if self.work.pooled else generation.generated,
            cached_tokens=generation.hit_tokens if generation.prefill_cached_tokens is None else generation.prefill_cached_tokens,
            created_tokens=max(0, prompt // self._block_tokens * self._block_tokens - generation.hit_tokens),
        )

    def timing(self) -> dict[str, Any]:
        """Return the engine's timestamps, which a request asks for with a header."""
        generation = self.ticket.generation
        stamps = {
            "arrived": generation.arrived_at,
            "admitted": generation.admitted_at,
            "first_token": generation.first_token_at,
            "finished": generation.finished_at,
        }
        return {"timing": stamps | {"preemptions": generation.preemptions}}


class StreamForm(Protocol):
    """The format in which a protocol writes a stream, as bytes of server-sent events. `words` may be empty at the
    end.
    """

    def preface(self) -> bytes:
        """Return the text that is sent before the engine has made a token; may be empty."""

    def opening(self, run: Run) -> bytes:
        """Return the part of the stream that precedes the first words."""

    def content(self, words: bytes, tokens: int) -> bytes:
        """Return the part of the stream with these words, which end with token number `tokens` of the answer."""

    def closing(self, words: bytes, run: Run, extra: dict[str, Any]) -> bytes:
        """Return the end of the stream: the last words and everything after them. `extra` are additional fields for the
        last document.
        """

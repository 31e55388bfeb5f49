"""The work that protocols submit to the engine, the results of the work, and the formats of streams."""

from dataclasses import dataclass
from typing import Any, Protocol

from fairlead_simulator.engine_model.requests import Phase
from fairlead_simulator.engine_server.answers import AnswerBook
from fairlead_simulator.engine_server.kv_transfers import NO_HANDOVER, Handover
from fairlead_simulator.engine_server.pacing import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A prompt to compute, and the length of its answer in tokens. `finish_reason` is the reason why the answer ends:
    `stop` (the model ends it) or `length` (the client's limit).
    """

    prompt: bytes
    max_tokens: int
    finish_reason: str = "length"
    pooled: bool = False
    """Whether only the prompt is computed, as for an embedding, and nothing is generated."""
    handover: Handover = NO_HANDOVER
    continues: bool = False
    """Whether the answer continues an unfinished answer with which the prompt may end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one answer. `created_tokens` is the number of prompt tokens in whole blocks that were not cached
    before.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    created_tokens: int

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class Run:
    """Work that was submitted to the engine, and its result so far."""

    __slots__ = ("_answers", "_block_tokens", "_start", "held", "ticket", "work")

    def __init__(self, work: Work, ticket: Turn, answers: AnswerBook, block_tokens: int) -> None:
        self.work = work
        self.ticket = ticket
        self.held: dict[str, Any] | None = None
        """The parameters with which another engine can fetch the KV blocks of the prompt; None if no blocks are kept
        for another engine.
        """
        self._answers = answers
        self._start = answers.start_of(work.prompt, continues=work.continues)
        self._block_tokens = block_tokens

    @property
    def finish_reason(self) -> str:
        """The reason why the answer ends: `abort` if the generation was aborted, else the reason given in the work."""
        return self.ticket.generation.finish_reason

    @property
    def prompt_tokens(self) -> int:
        return self.ticket.generation.input_tokens

    def words(self, first: int, stop: int) -> bytes:
        """Return the tokens with indexes from `first` to `stop` (excluded) of the answer. They are ASCII words without
        characters that JSON must escape.
        """
        return self._answers.words(self._start, first, stop)

    def text(self) -> str:
        """Return the text of the answer so far."""
        return self.words(0, self.ticket.tokens()).decode("ascii")

    def usage(self) -> Usage:
        """Return the token counts of a finished run. Raises AssertionError if the run has not finished."""
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
        """Return the engine's timestamps of the run, as a field `timing` for the response."""
        generation = self.ticket.generation
        stamps = {
            "arrived": generation.arrived_at,
            "admitted": generation.admitted_at,
            "first_token": generation.first_token_at,
            "finished": generation.finished_at,
        }
        return {"timing": stamps | {"preemptions": generation.preemptions}}


class StreamForm(Protocol):
    """The format in which a protocol writes a stream. Every method returns bytes of server-sent events."""

    def preface(self) -> bytes:
        """Return the events that are sent before the engine has produced a token; may be empty."""

    def opening(self, run: Run) -> bytes:
        """Return the events that precede the first words; may be empty."""

    def content(self, words: bytes, tokens: int) -> bytes:
        """Return the events with these words, of which the last is token number `tokens` of the answer."""

    def closing(self, words: bytes, run: Run, extra: dict[str, Any]) -> bytes:
        """Return the last events: the last words, which may be empty, and everything after them. `extra` are additional
        fields for the last document.
        """

"""Reads aiperf's files (https://github.com/ai-dynamo/aiperf): the traces that it replays, and its records of the
requests that it sent.

- A `mooncake_trace` gives prompts as numbers of tokens (with or without ids), texts, messages or payloads. It gives
  times, or pauses after the previous answer. If rows have no ids, a later row of a session holds only the new text,
  which aiperf sends after all earlier text.
- `profile_export.jsonl` has a line for each request that was sent, in the order in which the requests ended.

A block id in aiperf stands only for the content of its own block, without the blocks before it. If only a text is
given, four bytes count as one token.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from fairlead_simulator.traces.blocks import BYTES_PER_TOKEN, BlockNames
from fairlead_simulator.traces.fields import LONGEST_TOKENS, Other, shown
from fairlead_simulator.traces.forms.alibaba import checked_ids
from fairlead_simulator.traces.reading import NOTHING_OF_CONTENT, Notes, Reading
from fairlead_simulator.traces.rows import BLOCK_TOKENS, TraceRow, object_of
from fairlead_simulator.traces.sources import TraceFile

ASSUMED_MS_PER_TOKEN = 20.0
"""Assumed milliseconds per output token, for rows that give only the pause after the previous answer. The duration of
that answer is not in the file.
"""
_MODES = ("input_length", "text_input", "messages", "payload")
_KNOWN = {*_MODES, "timestamp", "delay", "output_length", "hash_ids", "session_id", "type", "message_mode", "context_mode"}


@dataclass(frozen=True, slots=True)
class _Turn:
    """The latest request of a session. `given_ids` are its block ids as they are in the file."""

    row: TraceRow
    given_ids: tuple[int, ...]


def read_aiperf(source: TraceFile, reading: Reading) -> Iterator[tuple[int, TraceRow]]:
    """Yield the rows of a trace for aiperf, or of aiperf's records, with their line numbers. The rows need not be in
    order of time.
    """
    lines = ((number, Other(object_of(line, source.name, number), source.name, number)) for number, line in source)
    if b'"metadata"' in source.begin:
        yield from _records(lines, reading)
        return
    inputs = _Inputs(reading)
    for number, record in lines:
        yield number, inputs.row(record)


class _Inputs:
    """A converter from the rows of a trace for aiperf to trace rows."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._block_tokens = reading.block_tokens
        self._notes = reading.notes
        self._names = BlockNames()
        self._latest: dict[str, _Turn] = {}

    def row(self, record: Other) -> TraceRow:
        """Return the trace row for one row of the file. Raises TraceInvalid."""
        self._notes.drop(key for key in record.document if key not in _KNOWN)
        session = record.name("session_id")
        before = self._latest.get(session) if session is not None else None
        if record.given("message_mode") == "delta":
            raise record.refusal("message_mode", "'delta' cannot be converted: later prompts contain answers that do not exist yet")
        given_ids = () if record.given("hash_ids") is None else record.ids()
        length, ids = self._prompt(record, before, given_ids)
        row = TraceRow(
            timestamp_ms=self._time(record, before),
            input_length=length,
            output_length=record.tokens("output_length", 0),
            hash_ids=ids,
            session=session,
            pause_ms=None if record.given("delay") is None else record.time_ms("delay"),
        )
        if session is not None:
            self._latest[session] = _Turn(row, given_ids)
        return row

    def _prompt(self, record: Other, before: _Turn | None, given_ids: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """Return the prompt's number of tokens and its block ids."""
        mode = next((one for one in _MODES if record.given(one) is not None), None)
        if mode is None:
            raise record.refusal("input_length", "is missing; a row needs one of input_length, text_input, messages and payload")
        if before is not None and self._is_delta(record, mode, before, given_ids):
            return self._appended(record, mode, before.row)
        if mode == "input_length":
            length = record.tokens("input_length", 1)
            if not given_ids:
                self._notes.say(
                    "rows without hash_ids do not describe a prompt's content: it shares text only with earlier prompts of its session"
                )
                return length, self._names.fresh(length)
            return length, self._names.of_ids(checked_ids(record, length, self._block_tokens), length, self._block_tokens)
        text = self._text(record, mode)
        length = self._tokens_of(text)
        return length, self._names.of_text(text, length, BYTES_PER_TOKEN)

    def _is_delta(self, record: Other, mode: str, before: _Turn, given_ids: tuple[int, ...]) -> bool:
        """Return whether the row holds only the new text of its session's prompt, and not the whole prompt."""
        if mode not in ("input_length", "text_input") or record.given("context_mode") == "message_array_with_responses":
            return False
        whole = len(before.given_ids) - bool(before.row.input_length % self._block_tokens)
        return not given_ids or given_ids[:whole] != before.given_ids[:whole]

    def _appended(self, record: Other, mode: str, before: TraceRow) -> tuple[int, tuple[int, ...]]:
        """Return the number of tokens and the block ids of a prompt. The prompt consists of the session's previous
        prompt and answer, followed by the row's new text.
        """
        self._notes.say("later rows of a session were read as additions to its prompt, because aiperf sends them after the earlier rows")
        added = record.tokens("input_length", 1) if mode == "input_length" else self._tokens_of(self._text(record, mode))
        length = before.input_length + before.output_length + added
        if length > LONGEST_TOKENS:
            raise record.refusal(mode, f"makes a prompt of {length:,} tokens with its session's history; {LONGEST_TOKENS:,} is the maximum")
        return length, self._names.fresh(length, before.hash_ids[: before.input_length // BLOCK_TOKENS])

    def _text(self, record: Other, mode: str) -> bytes:
        if mode == "text_input":
            return record.text(mode).encode() or b" "
        value = record.given(mode)
        if mode == "payload":
            value = record.inner(mode).given("messages") or record.inner(mode).given("prompt")
        if not value:
            raise record.refusal(mode, f"{shown(record.given(mode))} holds no messages and no prompt; leave the row out")
        return orjson.dumps(value)

    def _tokens_of(self, text: bytes) -> int:
        self._notes.say(f"prompts given as text were counted as one token per {BYTES_PER_TOKEN:g} bytes")
        return max(1, round(len(text) / BYTES_PER_TOKEN))

    def _time(self, record: Other, before: _Turn | None) -> float:
        if record.given("timestamp") is not None:
            return record.time_ms("timestamp")
        if before is None or record.given("delay") is None:
            return self._reading.untimed(record)
        self._notes.say(f"rows with a delay and no timestamp were placed as if answers took {ASSUMED_MS_PER_TOKEN:g} ms a token")
        return before.row.timestamp_ms + before.row.output_length * ASSUMED_MS_PER_TOKEN + record.time_ms("delay")


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request in aiperf's records that was sent and completely answered."""

    line: int
    start_ms: float
    end_ms: float
    input_length: int
    output_length: int
    session: str | None


def _records(lines: Iterator[tuple[int, Other]], reading: Reading) -> Iterator[tuple[int, TraceRow]]:
    """Yield the rows of aiperf's records. The pause of a row is the time from the end of the session's previous request
    to the beginning of this request.
    """
    found = [one for number, record in lines if (one := _sent(number, record, reading.notes)) is not None]
    reading.notes.say(NOTHING_OF_CONTENT)
    names, ended = BlockNames(), dict[str, float]()
    for one in sorted(found, key=lambda one: one.start_ms):
        pause = None
        if one.session is not None:
            pause = one.start_ms - ended[one.session] if one.session in ended else None
            ended[one.session] = one.end_ms
        yield (
            one.line,
            TraceRow(
                timestamp_ms=one.start_ms,
                input_length=one.input_length,
                output_length=one.output_length,
                hash_ids=names.fresh(one.input_length),
                session=one.session,
                pause_ms=None if pause is None else max(0.0, round(pause, 3)),
            ),
        )


def _sent(number: int, record: Other, notes: Notes) -> _Sent | None:
    """Return the recorded request; None if the request failed, was cancelled, or served only to warm up."""
    told = record.inner("metadata")
    if told.given("benchmark_phase") not in (None, "profiling"):
        notes.leave_out("that were sent to warm up")
        return None
    if record.given("error") is not None or told.given("was_cancelled"):
        notes.leave_out("that failed or were cancelled")
        return None
    metrics = record.inner("metrics")
    return _Sent(
        line=number,
        start_ms=told.time_ms("request_start_ns", 1e-6),
        end_ms=told.time_ms("request_end_ns", 1e-6),
        input_length=metrics.inner("input_sequence_length").tokens("value", 1),
        output_length=metrics.inner("output_sequence_length").tokens("value", 0),
        session=told.name("x_correlation_id"),
    )

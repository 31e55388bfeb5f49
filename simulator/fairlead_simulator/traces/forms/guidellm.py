"""Reads two kinds of guidellm's files (https://github.com/vllm-project/guidellm). `benchmarks.json` has the requests of
each benchmark; version 0.3 writes their prompts, later versions write their bodies. The other file is the JSONL file
from which guidellm takes prompts.

Times are in seconds. Prompts whose texts begin alike get equal ids for the common beginning.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from fairlead_simulator.errors import TraceInvalid
from fairlead_simulator.traces.blocks import BYTES_PER_TOKEN, BlockNames
from fairlead_simulator.traces.fields import Other, Record, shown
from fairlead_simulator.traces.reading import NOTHING_OF_CONTENT, Reading
from fairlead_simulator.traces.rows import TraceRow, object_of
from fairlead_simulator.traces.sources import TraceFile

MOST_DOCUMENT_BYTES = 512 * 1024 * 1024
_KNOWN = {"prompt", "prompt_tokens_count", "input_length", "output_tokens_count", "output_length", "timestamp"}
_STARTS = ("start_time", "request_start_time")


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request in guidellm's files. `text` is None if the file does not contain the prompt. `tokens` is None if the
    prompt's tokens were not counted.
    """

    line: int
    at_ms: float
    text: bytes | None
    tokens: int | None
    output_length: int
    session: str | None


def read_guidellm(source: TraceFile, reading: Reading) -> Iterator[tuple[int, TraceRow]]:
    """Yield the rows of a benchmark report or of a file of prompts, with their line numbers. The rows need not be in
    order of time.
    """
    if b'"benchmarks"' in source.begin:
        found = list(_of_report(source, reading))
    else:
        found = [_of_prompt(Other(object_of(line, source.name, number), source.name, number), reading) for number, line in source]
    counted = [(len(one.text), one.tokens) for one in found if one.text is not None and one.tokens is not None]
    bytes_per_token = sum(size for size, _ in counted) / sum(tokens for _, tokens in counted) if counted else BYTES_PER_TOKEN
    if any(one.tokens is None for one in found):
        reading.notes.say(f"prompts without a token count were counted as one token per {bytes_per_token:.3g} bytes")
    if any(one.text is None for one in found):
        reading.notes.say(NOTHING_OF_CONTENT)
    names = BlockNames()
    for one in found:
        length = one.tokens if one.tokens is not None else max(1, round(len(one.text or b"") / bytes_per_token))
        ids = names.fresh(length) if one.text is None else names.of_text(one.text, length, bytes_per_token)
        row = TraceRow(timestamp_ms=one.at_ms, input_length=length, output_length=one.output_length, hash_ids=ids, session=one.session)
        yield one.line, row


def _of_prompt(record: Other, reading: Reading) -> _Asked:
    """Return the request in one line of the file from which guidellm takes prompts. The line has a prompt or numbers of
    tokens.
    """
    reading.notes.drop(key for key in record.document if key not in _KNOWN)
    counted = next((name for name in ("prompt_tokens_count", "input_length") if record.given(name) is not None), None)
    answered = "output_length" if record.given("output_tokens_count") is None else "output_tokens_count"
    return _Asked(
        line=record.line,
        at_ms=reading.untimed(record) if record.given("timestamp") is None else record.time_ms("timestamp", 1e3),
        text=None if record.given("prompt") is None and counted is not None else record.text("prompt").encode(),
        tokens=None if counted is None else record.tokens(counted, 1),
        output_length=record.tokens(answered, 0),
        session=None,
    )


def _of_report(source: TraceFile, reading: Reading) -> Iterator[_Asked]:
    content = bytearray()
    for _, line in source:
        content += line
        if len(content) > MOST_DOCUMENT_BYTES:
            raise TraceInvalid(source.name, 0, "", f"is larger than {MOST_DOCUMENT_BYTES >> 20} MiB; benchmark fewer requests to a file")
    document = Other(object_of(bytes(content), source.name, 0), source.name, 0)
    benchmarks = _objects(document, "benchmarks")
    if len(benchmarks) > 1:
        reading.notes.say(f"the file holds {len(benchmarks)} benchmarks; each request keeps its recorded time")
    for benchmark in benchmarks:
        requests = benchmark.inner("requests")
        answered = _objects(requests, "successful")
        for kind in ("errored", "incomplete"):
            if requests.given(kind):
                reading.notes.leave_out("that failed or did not end", len(_objects(requests, kind)))
        total = benchmark.inner("request_totals").given("successful") if "request_totals" in benchmark.document else None
        if isinstance(total, int) and total > len(answered):
            reading.notes.say(f"{len(answered):,} of the {total:,} requests of a benchmark are in the file, as guidellm drew a sample")
        yield from map(_of_request, answered)


def _objects(record: Record, field: str) -> list[Other]:
    """Return the objects of the list in a field as records. Errors about these records name their path in the
    document.
    """
    found = record.given(field)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise record.refusal(field, f"{shown(found)} must be a list of JSON objects")
    return [Other(one, record.file, record.line, f"{record.within}{field}[{place}].") for place, one in enumerate(found)]


def _of_request(record: Other) -> _Asked:
    start = next((name for name in _STARTS if record.given(name) is not None), _STARTS[0])
    return _Asked(
        line=record.line,
        at_ms=record.time_ms(start, 1e3),
        text=_text(record),
        tokens=record.tokens("prompt_tokens", 1),
        output_length=record.tokens("output_tokens", 0),
        session=record.inner("info").name("conversation_id") if "info" in record.document else None,
    )


def _text(record: Other) -> bytes | None:
    """Return the text of the prompt, or the messages of the request's body as JSON; None if the record has neither."""
    if record.given("prompt") is not None:
        return record.text("prompt").encode()
    try:
        sent: Any = orjson.loads(record.given("request_args") or "null")
    except (orjson.JSONDecodeError, TypeError):
        return None
    body = sent.get("body", sent) if isinstance(sent, dict) else None
    content = (body.get("messages") or body.get("prompt")) if isinstance(body, dict) else None
    return None if not content else orjson.dumps(content)
